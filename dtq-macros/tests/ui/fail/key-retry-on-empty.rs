#![allow(unused)]

#[dtq::task(retry_on())]
async fn send_mail(to: String) {}

fn main() {}
