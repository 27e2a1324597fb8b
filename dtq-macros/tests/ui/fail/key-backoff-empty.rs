#![allow(unused)]

#[dtq::task(backoff())]
async fn send_mail(to: String) {}

fn main() {}
