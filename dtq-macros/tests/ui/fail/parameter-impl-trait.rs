#![allow(unused)]

#[dtq::task]
async fn send_mail(to: impl Into<String>) {}

fn main() {}
