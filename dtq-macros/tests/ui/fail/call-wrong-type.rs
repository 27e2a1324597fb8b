#![allow(unused)]

#[dtq::task]
async fn send_mail(times: u8) {}

fn f() {
    let _ = SendMail::enqueue("three");
}

fn main() {}
