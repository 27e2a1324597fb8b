#![allow(unused)]

#[dtq::task(priority = HIGH)]
async fn send_mail(to: String) {}

fn main() {}
