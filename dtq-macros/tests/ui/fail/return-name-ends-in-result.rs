#![allow(unused)]

#[derive(serde::Serialize)]
struct SearchResult;

#[dtq::task]
async fn send_mail(to: String) -> SearchResult {
    SearchResult
}

fn main() {}
