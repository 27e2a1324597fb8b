#![allow(unused)]

#[dtq::task(name = "")]
async fn send_mail(to: String) {}

fn main() {}
