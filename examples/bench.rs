//! Measures dtq: enqueueing, draining, idle latency, memory, and what it costs the store.
//!
//!     cargo run --release --example bench                              # Redis, a server of its own
//!     cargo run --release --example bench -- --store sqlite            # a file in a temporary directory
//!     cargo run --release --example bench -- --aof always --tasks 20000 --json figures.json
//!     cargo run --release --example bench -- --table durability        # what each guarantee costs
//!     cargo run --release --example bench -- --table growth            # what a task costs among 10^3 to 10^6
//!
//! The redis-server is pinned to the first core and this program to the second, where `taskset` exists.
//! Every figure is the median of `--runs` runs; the bare PING loop beside them tells what the machine does.

#[path = "bench/durability.rs"]
mod durability;
#[path = "bench/figures.rs"]
mod figures;
#[path = "bench/growth.rs"]
mod growth;
#[path = "bench/idle.rs"]
mod idle;
#[path = "bench/server.rs"]
mod server;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use dtq::{Client, Config, Worker};

use self::figures::Figures;
use self::server::{Aof, Place};

/// Measures dtq on a store of its own.
#[derive(Parser, Debug, Clone)]
struct Settings {
    /// What is measured.
    #[arg(long, value_enum, default_value = "speed")]
    table: Table,
    /// Where the tasks live.
    #[arg(long, value_enum, default_value = "redis")]
    store: StoreKind,
    /// Tasks enqueued in bulk and drained.
    #[arg(long, default_value_t = 100_000)]
    tasks: u64,
    /// Runs; the medians are shown.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Tasks that the worker runs at once.
    #[arg(long, default_value_t = 64)]
    concurrency: usize,
    /// Bytes of padding in the payload, beyond {"to":"user@example.com","n":123}.
    #[arg(long, default_value_t = 0)]
    padding: usize,
    /// What Redis writes to disk.
    #[arg(long, value_enum, default_value = "off")]
    aof: Aof,
    /// Lifecycle events: not published, published to nobody, or to a subscriber.
    #[arg(long, value_enum, default_value = "on")]
    events: Events,
    /// What SQLite waits for: nothing (NORMAL) or the disk (FULL).
    #[arg(long, default_value = "normal")]
    synchronous: String,
    /// Writes the figures of every run to a file as JSON.
    #[arg(long)]
    json: Option<std::path::PathBuf>,
    /// Only runs a worker on the store of this URL: the other process of the idle latency.
    #[arg(long, hide = true)]
    work_on: Option<String>,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq)]
enum Table {
    Speed,
    Durability,
    Growth,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq)]
enum StoreKind {
    Redis,
    Sqlite,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq)]
enum Events {
    Off,
    On,
    Subscribed,
}

static DONE: AtomicU64 = AtomicU64::new(0);
#[dtq::task]
async fn nothing(
    to: String,
    n: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")] padding: String,
) {
    drop((to, n, padding));
    DONE.fetch_add(1, Ordering::Relaxed);
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let settings = Settings::parse();
    if let Some(url) = &settings.work_on {
        return idle::work(url).await;
    }
    println!("{}", server::machine(&settings)?);
    match settings.table {
        Table::Speed => {}
        Table::Durability => return durability::show(&settings).await,
        Table::Growth => return growth::show(&settings).await,
    }
    let mut runs = Vec::new();
    for _ in 0..settings.runs {
        runs.push(measure(&settings).await?);
    }
    print!("{}", Figures::medians(&runs).table());
    if let Some(path) = &settings.json {
        std::fs::write(path, serde_json::to_vec_pretty(&runs)?)?;
    }
    Ok(())
}

async fn measure(settings: &Settings) -> anyhow::Result<Figures> {
    let mut place = Place::open(settings).await?;
    let config = Config::builder()
        .url(place.url())
        .events(settings.events != Events::Off)
        .max_queue_depth(10_000_000)
        .concurrency(settings.concurrency)
        .build()?;
    let client = Client::builder().config(config).build()?;
    let events = match settings.events {
        Events::Subscribed => Some(client.events()),
        _ => None,
    };
    let listening = events
        .map(|mut events| tokio::spawn(async move { while events.next().await.is_some() {} }));
    let padding = "x".repeat(settings.padding);
    let payload = |n| Nothing { to: "user@example.com".to_owned(), n, padding: padding.clone() };
    let mut figures = Figures::default();
    let empty = place.bytes().await?;
    client.enqueue(payload(0)).await?;

    // A large payload would make this a measure of the disk or the network alone.
    let singles = 2000.min(settings.tasks);
    let (cost, before) = (place.cost().await?, Instant::now());
    for n in 0..singles {
        client.enqueue(payload(n)).await?;
    }
    figures.set("enqueue one by one /s", singles as f64 / before.elapsed().as_secs_f64());
    place.cost().await?.since(&cost, singles as f64, "enqueue one by one", &mut figures);
    if let Some(rate) = place.ping(2000).await? {
        figures.set("bare PING loop /s", rate);
    }

    let each = (settings.tasks / 64).clamp(1, 300);
    let before = Instant::now();
    let at_once = (0..64).map(|_| {
        let (client, padding) = (client.clone(), padding.clone());
        tokio::spawn(async move {
            for n in 0..each {
                let to = "user@example.com".to_owned();
                client.enqueue(Nothing { to, n, padding: padding.clone() }).await?;
            }
            Ok::<_, dtq::EnqueueError>(())
        })
    });
    for enqueueing in at_once.collect::<Vec<_>>() {
        enqueueing.await??;
    }
    figures.set("enqueue, 64 at once /s", (64 * each) as f64 / before.elapsed().as_secs_f64());

    let tasks = settings.tasks as f64;
    let (cost, bytes, before) = (place.cost().await?, place.bytes().await?, Instant::now());
    client.enqueue_all((0..settings.tasks).map(payload)).await?;
    figures.set("enqueue in bulk /s", tasks / before.elapsed().as_secs_f64());
    place.cost().await?.since(&cost, tasks, "enqueue in bulk", &mut figures);
    figures.set("bytes a waiting task", (place.bytes().await? - bytes) / tasks);

    let waiting = settings.tasks + singles + 1 + 64 * each;
    DONE.store(0, Ordering::Relaxed);
    let (cost, before) = (place.cost().await?, Instant::now());
    let worker = Worker::builder().client(client.clone()).queues(["default"]).start().await?;
    while DONE.load(Ordering::Relaxed) < waiting {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    figures.set("drain /s", waiting as f64 / before.elapsed().as_secs_f64());
    // The last outcomes are on their way.
    worker.shutdown();
    worker.join().await?;
    place.cost().await?.since(&cost, waiting as f64, "drain", &mut figures);
    figures.set("bytes a finished task", (place.bytes().await? - empty) / waiting as f64);

    idle::measure(&client, &mut place, &mut figures).await?;
    if let Some(listening) = listening {
        listening.abort();
    }
    Ok(figures)
}
