#![allow(unused)]

type Outcome = Result<(), std::io::Error>;

#[dtq::task]
async fn send_mail(to: String) -> Outcome {
    Ok(())
}

fn main() {}
