#![allow(unused)]

#[dtq::task(max_attempts = 2.5)]
async fn send_mail(to: String) {}

fn main() {}
