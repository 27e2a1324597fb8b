#![allow(unused)]

#[dtq::task(timeout = "2h")]
async fn send_mail(to: String) {}

fn main() {}
