#![allow(unused)]

#[dtq::task]
async fn send_mail(to: String, #[cfg(unix)] lang: String) {}

fn main() {}
