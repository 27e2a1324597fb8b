#![allow(unused)]

#[dtq::task(timeout = "99999999999999999999s")]
async fn send_mail(to: String) {}

fn main() {}
