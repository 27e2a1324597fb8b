#![allow(unused)]

#[dtq::task]
async fn send_mail(to: Option<&str>) {}

fn main() {}
