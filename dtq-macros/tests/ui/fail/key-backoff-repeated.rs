#![allow(unused)]

#[dtq::task(backoff(base = "1s", base = "2s"))]
async fn send_mail(to: String) {}

fn main() {}
