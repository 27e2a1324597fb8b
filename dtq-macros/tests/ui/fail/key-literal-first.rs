#![allow(unused)]

#[dtq::task("mail")]
async fn send_mail(to: String) {}

fn main() {}
