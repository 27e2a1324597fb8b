//! A worker process for the fault tests: it can be killed, stopped and continued. What its task
//! functions see goes into an append-only log outside of the store.
//!
//!     fault-worker LOG        with DTQ_URL and the like in the environment

use std::io::Write as _;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dtq::{Context, TaskError};

static LOG: OnceLock<Mutex<std::fs::File>> = OnceLock::new();

/// One line in one write: appended whole, also when processes write at once.
fn log(what: &str, ctx: &Context) {
    let Some(file) = LOG.get() else { return };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let line = format!("{now} {} {} {what} {}\n", ctx.task_id(), ctx.attempt(), std::process::id());
    if let Ok(mut file) = file.lock() {
        let _ = file.write_all(line.as_bytes());
    }
}

/// Runs for a while; every few fail retryably the first time.
#[dtq::task(max_attempts = 10, backoff(base = "10ms", max = "100ms"))]
async fn work(n: u64, ms: u64, #[ctx] ctx: Context) -> Result<u64, TaskError> {
    log("start", &ctx);
    tokio::time::sleep(Duration::from_millis(ms)).await;
    let failed = n.is_multiple_of(7) && ctx.attempt() == 1;
    log(if failed { "fail" } else { "end" }, &ctx);
    if failed { Err(dtq::retryable!("the first attempt of {n} fails")) } else { Ok(n) }
}

/// Kills its process, each time.
#[dtq::task(max_attempts = 3)]
async fn abort(#[ctx] ctx: Context) {
    log("start", &ctx);
    std::process::abort();
}

/// Blocks its thread.
#[dtq::task(max_attempts = 3, timeout_ms = 60000)]
async fn block(ms: u64, #[ctx] ctx: Context) -> u64 {
    log("start", &ctx);
    std::thread::sleep(Duration::from_millis(ms));
    log("end", &ctx);
    ms
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> dtq::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "fault-worker.log".to_owned());
    let file = std::fs::OpenOptions::new().append(true).create(true).open(&path);
    let Ok(file) = file else {
        eprintln!("fault-worker: {path} cannot be opened");
        std::process::exit(2);
    };
    let _ = LOG.set(Mutex::new(file));
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .init();
    dtq::run().await
}
