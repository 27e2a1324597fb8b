#![allow(unused)]

#[dtq::task]
async fn send_mail(#[ctx(full)] ctx: dtq::Context) {}

fn main() {}
