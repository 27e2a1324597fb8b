#![allow(unused)]

#[dtq::task]
async fn send_mail(to: String) -> Result<()> {
    Ok(())
}

fn main() {}
