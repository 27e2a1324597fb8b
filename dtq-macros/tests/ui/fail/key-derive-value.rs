#![allow(unused)]

#[dtq::task(derive = Clone)]
async fn send_mail(to: String) {}

fn main() {}
