#![allow(unused)]

#[dtq::task]
async fn send_mail(#[serde(defalt)] to: String) {}

fn main() {}
