#![allow(unused)]

#[derive(serde::Serialize, serde::Deserialize)]
struct Mail(#[serde(skip)] std::marker::PhantomData<*const u8>);

#[dtq::task]
async fn send_mail(to: Mail) {}

fn main() {}
