#![allow(unused)]

#[dtq::task(payload = "Mail")]
async fn send_mail(to: String) {}

fn main() {}
