#![allow(unused)]

#[dtq::task(timeout_ms = 3_600_001)]
async fn send_mail(to: String) {}

fn main() {}
