#![allow(unused)]

#[derive(serde::Serialize, serde::Deserialize)]
struct Mail {
    to: String,
}

#[dtq::task]
async fn send_mail(Mail { to }: Mail) {}

fn main() {}
