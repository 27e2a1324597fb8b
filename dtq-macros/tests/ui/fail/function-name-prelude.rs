#![allow(unused)]

#[dtq::task]
async fn send(to: String) {}

fn needs_send<T: Send>(_: T) {}

fn main() {}
