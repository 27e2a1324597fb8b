#![allow(unused)]

trait Mailer {
    #[dtq::task]
    async fn send_mail(to: String);
}

fn main() {}
