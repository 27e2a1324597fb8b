//! Payloads that hold each other, read by serde's derives.

#[dtq::task]
async fn ping(#[serde(default)] other: Option<Box<Pong>>) {
    drop(other);
}

#[dtq::task]
async fn pong(#[serde(default)] other: Option<Box<Ping>>) {
    drop(other);
}

fn main() {
    drop(Ping::enqueue(Some(Box::new(Pong { other: None }))));
}
