#![allow(unused)]

#[dtq::task]
async unsafe fn send_mail(to: String) {}

fn main() {}
