#![allow(unused)]

#[dtq::task]
const fn send_mail(to: u8) {}

fn main() {}
