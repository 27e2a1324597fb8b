#![allow(unused)]

#[dtq::task(payload = Option)]
async fn send_mail(to: String) {}

fn main() {}
