#![allow(unused)]

#[dtq::task]
async fn send_mail(to: String) -> Result<(), Box<dyn std::error::Error>> {
    Err(to.into())
}

fn main() {}
