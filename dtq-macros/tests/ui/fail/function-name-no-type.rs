#![allow(unused)]

#[dtq::task]
async fn _1(to: String) {}

fn main() {}
