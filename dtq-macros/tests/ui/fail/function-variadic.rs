#![allow(unused)]

#[dtq::task]
unsafe extern "C" fn send_mail(to: u8, _: ...) {}

fn main() {}
