//! A task without parameters or result.

#[dtq::task]
async fn tick() {}

fn main() {
    let _ = Tick::enqueue();
    let _ = Tick {};
    assert_eq!(dtq::registry().len(), 1);
}
