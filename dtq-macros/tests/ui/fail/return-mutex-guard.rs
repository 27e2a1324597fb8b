#![allow(unused)]

#[dtq::task]
async fn send_mail(to: String) -> () {
    static LOCK: std::sync::Mutex<u8> = std::sync::Mutex::new(0);
    let guard = LOCK.lock();
    tokio::task::yield_now().await;
    drop((guard, to));
}

fn main() {}
