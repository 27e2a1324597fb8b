#![allow(unused)]

#[dtq::task]
async fn send_mail(_: String) {}

fn main() {}
