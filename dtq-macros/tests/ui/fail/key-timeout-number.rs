#![allow(unused)]

#[dtq::task(timeout = 3)]
async fn send_mail(to: String) {}

fn main() {}
