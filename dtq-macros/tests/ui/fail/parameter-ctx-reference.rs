#![allow(unused)]

#[dtq::task]
async fn send_mail(#[ctx] ctx: &dtq::Context) {}

fn main() {}
