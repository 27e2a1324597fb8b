#![allow(unused)]

#[dtq::task(payload = send_mail)]
async fn send_mail(to: String) {}

fn main() {}
