#![allow(unused)]

#[dtq::task]
async fn send_mail(to: String, to: u8) {}

fn main() {}
