//! What a task function may receive besides its payload: values given to the worker, and the context
//! of its execution.
//!
//!     cargo run --example 03-state-and-context

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Stands for a connection pool, an HTTP client, a model that was loaded.
#[derive(Default)]
struct Counter(AtomicU64);

/// `#[state]` parameters are found by their exact type and cloned for each attempt.
#[dtq::task]
async fn count(by: u64, #[state] counter: Arc<Counter>, #[ctx] ctx: dtq::Context) -> u64 {
    let total = counter.0.fetch_add(by, Ordering::SeqCst) + by;
    let (task, attempt, worker) = (ctx.task_id(), ctx.attempt(), ctx.worker_id());
    println!("{task}: attempt {attempt} on {worker}, metadata {:?}", ctx.metadata());
    if total < 10 {
        // Follow-up work goes in through the store that the task came from.
        let next = Count::enqueue(by).metadata("after", task.to_string()).on(ctx.client());
        if let Err(error) = next.await {
            println!("no follow-up: {error}");
        }
    }
    total
}

/// A task function without `async` runs on a thread of dtq's own; it cannot be dropped, only asked.
#[dtq::task(timeout = "10s")]
fn grind(rounds: u32, #[ctx] ctx: dtq::Context) -> u32 {
    let mut done = 0;
    while done < rounds && !ctx.is_cancelled() {
        std::thread::sleep(Duration::from_millis(20));
        done += 1;
    }
    done
}

#[tokio::main]
async fn main() -> dtq::Result<()> {
    let client = dtq::Client::from_env()?;
    dtq::set_default_client(client.clone());
    let counter = Arc::new(Counter::default());
    // Without `.state(..)` the worker refuses to start and says which task wants which type.
    let worker = dtq::Worker::builder().client(client).state(Arc::clone(&counter)).start().await?;

    Count::enqueue(4).await?;
    while counter.0.load(Ordering::SeqCst) < 10 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("counted to {}", counter.0.load(Ordering::SeqCst));
    println!("ground {} rounds", Grind::enqueue(5).await?.result().await?);

    let long = Grind::enqueue(400).await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    println!("cancelling: {:?}", long.cancel().await);
    // The blocking function noticed and returned early, with success: that stays.
    println!("it returned {:?}", long.result().await);
    worker.shutdown();
    worker.join().await
}
