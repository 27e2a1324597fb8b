#![allow(unused)]

#[dtq::task(priorty = 3, queue = "Mail", max_attempts = 0, ttl = 5)]
async fn send_mail(to: String) {}

fn main() {}
