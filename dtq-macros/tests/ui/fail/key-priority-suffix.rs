#![allow(unused)]

#[dtq::task(priority = 5i32)]
async fn send_mail(to: String) {}

fn main() {}
