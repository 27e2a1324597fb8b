#![allow(unused)]

#[dtq::task(result_max_bytes = "1k")]
async fn send_mail(to: String) {}

fn main() {}
