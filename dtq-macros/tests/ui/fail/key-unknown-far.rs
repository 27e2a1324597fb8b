#![allow(unused)]

#[dtq::task(zebra = 3)]
async fn send_mail(to: String) {}

fn main() {}
