#![allow(unused)]

#[dtq::task(timeout = "3s", timeout_ms = 3000)]
async fn send_mail(to: String) {}

fn main() {}
