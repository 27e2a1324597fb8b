#![allow(unused)]

#[dtq::task(backoff = "1s")]
async fn send_mail(to: String) {}

fn main() {}
