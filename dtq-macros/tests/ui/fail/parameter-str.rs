#![allow(unused)]

#[dtq::task]
async fn send_mail(to: &str) {}

fn main() {}
