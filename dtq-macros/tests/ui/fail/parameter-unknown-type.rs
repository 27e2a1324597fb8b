#![allow(unused)]

#[dtq::task]
async fn send_mail(to: Mial) {}

fn main() {}
