#![allow(unused)]

#[dtq::task]
async fn send_mail(#[ctx] #[serde(default)] ctx: dtq::Context) {}

fn main() {}
