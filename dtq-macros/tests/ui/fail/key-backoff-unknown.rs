#![allow(unused)]

#[dtq::task(backoff(bass = "1s"))]
async fn send_mail(to: String) {}

fn main() {}
