#![allow(unused)]

#[dtq::task]
async fn send_mail(to: String) -> impl serde::Serialize {
    to
}

fn main() {}
