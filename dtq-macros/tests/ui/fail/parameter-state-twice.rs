#![allow(unused)]

#[dtq::task]
async fn send_mail(#[state] a: std::sync::Arc<u8>, #[state] b: std::sync::Arc<u8>) {}

fn main() {}
