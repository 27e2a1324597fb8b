#![allow(unused)]

#[dtq::task(ttl = "0s")]
async fn send_mail(to: String) {}

fn main() {}
