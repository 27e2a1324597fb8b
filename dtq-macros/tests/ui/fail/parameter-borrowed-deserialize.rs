#![allow(unused)]

#[derive(serde::Serialize, serde::Deserialize)]
struct Mail<'a>(&'a str);

#[dtq::task]
async fn send_mail(to: Vec<Mail<'static>>) {}

fn main() {}
