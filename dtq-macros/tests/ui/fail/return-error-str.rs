#![allow(unused)]

#[dtq::task]
async fn send_mail(to: String) -> Result<(), &'static str> {
    Err("no")
}

fn main() {}
