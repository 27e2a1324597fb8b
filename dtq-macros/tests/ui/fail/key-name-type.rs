#![allow(unused)]

#[dtq::task(name = 5)]
async fn send_mail(to: String) {}

fn main() {}
