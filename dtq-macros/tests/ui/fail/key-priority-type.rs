#![allow(unused)]

#[dtq::task(priority = "high")]
async fn send_mail(to: String) {}

fn main() {}
