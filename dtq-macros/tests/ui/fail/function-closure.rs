#![allow(unused)]

#[dtq::task]
static SEND_MAIL: fn(String) = |to| drop(to);

fn main() {}
