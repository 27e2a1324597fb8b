#![allow(unused)]

#[dtq::task]
async fn send_mail(to: std::borrow::Cow<'_, str>) {}

fn main() {}
