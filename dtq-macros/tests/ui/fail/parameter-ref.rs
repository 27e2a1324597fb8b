#![allow(unused)]

#[dtq::task]
async fn send_mail(ref to: String) {}

fn main() {}
