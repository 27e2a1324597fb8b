#![allow(unused)]

#[dtq::task(retry_on(String))]
async fn send_mail(to: String) {}

fn main() {}
