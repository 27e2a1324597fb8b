#![allow(unused)]

#[dtq::task(max_attempt = 3)]
async fn send_mail(to: String) {}

fn main() {}
