#![allow(unused)]

struct MailError;

#[dtq::task]
async fn send_mail(to: String) -> Result<(), MailError> {
    Err(MailError)
}

fn main() {}
