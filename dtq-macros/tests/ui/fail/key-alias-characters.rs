#![allow(unused)]

#[dtq::task(alias = "a/b")]
async fn send_mail(to: String) {}

fn main() {}
