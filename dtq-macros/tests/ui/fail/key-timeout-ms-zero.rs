#![allow(unused)]

#[dtq::task(timeout_ms = 0)]
async fn send_mail(to: String) {}

fn main() {}
