#![allow(unused)]

#[dtq::task(priority = -1)]
async fn send_mail(to: String) {}

fn main() {}
