#![allow(unused)]

#[dtq::task]
async fn send_mail(to: String, lang: Option<String>) {}

fn f() {
    let _ = SendMail::enqueue("ada");
}

fn main() {}
