#![allow(unused)]

#[dtq::task(queue = "a", priority = 3, queue = "b")]
async fn send_mail(to: String) {}

fn main() {}
