#![allow(unused)]

#[dtq::task]
async fn send_mail(to @ _: String) {}

fn main() {}
