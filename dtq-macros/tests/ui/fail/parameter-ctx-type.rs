#![allow(unused)]

#[dtq::task]
async fn send_mail(#[ctx] ctx: String, to: String) {}

fn main() {}
