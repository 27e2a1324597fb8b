#![allow(unused)]

struct Mail;

#[dtq::task]
async fn send_mail(to: String) -> Mail {
    Mail
}

fn main() {}
