#![allow(unused)]

#[dtq::task(queue = "abc\n")]
async fn send_mail(to: String) {}

fn main() {}
