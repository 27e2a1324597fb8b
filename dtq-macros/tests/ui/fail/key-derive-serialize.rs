#![allow(unused)]

#[dtq::task(derive(Clone, serde::Serialize))]
async fn send_mail(to: String) {}

fn main() {}
