#![allow(unused)]

#[dtq::task]
async fn send_mail(ctx: dtq::Context, to: String) {}

fn main() {}
