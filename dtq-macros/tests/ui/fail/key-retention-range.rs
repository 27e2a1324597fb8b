#![allow(unused)]

#[dtq::task(retention = "4000d")]
async fn send_mail(to: String) {}

fn main() {}
