#![allow(unused)]

#[dtq::task]
async fn send_mail(#[cfg_attr(unix, serde(default))] to: String) {}

fn main() {}
