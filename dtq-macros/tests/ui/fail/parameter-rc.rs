#![allow(unused)]

#[dtq::task]
async fn send_mail(to: std::rc::Rc<String>) {}

fn main() {}
