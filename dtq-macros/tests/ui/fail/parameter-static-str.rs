#![allow(unused)]

#[dtq::task]
async fn send_mail(to: &'static str) {}

fn main() {}
