#![allow(unused)]

#[dtq::task]
async fn größe(to: String) {}

fn main() {}
