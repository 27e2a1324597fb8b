//! Which errors retry, and how a task says so: marks, a derived enum, `retry_on`, snooze, dead letters.
//!
//!     cargo run --example 02-retries-and-errors

use std::time::Duration;

use dtq::{Mark, TaskError, TaskFailure};

/// An error enum whose variants say themselves what they mean.
#[derive(Debug, thiserror::Error, dtq::Retryable)]
enum ChargeError {
    #[error("the bank is busy")]
    #[retryable(after = "200ms")]
    Busy,
    #[error("no such account")]
    NoAccount, // not marked: permanent
}

#[dtq::task(max_attempts = 3)]
async fn charge(account: u32, #[ctx] ctx: dtq::Context) -> Result<u32, ChargeError> {
    match (account, ctx.attempt()) {
        (0, _) => Err(ChargeError::NoAccount),
        (_, 1) => Err(ChargeError::Busy),
        _ => Ok(account),
    }
}

/// Any error by `?`; a mark where one is meant to be retried. What nobody marked is permanent.
#[dtq::task(max_attempts = 3, backoff(base = "100ms", max = "1s", jitter = 0.1))]
async fn count_lines(path: String) -> Result<usize, TaskError> {
    if path.is_empty() {
        return Err(dtq::permanent!("a path is needed"));
    }
    // A file that is not there may be there soon.
    let text = std::fs::read_to_string(&path).retryable()?;
    Ok(text.lines().count())
}

/// Not a failure: put off until there is something to do.
#[dtq::task]
async fn when_ready(#[ctx] ctx: dtq::Context) -> Result<String, TaskError> {
    let age = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)?
        .as_millis()
        .saturating_sub(u128::from(ctx.task_id().created_ms()));
    if age < 500 {
        return Err(TaskError::snooze(Duration::from_millis(300)));
    }
    Ok(format!("ready after {age} ms, still attempt {}", ctx.attempt()))
}

#[tokio::main]
async fn main() -> dtq::Result<()> {
    let client = dtq::Client::from_env()?;
    dtq::set_default_client(client.clone());
    let worker = dtq::Worker::builder().client(client.clone()).start().await?;

    println!("charge 7:        {:?}", Charge::enqueue(7).await?.result().await);
    println!("charge 0:        {}", told(Charge::enqueue(0).await?.result().await));
    println!(
        "count_lines:     {}",
        told(CountLines::enqueue("/no/such/file").await?.result().await)
    );
    println!("count_lines \"\":  {}", told(CountLines::enqueue("").await?.result().await));
    println!("when_ready:      {:?}", WhenReady::enqueue().await?.result().await);

    let letters = client.inspect().dead_letters(&Default::default(), None, 10).await?;
    println!("the newest dead letters:");
    for letter in letters.items.iter().take(3) {
        let (name, attempts, error) = (&letter.name, letter.attempts, &letter.error);
        println!("  {name} after {attempts} attempts: {}: {}", error.class, error.message);
    }
    worker.shutdown();
    worker.join().await
}

fn told<T>(result: Result<T, TaskFailure>) -> String {
    match result {
        Ok(_) => "succeeded".to_owned(),
        Err(failure) => failure.to_string(),
    }
}
