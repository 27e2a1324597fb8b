#![allow(unused)]

#[dtq::task]
async fn send_mail<'a>(to: &'a str) {}

fn main() {}
