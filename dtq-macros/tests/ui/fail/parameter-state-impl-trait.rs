#![allow(unused)]

#[dtq::task]
async fn send_mail(#[state] pool: impl Clone) {}

fn main() {}
