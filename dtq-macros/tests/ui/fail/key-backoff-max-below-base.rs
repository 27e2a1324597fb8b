#![allow(unused)]

#[dtq::task(backoff(base = "10s", max = "1s"))]
async fn send_mail(to: String) {}

fn main() {}
