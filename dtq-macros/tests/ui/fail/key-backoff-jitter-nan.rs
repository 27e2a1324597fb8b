#![allow(unused)]

#[dtq::task(backoff(jitter = f64::NAN))]
async fn send_mail(to: String) {}

fn main() {}
