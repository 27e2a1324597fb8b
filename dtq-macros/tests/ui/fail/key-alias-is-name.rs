#![allow(unused)]

#[dtq::task(alias = "send_mail")]
async fn send_mail(to: String) {}

fn main() {}
