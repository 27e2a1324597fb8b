#![allow(unused)]

#[dtq::task]
async fn send_mail(to: tokio::sync::mpsc::Sender<u8>) {}

fn main() {}
