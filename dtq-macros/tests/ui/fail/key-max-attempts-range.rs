#![allow(unused)]

#[dtq::task(max_attempts = 256)]
async fn send_mail(to: String) {}

fn main() {}
