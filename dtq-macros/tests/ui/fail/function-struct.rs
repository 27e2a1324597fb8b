#![allow(unused)]

#[dtq::task]
struct SendMail {
    to: String,
}

fn main() {}
