#![allow(unused)]

#[dtq::task]
async fn send_mail(to: &mut Vec<u8>) {}

fn main() {}
