#![allow(unused)]

#[dtq::task(payload = mails::Mail)]
async fn send_mail(to: String) {}

fn main() {}
