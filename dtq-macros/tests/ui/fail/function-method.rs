#![allow(unused)]

struct Mailer;

impl Mailer {
    #[dtq::task]
    async fn send_mail(&self, to: String) {}
}

fn main() {}
