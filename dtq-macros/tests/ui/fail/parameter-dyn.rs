#![allow(unused)]

#[dtq::task]
async fn send_mail(to: Box<dyn Fn() + Send>) {}

fn main() {}
