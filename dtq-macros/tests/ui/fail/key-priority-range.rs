#![allow(unused)]

#[dtq::task(priority = 10)]
async fn send_mail(to: String) {}

fn main() {}
