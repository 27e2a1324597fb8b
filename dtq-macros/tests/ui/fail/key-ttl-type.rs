#![allow(unused)]

#[dtq::task(ttl = true)]
async fn send_mail(to: String) {}

fn main() {}
