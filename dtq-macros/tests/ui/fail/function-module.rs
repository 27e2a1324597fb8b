#![allow(unused)]

#[dtq::task]
mod mails {
    pub async fn send_mail(to: String) {}
}

fn main() {}
