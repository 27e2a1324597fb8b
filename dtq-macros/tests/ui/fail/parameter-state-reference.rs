#![allow(unused)]

struct Pool;

#[dtq::task]
async fn send_mail(#[state] pool: &Pool) {}

fn main() {}
