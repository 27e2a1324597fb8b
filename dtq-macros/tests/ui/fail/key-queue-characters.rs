#![allow(unused)]

#[dtq::task(queue = "Mail Out")]
async fn send_mail(to: String) {}

fn main() {}
