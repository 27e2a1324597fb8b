#![allow(unused)]

#[dtq::task(retries = 3)]
async fn send_mail(to: String) {}

fn main() {}
