#![allow(unused)]

#[dtq::task(backoff(jitter = 1.5))]
async fn send_mail(to: String) {}

fn main() {}
