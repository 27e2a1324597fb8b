#![allow(unused)]

#[dtq::task(max_attempts = 0)]
async fn send_mail(to: String) {}

fn main() {}
