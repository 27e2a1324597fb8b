#![allow(unused)]

#[dtq::task(retention = "-1s")]
async fn send_mail(to: String) {}

fn main() {}
