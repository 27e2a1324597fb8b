#![allow(unused)]

#[dtq::task]
async fn send_mail((to, lang): (String, String)) {}

fn main() {}
