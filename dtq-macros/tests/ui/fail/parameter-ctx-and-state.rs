#![allow(unused)]

#[dtq::task]
async fn send_mail(#[ctx] #[state] ctx: dtq::Context) {}

fn main() {}
