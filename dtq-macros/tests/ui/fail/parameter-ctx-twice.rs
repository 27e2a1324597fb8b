#![allow(unused)]

#[dtq::task]
async fn send_mail(#[ctx] a: dtq::Context, #[ctx] b: dtq::Context) {}

fn main() {}
