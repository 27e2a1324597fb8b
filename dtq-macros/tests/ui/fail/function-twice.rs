#![allow(unused)]

#[dtq::task]
#[dtq::task(queue = "mail")]
async fn send_mail(to: String) {}

fn main() {}
