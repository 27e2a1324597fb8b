#![allow(unused)]

#[dtq::task(retry_on(NoSuchError))]
async fn send_mail(to: String) {}

fn main() {}
