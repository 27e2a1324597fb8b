#![allow(unused)]

#[dtq::task(backoff(jitter = "20%"))]
async fn send_mail(to: String) {}

fn main() {}
