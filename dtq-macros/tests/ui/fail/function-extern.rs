#![allow(unused)]

#[dtq::task]
extern "C" fn send_mail(to: u8) {}

fn main() {}
