#![deny(unused_must_use)]

#[dtq::task]
async fn send_mail(to: String) {
    drop(to);
}

fn f() {
    SendMail::enqueue("ada");
}

fn main() {}
