//! Runs the tasks of the library crate until SIGTERM or Ctrl-C.
//!
//!     cargo run -p dtq-example-worker

// Naming the crate links it: its tasks register themselves.
use dtq_example_tasks as _;

#[tokio::main]
async fn main() -> dtq::Result<()> {
    tracing_subscriber::fmt().init();
    dtq::run().await
}
