//! Puts tasks in and waits for their results. The worker is another program:
//!
//!     cargo run -p dtq-example-worker &
//!     cargo run -p dtq-example-producer

use dtq_example_tasks::{Resize, Size};

#[tokio::main]
async fn main() -> dtq::Result<()> {
    let mut handles = Vec::new();
    for (image, width) in [("cat.png", 640), ("dog.png", 320)] {
        let size = Size { width, height: width * 3 / 4 };
        handles.push(Resize::enqueue(image, size).await?);
    }
    println!("{} tasks are in; waiting for a worker", handles.len());
    for handle in handles {
        println!("{}: {}", handle.id(), handle.result().await?);
    }
    Ok(())
}
