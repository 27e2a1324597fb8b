#![allow(unused)]

struct Mailer;

#[dtq::task]
impl Mailer {
    fn send(&self) {}
}

fn main() {}
