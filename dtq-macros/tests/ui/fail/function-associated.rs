#![allow(unused)]

struct Mailer;

impl Mailer {
    #[dtq::task]
    async fn send_mail(to: String) {}
}

fn main() {}
