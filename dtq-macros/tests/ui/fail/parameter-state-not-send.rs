#![allow(unused)]

#[dtq::task]
async fn send_mail(#[state] pool: std::rc::Rc<u8>) {}

fn main() {}
