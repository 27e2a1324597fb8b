#![allow(unused)]

#[derive(serde::Serialize, serde::Deserialize)]
struct Mail;

#[dtq::task]
async fn mail(mail: Mail) {}

fn main() {}
