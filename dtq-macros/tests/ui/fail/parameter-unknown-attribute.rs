#![allow(unused)]

#[dtq::task]
async fn send_mail(#[contxt] ctx: dtq::Context) {}

fn main() {}
