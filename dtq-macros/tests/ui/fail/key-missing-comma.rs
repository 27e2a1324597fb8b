#![allow(unused)]

#[dtq::task(queue = "mail" priority = 3)]
async fn send_mail(to: String) {}

fn main() {}
