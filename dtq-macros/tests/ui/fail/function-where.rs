#![allow(unused)]

#[dtq::task]
async fn send_mail(to: String)
where
    String: Clone,
{
}

fn main() {}
