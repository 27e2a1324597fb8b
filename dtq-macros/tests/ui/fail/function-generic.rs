#![allow(unused)]

#[dtq::task]
async fn send_mail<T: Clone>(to: T) {}

fn main() {}
