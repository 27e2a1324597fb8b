#![allow(unused)]

#[dtq::task]
async fn send_mail(to: &[u8]) {}

fn main() {}
