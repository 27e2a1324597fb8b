#![allow(unused)]

#[dtq::task(timeout = "3 seconds")]
async fn send_mail(to: String) {}

fn main() {}
