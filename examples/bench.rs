//! Measures dtq on a redis-server of its own: enqueueing, draining, idle latency, what it costs Redis.
//!
//!     cargo run --release --example bench            # 50000 tasks
//!     cargo run --release --example bench -- 200000
//!
//! The server is pinned to the first core and this program to the second, where `taskset` exists.

use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dtq::{Client, Config, Worker};

static DONE: AtomicU64 = AtomicU64::new(0);
static STARTED: Mutex<Option<Instant>> = Mutex::new(None);

#[dtq::task]
async fn nothing(to: String, n: u64) {
    drop(to);
    let _ = n;
    DONE.fetch_add(1, Ordering::Relaxed);
}

#[dtq::task(queue = "latency")]
async fn stamp() {
    if let Ok(mut started) = STARTED.lock() {
        *started = Some(Instant::now());
    }
}

/// A server of the program's own, stopped when it ends.
struct Server(Child, std::path::PathBuf);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

fn pinned(core: &str, program: &str) -> Command {
    let has_taskset = Command::new("taskset").arg("-V").stdout(Stdio::null()).status().is_ok();
    if has_taskset {
        let mut command = Command::new("taskset");
        command.args(["-c", core, program]);
        return command;
    }
    Command::new(program)
}

fn serve() -> anyhow::Result<(Server, String)> {
    let dir = std::env::temp_dir().join(format!("dtq-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let child = pinned("0", "redis-server")
        .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"])
        .arg(&dir)
        .stdout(Stdio::null())
        .spawn()?;
    let server = Server(child, dir);
    let started = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port.parse()?)).is_err() {
        anyhow::ensure!(started.elapsed() < Duration::from_secs(20), "redis-server does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = Command::new("taskset")
        .args(["-a", "-p", "-c", "1", &std::process::id().to_string()])
        .stdout(Stdio::null())
        .status();
    Ok((server, format!("redis://127.0.0.1:{port}")))
}

/// Microseconds of CPU that the server has used.
async fn cpu(raw: &mut redis::aio::MultiplexedConnection) -> anyhow::Result<f64> {
    let info: String = redis::cmd("INFO").arg("cpu").query_async(raw).await?;
    let of = |name: &str| {
        info.lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    Ok((of("used_cpu_user:") + of("used_cpu_sys:")) * 1e6)
}

async fn memory(raw: &mut redis::aio::MultiplexedConnection) -> anyhow::Result<u64> {
    let info: String = redis::cmd("INFO").arg("memory").query_async(raw).await?;
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok());
    Ok(used.unwrap_or(0))
}

fn percentile(sorted: &[Duration], p: f64) -> f64 {
    let at = ((sorted.len() as f64 - 1.0) * p).round() as usize;
    sorted[at].as_secs_f64() * 1000.0
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let tasks: u64 = std::env::args().nth(1).map_or(Ok(50_000), |n| n.parse())?;
    let (_server, url) = serve()?;
    let config = Config::builder().url(&url).max_queue_depth(10_000_000).concurrency(64).build()?;
    let client = Client::builder().config(config).build()?;
    let mut raw = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let payload = |n| Nothing { to: "user@example.com".to_owned(), n };
    client.enqueue(payload(0)).await?;

    let before = Instant::now();
    for n in 0..2000 {
        client.enqueue(payload(n)).await?;
    }
    println!("enqueue one by one: {:.0}/s", 2000.0 / before.elapsed().as_secs_f64());
    let pings = Instant::now();
    for _ in 0..2000 {
        redis::cmd("PING").query_async::<()>(&mut raw).await?;
    }
    println!("bare PING loop:     {:.0}/s", 2000.0 / pings.elapsed().as_secs_f64());

    let before = Instant::now();
    let singles = (0..64).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            for n in 0..200 {
                client.enqueue(payload(n)).await?;
            }
            Ok::<_, dtq::EnqueueError>(())
        })
    });
    for single in singles.collect::<Vec<_>>() {
        single.await??;
    }
    println!("enqueue, 64 at once: {:.0}/s", 64.0 * 200.0 / before.elapsed().as_secs_f64());

    let (cpu_before, memory_before, before) =
        (cpu(&mut raw).await?, memory(&mut raw).await?, Instant::now());
    client.enqueue_all((0..tasks).map(payload)).await?;
    let took = before.elapsed().as_secs_f64();
    let used = (cpu(&mut raw).await? - cpu_before) / tasks as f64;
    let bytes = (memory(&mut raw).await? - memory_before) / tasks;
    println!(
        "enqueue in bulk:    {:.0}/s, {used:.1} us of Redis CPU, {bytes} bytes waiting",
        tasks as f64 / took
    );

    let waiting = tasks + 2001 + 64 * 200;
    let (cpu_before, before) = (cpu(&mut raw).await?, Instant::now());
    let worker = Worker::builder().client(client.clone()).queues(["default"]).start().await?;
    while DONE.load(Ordering::Relaxed) < waiting {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let took = before.elapsed().as_secs_f64();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let used = (cpu(&mut raw).await? - cpu_before) / waiting as f64;
    println!("drain:              {:.0}/s, {used:.1} us of Redis CPU", waiting as f64 / took);
    println!(
        "finished:           {} bytes each",
        memory(&mut raw).await?.saturating_sub(memory_before) / waiting
    );
    worker.shutdown();
    worker.join().await?;

    let worker = Worker::builder().client(client.clone()).queues(["latency"]).start().await?;
    let mut waits = Vec::new();
    for _ in 0..300 {
        tokio::time::sleep(Duration::from_millis(3)).await;
        let enqueued = Instant::now();
        client.enqueue(Stamp {}).await?;
        let started = loop {
            if let Some(started) = STARTED.lock().ok().and_then(|mut started| started.take()) {
                break started;
            }
            tokio::task::yield_now().await;
        };
        waits.push(started.duration_since(enqueued));
    }
    waits.sort_unstable();
    println!(
        "idle latency:       p50 {:.2} ms, p99 {:.2} ms",
        percentile(&waits, 0.5),
        percentile(&waits, 0.99)
    );
    worker.shutdown();
    worker.join().await?;
    Ok(())
}
