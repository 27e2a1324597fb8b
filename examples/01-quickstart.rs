//! Two tasks from call to result: one succeeds at once, one fails first and is retried.
//!
//!     cargo run --example 01-quickstart
//!
//! Tasks are kept in the file `dtq.db` of this directory. With a Redis, nothing but the URL changes:
//!
//!     DTQ_URL=redis://localhost:6379 cargo run --example 01-quickstart

use std::time::Duration;

use dtq::{EventKind, TaskFailure};

#[derive(Debug, thiserror::Error)]
#[error("the mail server is busy")]
struct MailError;

/// Sends the welcome mail.
#[dtq::task(max_attempts = 5, timeout_ms = 3000, retry_on(MailError))]
async fn send_welcome(
    to: String,
    lang: Option<String>,
    #[ctx] ctx: dtq::Context,
) -> Result<String, MailError> {
    let lang = lang.unwrap_or_else(|| "en".to_owned());
    // Mail servers are busy now and then: Bob's is, the first time.
    if to.starts_with("bob") && ctx.attempt() == 1 {
        return Err(MailError);
    }
    Ok(format!("sent to {to} in {lang}"))
}

#[tokio::main]
async fn main() -> dtq::Result<()> {
    tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::ERROR).init();
    let client = dtq::Client::from_env()?;
    dtq::set_default_client(client.clone());
    tokio::spawn(tell_what_happens(client.events()));

    let ada = SendWelcome::enqueue("ada@example.com", None).await?;
    let bob = SendWelcome::enqueue("bob@example.com", Some("fr".into()))
        .priority(9)
        .delay(Duration::from_millis(500))
        .await?;
    println!("enqueued {} for ada", ada.id());
    println!("enqueued {} for bob, to start in half a second", bob.id());

    // Usually a program of its own with `dtq::run().await` in its main.
    let worker = dtq::Worker::builder().client(client).start().await?;

    for (name, handle) in [("ada", ada), ("bob", bob)] {
        match handle.result().await {
            Ok(text) => println!("result for {name}: {text}"),
            Err(TaskFailure::Failed { error, .. }) => {
                println!("{name}'s failed: {}", error.message)
            }
            Err(other) => println!("{name}'s has no result: {other}"),
        }
    }
    worker.shutdown();
    worker.join().await
}

/// Prints each step in the life of a task.
async fn tell_what_happens(mut events: dtq::Events) {
    while let Some(event) = events.next().await {
        let (attempt, more) = (event.attempt, event.metadata.and_then(|json| json.parse().ok()));
        let what = match (event.kind, more) {
            (EventKind::TaskScheduled, _) => "accepted, waits for its delay".to_owned(),
            (EventKind::TaskQueued, _) => "queued".to_owned(),
            (EventKind::TaskStarted, _) => format!("attempt {attempt} started"),
            (EventKind::TaskRetryScheduled, Some(Retry { delay_ms, error })) => {
                let (why, seconds) = (error.message, delay_ms / 1000.0);
                format!("attempt {attempt} failed ({why}), retry in {seconds:.1} s")
            }
            (EventKind::TaskRetried, _) => format!("queued again, for attempt {attempt}"),
            (EventKind::TaskSucceeded, _) => format!("attempt {attempt} succeeded"),
            _ => continue,
        };
        println!("  {} {what}", event.task_id.map(|id| id.to_string()).unwrap_or_default());
    }
}

/// What the event of a retry tells besides.
#[derive(serde::Deserialize)]
struct Retry {
    delay_ms: f64,
    error: Failure,
}

#[derive(serde::Deserialize)]
struct Failure {
    message: String,
}
