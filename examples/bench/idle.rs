//! What an idle worker costs, and how soon it starts a task: in this process, and in another.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dtq::{Client, Worker};

use super::figures::{Figures, percentile};
use super::server::Place;

/// Answers when it was started, in microseconds since the Unix epoch.
#[dtq::task(queue = "latency")]
async fn stamp() -> u64 {
    micros()
}

/// The same for another process.
#[dtq::task(queue = "other-process")]
async fn stamp_there() -> u64 {
    micros()
}

fn micros() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

/// The other process: until it is killed.
pub(crate) async fn work(url: &str) -> anyhow::Result<()> {
    let client = Client::connect(url)?;
    let worker = Worker::builder().client(client).queues(["other-process"]).start().await?;
    Ok(worker.join().await?)
}

pub(crate) async fn measure(
    client: &Client,
    place: &mut Place,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let worker = Worker::builder().client(client.clone()).queues(["latency"]).start().await?;
    client.enqueue(Stamp {}).await?.result().await?;
    let (cost, before) = (place.cost().await?, Instant::now());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let seconds = before.elapsed().as_secs_f64();
    place.cost().await?.idle(&cost, seconds, figures);
    latency("", figures, async || {
        let enqueued = micros();
        Ok((enqueued, client.enqueue(Stamp {}).await?.result().await?))
    })
    .await?;
    worker.shutdown();
    worker.join().await?;

    let mut other = Command::new(std::env::current_exe()?)
        .args(["--work-on", place.url()])
        .stdout(Stdio::null())
        .spawn()?;
    client.enqueue(StampThere {}).await?.result().await?;
    let measured = latency(", two processes", figures, async || {
        let enqueued = micros();
        Ok((enqueued, client.enqueue(StampThere {}).await?.result().await?))
    })
    .await;
    other.kill()?;
    other.wait()?;
    measured
}

async fn latency(
    what: &str,
    figures: &mut Figures,
    mut once: impl AsyncFnMut() -> anyhow::Result<(u64, u64)>,
) -> anyhow::Result<()> {
    let mut waits = Vec::new();
    for _ in 0..500 {
        tokio::time::sleep(Duration::from_millis(3)).await;
        let (enqueued, started) = once().await?;
        waits.push(started.saturating_sub(enqueued) as f64 / 1000.0);
    }
    waits.sort_unstable_by(f64::total_cmp);
    figures.set(&format!("idle latency{what} p50 ms"), percentile(&waits, 0.5));
    figures.set(&format!("idle latency{what} p99 ms"), percentile(&waits, 0.99));
    Ok(())
}
