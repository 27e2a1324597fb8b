#![allow(unused)]

#[dtq::task]
async fn send_mail(to: *const u8) {}

fn main() {}
