#![allow(unused)]

#[dtq::task]
async fn send_mail(to: &String) {}

fn main() {}
