//! What a task costs beside 10^3 to 10^6 others that wait, are scheduled, have ended; among a thousand queues
//! and a hundred workers; how fast ten thousand start that become due at once; what a task in flight weighs.
//!
//! The cost is the CPU time of the store: of the redis-server, or of this process for a file.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use dtq::{Client, Config, Worker};

use super::server::Place;
use super::{DONE, Nothing, Settings, StoreKind};

/// Tasks whose cost is measured.
const SAMPLE: u64 = 20_000;

static WOKEN: AtomicU64 = AtomicU64::new(0);

/// Counts, then stays in flight.
#[dtq::task(queue = "flight", timeout = "10m")]
async fn stays(ms: u64) {
    WOKEN.fetch_add(1, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

fn task(n: u64) -> Nothing {
    Nothing { to: "user@example.com".to_owned(), n, padding: String::new() }
}

async fn open(settings: &Settings, concurrency: usize) -> anyhow::Result<(Place, Client)> {
    let place = Place::open(settings).await?;
    let config = Config::builder()
        .url(place.url())
        .max_queue_depth(10_000_000)
        .max_scheduled(10_000_000)
        .concurrency(concurrency)
        .build()?;
    let client = Client::builder().config(config).build()?;
    client.enqueue(task(0)).queue("warm").await?;
    Ok((place, client))
}

/// Runs until so many tasks are done.
async fn drain(client: &Client, queues: &[String], tasks: u64) -> anyhow::Result<()> {
    DONE.store(0, Ordering::Relaxed);
    let worker = Worker::builder().client(client.clone()).queues(queues.to_vec()).start().await?;
    while DONE.load(Ordering::Relaxed) < tasks {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    worker.shutdown();
    Ok(worker.join().await?)
}

/// Microseconds of the store for a task that is enqueued in bulk, and for one that is run.
async fn sample(
    place: &mut Place,
    client: &Client,
    queues: &[String],
) -> anyhow::Result<(f64, f64)> {
    let cost = place.cost().await?;
    client.enqueue_all((0..SAMPLE).map(task)).await?;
    let enqueue = place.cost().await?.each(&cost, SAMPLE as f64);
    let cost = place.cost().await?;
    drain(client, queues, SAMPLE).await?;
    // What was handed back at the shutdown was not run, and costs little.
    let run = place.cost().await?.each(&cost, DONE.load(Ordering::Relaxed) as f64);
    Ok((enqueue, run))
}

fn default_queue() -> Vec<String> {
    vec!["default".to_owned()]
}

pub(crate) async fn show(settings: &Settings) -> anyhow::Result<()> {
    // First, while the process is small: memory once taken is not given back to the system.
    in_flight(settings).await?;
    let biggest = settings.tasks.max(1000);
    let sizes: Vec<u64> =
        [1000, 10_000, 100_000, 1_000_000].into_iter().filter(|n| *n <= biggest).collect();
    println!(
        "| beside | enqueue in bulk: us a task | fetch and finish: us a task |\n| --- | ---: | ---: |"
    );
    let row =
        |what: &str, (enqueue, run): (f64, f64)| println!("| {what} | {enqueue:.2} | {run:.2} |");
    for &n in &sizes {
        let (mut place, client) = open(settings, settings.concurrency).await?;
        client.enqueue_all((0..n).map(task)).await?;
        row(&format!("{n} waiting"), sample(&mut place, &client, &default_queue()).await?);
    }
    for &n in &sizes {
        let (mut place, client) = open(settings, settings.concurrency).await?;
        let hour = Duration::from_secs(3600);
        client.enqueue_all((0..n).map(|n| client.enqueue(task(n)).delay(hour))).await?;
        row(&format!("{n} scheduled"), sample(&mut place, &client, &default_queue()).await?);
    }
    for &n in &sizes {
        let (mut place, client) = open(settings, settings.concurrency).await?;
        client.enqueue_all((0..n).map(task)).await?;
        drain(&client, &default_queue(), n).await?;
        row(
            &format!("{n} finished and retained"),
            sample(&mut place, &client, &default_queue()).await?,
        );
    }
    for queues in [1, 1000] {
        let (mut place, client) = open(settings, settings.concurrency).await?;
        let names: Vec<String> =
            (1..queues).map(|n| format!("queue-{n}")).chain(default_queue()).collect();
        for name in &names {
            client.enqueue(task(0)).queue(name).await?;
        }
        drain(&client, &names, names.len() as u64).await?;
        row(
            &format!("{queues} queues, all but one empty"),
            sample(&mut place, &client, &names).await?,
        );
    }
    for workers in [1, 100] {
        let (mut place, client) = open(settings, settings.concurrency).await?;
        let mut idle = Vec::new();
        for _ in 1..workers {
            // A connection of its own each, as a process of its own has.
            let client = Client::connect(place.url())?;
            idle.push(Worker::builder().client(client).queues(["elsewhere"]).start().await?);
        }
        row(&format!("{workers} workers"), sample(&mut place, &client, &default_queue()).await?);
        for worker in idle {
            worker.shutdown();
            worker.join().await?;
        }
    }
    due_at_once(settings).await
}

async fn due_at_once(settings: &Settings) -> anyhow::Result<()> {
    let (_place, client) = open(settings, settings.concurrency).await?;
    let worker = Worker::builder().client(client.clone()).queues(["default"]).start().await?;
    let at = SystemTime::now() + Duration::from_secs(3);
    client.enqueue_all((0..10_000).map(|n| client.enqueue(task(n)).at(at))).await?;
    DONE.store(0, Ordering::Relaxed);
    tokio::time::sleep(at.duration_since(SystemTime::now()).unwrap_or_default()).await;
    let due = Instant::now();
    while DONE.load(Ordering::Relaxed) < 10_000 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!(
        "\n10000 tasks due at one moment: all done {:.2} s after it",
        due.elapsed().as_secs_f64()
    );
    worker.shutdown();
    Ok(worker.join().await?)
}

async fn in_flight(settings: &Settings) -> anyhow::Result<()> {
    let (_place, client) = open(settings, 10_000).await?;
    let worker = Worker::builder().client(client.clone()).queues(["flight"]).start().await?;
    let run = async |n: u64| -> anyhow::Result<f64> {
        WOKEN.store(0, Ordering::Relaxed);
        client.enqueue_all((0..n).map(|_| Stays { ms: 3000 })).await?;
        while WOKEN.load(Ordering::Relaxed) < n {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let bytes = resident()?;
        tokio::time::sleep(Duration::from_millis(4000)).await;
        Ok(bytes)
    };
    // What the first tasks of a process bring along is not the weight of a task.
    let few = run(100).await?;
    let many = run(10_000).await?;
    println!("10000 tasks in flight: {:.2} KiB each", (many - few) / 9900.0 / 1024.0);
    worker.shutdown();
    worker.join().await?;
    if settings.store == StoreKind::Redis {
        println!("(the tasks' own futures, a timer each, included)");
    }
    Ok(())
}

/// Bytes of this process in memory.
fn resident() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    Ok(kib.unwrap_or("0").trim().parse::<f64>()? * 1024.0)
}
