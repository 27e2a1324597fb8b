#![allow(unused)]

struct Mail;

#[dtq::task]
async fn send_mail(to: String) -> Result<Mail, std::io::Error> {
    Ok(Mail)
}

fn main() {}
