#![allow(unused)]

#[dtq::task(alias = "a", alias = "a")]
async fn send_mail(to: String) {}

fn main() {}
