#![allow(unused)]

#[dtq::task(result_retention = 0)]
async fn send_mail(to: String) {}

fn main() {}
