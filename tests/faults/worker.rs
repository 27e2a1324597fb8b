//! A worker process of the storm: its one task function does as its payload says, and logs what it sees.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use dtq::{Context, TaskError};
use dtq_tests::history::{self, Log, Saw};

static LOG: OnceLock<Log> = OnceLock::new();

fn log(saw: Saw) {
    if let Some(log) = LOG.get() {
        log.write(saw);
    }
}

/// Says that the future was dropped, unless it ended.
struct Witness {
    id: String,
    attempt: u32,
    ended: bool,
}

impl Drop for Witness {
    fn drop(&mut self) {
        if !self.ended {
            log(Saw::Dropped { id: self.id.clone(), attempt: self.attempt });
        }
    }
}

#[dtq::task(name = "work", timeout = "60s", backoff(base = "20ms", max = "200ms"))]
async fn work(n: u64, ms: u64, how: String, #[ctx] ctx: Context) -> Result<String, TaskError> {
    let (id, attempt) = (ctx.task_id().to_string(), ctx.attempt());
    log(Saw::Start { n, id: id.clone(), attempt });
    let mut witness = Witness { id: id.clone(), attempt, ended: false };
    tokio::time::sleep(Duration::from_millis(ms)).await;
    witness.ended = true;
    match how.as_str() {
        "abort" => {
            log(Saw::Dying { victim: std::process::id() });
            std::process::abort();
        }
        "snooze" if !snoozed(n) => {
            log(Saw::Snooze { id, attempt });
            return Err(TaskError::snooze(Duration::from_millis(50)));
        }
        "flaky" if attempt < 3 => {
            log(Saw::Fail { id, attempt, retryable: true });
            return Err(dtq::retryable!("attempt {attempt} of {n} fails"));
        }
        "fail" => {
            log(Saw::Fail { id, attempt, retryable: false });
            return Err(dtq::permanent!("{n} fails"));
        }
        _ => {}
    }
    let result = format!("{n}/{attempt}/{}", std::process::id());
    let json = format!("\"{result}\"");
    log(Saw::End { id, attempt, result: json });
    Ok(result)
}

/// Whether this process has put the task off before.
fn snoozed(n: u64) -> bool {
    static SNOOZED: std::sync::Mutex<std::collections::BTreeSet<u64>> =
        std::sync::Mutex::new(std::collections::BTreeSet::new());
    SNOOZED.lock().is_ok_and(|mut snoozed| !snoozed.insert(n))
}

/// Notes when the machine was so slow that a lease may have lapsed by it: that is not dtq's fault.
pub(crate) fn watch_for_stalls(log: &'static Log, victim: Option<u32>) {
    const NAP: Duration = Duration::from_millis(50);
    const STALL: Duration = Duration::from_millis(600);
    std::thread::spawn(move || {
        loop {
            let (from, began) = (history::now(), Instant::now());
            std::thread::sleep(NAP);
            if began.elapsed() > STALL {
                let kind = "a stall of the machine".to_owned();
                let to = history::now();
                log.write(Saw::Trouble { kind, victim, from, to, leases: true });
            }
        }
    });
}

pub(crate) async fn run(path: &std::path::Path) -> anyhow::Result<()> {
    let log = LOG.get_or_init(|| Log::open(path).expect("the log can be opened"));
    watch_for_stalls(log, Some(std::process::id()));
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .init();
    Ok(dtq::run().await?)
}
