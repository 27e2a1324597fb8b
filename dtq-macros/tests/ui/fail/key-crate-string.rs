#![allow(unused)]

#[dtq::task(crate = "dtq")]
async fn send_mail(to: String) {}

fn main() {}
