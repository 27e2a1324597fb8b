#![allow(unused)]

#[dtq::task]
async fn send_mail(to: Option<Self>) {}

fn main() {}
