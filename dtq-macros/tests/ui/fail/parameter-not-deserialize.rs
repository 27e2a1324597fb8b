#![allow(unused)]

#[derive(serde::Serialize)]
struct Mail;

#[dtq::task]
async fn send_mail(to: Mail) {}

fn main() {}
