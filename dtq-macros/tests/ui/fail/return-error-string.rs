#![allow(unused)]

#[dtq::task]
async fn send_mail(to: String) -> Result<(), String> {
    Err(to)
}

fn main() {}
