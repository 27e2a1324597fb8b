#![allow(unused)]

#[dtq::task]
async fn send_mail(to: _) {}

fn main() {}
