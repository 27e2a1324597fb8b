#![allow(unused)]

#[dtq::task(retry_on = std::io::Error)]
async fn send_mail(to: String) {}

fn main() {}
