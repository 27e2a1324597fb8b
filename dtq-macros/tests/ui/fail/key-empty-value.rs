#![allow(unused)]

#[dtq::task(queue = )]
async fn send_mail(to: String) {}

fn main() {}
