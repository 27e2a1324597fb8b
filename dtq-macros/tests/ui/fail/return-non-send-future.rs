#![allow(unused)]

#[dtq::task]
async fn send_mail(to: String) -> () {
    let rc = std::rc::Rc::new(to);
    tokio::task::yield_now().await;
    drop(rc);
}

fn main() {}
