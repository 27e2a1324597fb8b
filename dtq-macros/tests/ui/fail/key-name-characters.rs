#![allow(unused)]

#[dtq::task(name = "send mail")]
async fn send_mail(to: String) {}

fn main() {}
