#![allow(unused)]

#[dtq::task]
async fn send_mail<const N: usize>(to: [u8; N]) {}

fn main() {}
