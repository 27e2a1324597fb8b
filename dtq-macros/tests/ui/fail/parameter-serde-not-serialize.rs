#![allow(unused)]

#[derive(Default)]
struct Mail;

#[dtq::task]
async fn send_mail(#[serde(default)] to: String, mail: Mail) {}

fn main() {}
