//! The storm: a producer and workers on one store, and everything that may go wrong with them, for as long as
//! one likes. What they saw goes into a log outside of the store; in the end a checker decides from that and
//! from the store's final state whether the invariants of SPEC 12 held.
//!
//!     storm --seconds 60                       # every trouble that Redis and its workers can have
//!     storm --store sqlite --seconds 60
//!     storm --seconds 10 --trouble stop --trouble kill --seed 7
//!
//! Ends with 0 if everything held, with 1 and the violations if not. It prints what it did as a table.

mod producer;
mod trouble;
mod worker;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum as _};
use dtq::{Client, RawTask, TaskId};
use dtq_tests::history::{Final, History, Log, Saw};
use dtq_tests::{Proxy, RedisServer, SqliteFile};

use self::producer::Producer;
use self::trouble::{Trouble, signal};

/// A storm.
#[derive(Parser, Debug, Clone)]
struct Settings {
    /// How long it lasts.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// `redis` or `sqlite`.
    #[arg(long, default_value = "redis", value_parser = ["redis", "sqlite"])]
    store: String,
    /// Only these troubles; all that the store can have, if none is named.
    #[arg(long, value_enum)]
    trouble: Vec<Trouble>,
    /// What the order of troubles and tasks comes from; a random one, if none is given.
    #[arg(long)]
    seed: Option<u64>,
    /// Milliseconds from one trouble to the next, on average.
    #[arg(long, default_value_t = 400)]
    every: u64,
    /// Tasks a second.
    #[arg(long, default_value_t = 200)]
    rate: u64,
    /// Of a thousand tasks so many take about as long as a lease is good for.
    #[arg(long, default_value_t = 20)]
    slow: u32,
    /// Worker processes.
    #[arg(long, default_value_t = 3)]
    workers: usize,
    /// For how long a lease is good, such as 2s.
    #[arg(long, default_value = "2", value_parser = seconds)]
    visibility: Duration,
    /// How long it may take in the end until nothing is left to be done, in seconds.
    #[arg(long, default_value_t = 60)]
    settle: u64,
    /// Keeps the log there.
    #[arg(long)]
    log: Option<PathBuf>,
    /// A worker process of a storm, which logs into that file.
    #[arg(long, hide = true)]
    work: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.trim_end_matches('s').parse().map_err(|e| format!("{e}"))?;
    Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())
}

/// Where the tasks are.
enum Place {
    Redis(RedisServer),
    Sqlite(SqliteFile),
}

impl Place {
    fn server(&mut self) -> Option<&mut RedisServer> {
        match self {
            Self::Redis(server) => Some(server),
            Self::Sqlite(_) => None,
        }
    }

    fn file(&self) -> Option<PathBuf> {
        match self {
            Self::Redis(_) => None,
            Self::Sqlite(file) => Some(file.dir().join("dtq.db")),
        }
    }

    fn dir(&self) -> &std::path::Path {
        match self {
            Self::Redis(server) => server.dir(),
            Self::Sqlite(file) => file.dir(),
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::Sqlite(file) => file.url(),
        }
    }
}

/// A worker process, and what is between it and the server.
struct Worker {
    child: Child,
    proxy: Option<Proxy>,
}

impl Worker {
    fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("only on Redis")
    }
}

struct Storm {
    settings: Settings,
    place: Place,
    producers_proxy: Option<Proxy>,
    producer: Arc<Producer>,
    log_path: PathBuf,
    log: &'static Log,
    workers: Vec<Worker>,
    /// Those who have been told to shut down.
    leaving: Vec<Worker>,
    random: fastrand::Rng,
}

impl Drop for Storm {
    fn drop(&mut self) {
        for worker in self.workers.iter_mut().chain(&mut self.leaving) {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}

impl Storm {
    async fn begin(settings: Settings, seed: u64) -> anyhow::Result<Self> {
        let place = match settings.store.as_str() {
            "redis" => Place::Redis(RedisServer::start_with(&[
                "--save",
                "",
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
            ])),
            _ => Place::Sqlite(SqliteFile::start()),
        };
        let log_path = settings.log.clone().unwrap_or_else(|| place.dir().join("storm.log"));
        let log: &'static Log = Box::leak(Box::new(Log::open(&log_path)?));
        let proxy = between(&place).await;
        let url = proxy.as_ref().map_or_else(|| place.url(), Proxy::url);
        let producer = Arc::new(Producer {
            client: client(&url),
            log,
            next: 1.into(),
            stop: false.into(),
            visibility: settings.visibility,
            slow: settings.slow,
        });
        let mut storm = Self {
            producers_proxy: proxy,
            producer,
            log_path,
            log,
            workers: Vec::new(),
            leaving: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            place,
            settings,
        };
        for at in 0..storm.settings.workers {
            let worker = storm.spawn(at).await;
            storm.workers.push(worker);
        }
        Ok(storm)
    }

    /// Workers of one fleet may have different visibility timeouts: every other one has twice as much.
    async fn spawn(&self, at: usize) -> Worker {
        let proxy = between(&self.place).await;
        let url = proxy.as_ref().map_or_else(|| self.place.url(), Proxy::url);
        let visibility = self.settings.visibility * if at % 2 == 1 { 2 } else { 1 };
        let errors = self.place.dir().join("stderr.log");
        let errors = std::fs::File::options().append(true).create(true).open(errors);
        let child = Command::new(std::env::current_exe().expect("this program is somewhere"))
            .arg("--work")
            .arg(&self.log_path)
            .env("DTQ_URL", url)
            .env("DTQ_VISIBILITY_TIMEOUT_S", visibility.as_secs_f64().to_string())
            .env("DTQ_WORKER_CONCURRENCY", "16")
            .env("DTQ_DRAIN_TIMEOUT_S", if at % 2 == 1 { "8" } else { "0.3" })
            .stdout(Stdio::null())
            .stderr(errors.map_or_else(|_| Stdio::null(), Stdio::from))
            .spawn()
            .expect("a worker starts");
        Worker { child, proxy }
    }

    fn end(&mut self, at: usize) {
        let child = &mut self.workers[at].child;
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Replaces workers that have died of their task, and forgets those that have left.
    async fn look_after(&mut self) {
        for at in 0..self.workers.len() {
            if !matches!(self.workers[at].child.try_wait(), Ok(None)) {
                self.workers[at] = self.spawn(at).await;
            }
        }
        self.leaving.retain_mut(|worker| matches!(worker.child.try_wait(), Ok(None)));
    }

    /// Waits until nothing is left to be done; answers what is, if that takes too long.
    async fn settle(&mut self, client: &Client) -> anyhow::Result<Vec<String>> {
        let began = Instant::now();
        loop {
            self.look_after().await;
            let mut left = Vec::new();
            for queue in client.inspect().queues().await? {
                if queue.depth + queue.running + queue.scheduled > 0 {
                    left.push(format!(
                        "queue {}: {} entries, {} running, {} scheduled",
                        queue.name, queue.depth, queue.running, queue.scheduled
                    ));
                }
            }
            if left.is_empty() || began.elapsed() > Duration::from_secs(self.settings.settle) {
                return Ok(left);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What SPEC 5 bounds by what is live, now that nothing is.
    async fn keys_left(&mut self) -> Vec<String> {
        let Some(server) = self.place.server() else { return Vec::new() };
        let mut raw = server.raw().await;
        let mut left = Vec::new();
        for key in ["dtq:leases", "dtq:retry:schedule", "dtq:retry:claimed"] {
            let members: i64 = raw.run(&["ZCARD", key]).await;
            if members > 0 {
                left.push(format!("{key} has {members} members"));
            }
        }
        left
    }

    async fn history(&mut self, client: &Client) -> anyhow::Result<History> {
        let mut left = self.settle(client).await?;
        left.extend(self.keys_left().await);
        let lines = self.log.read();
        let mut finals = BTreeMap::new();
        for line in &lines {
            if let Saw::Accepted { id, .. } = &line.saw {
                finals.insert(id.clone(), ending(client, id).await?);
            }
        }
        // The longest that a lease of this fleet is good for.
        let visibility = self.settings.visibility * 2;
        Ok(History { lines, finals, left, visibility })
    }
}

/// A proxy before the server.
async fn between(place: &Place) -> Option<Proxy> {
    match place {
        Place::Redis(server) => Some(Proxy::before(server.port()).await),
        Place::Sqlite(_) => None,
    }
}

fn client(url: &str) -> Client {
    dtq_tests::client(dtq::Config::builder().url(url).max_queue_depth(1_000_000))
}

async fn ending(client: &Client, id: &str) -> anyhow::Result<Final> {
    let task_id: TaskId = id.parse()?;
    let Some(info) = client.inspect().task(task_id).await? else {
        let (attempt, class, result) = (0, None, None);
        return Ok(Final {
            status: None,
            attempt,
            class,
            started_and_expires_ms: (None, None),
            finished_ms: None,
            result,
        });
    };
    let result = match info.status {
        dtq::Status::Succeeded => {
            let json =
                client.handle::<RawTask>(task_id).result_within(Duration::from_secs(5)).await;
            json.ok().map(|json| json.as_str().to_owned())
        }
        _ => None,
    };
    Ok(Final {
        status: Some(info.status),
        attempt: info.attempt,
        class: info.last_error.map(|error| error.info.class),
        started_and_expires_ms: (info.started_ms, info.expires_ms),
        finished_ms: info.finished_ms,
        result,
    })
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<ExitCode> {
    let settings = Settings::parse();
    if let Some(log) = &settings.work {
        worker::run(log).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let seed = settings.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}");
    let mut storm = Storm::begin(settings.clone(), seed).await?;
    worker::watch_for_stalls(storm.log, None);
    let events = tokio::spawn(listen(client(&storm.place.url()), storm.log));
    let tasks = fastrand::Rng::with_seed(storm.random.u64(..));
    let producing = tokio::spawn(Arc::clone(&storm.producer).run(settings.rate, tasks));
    let redis = matches!(storm.place, Place::Redis(_));
    let mut troubles = settings.trouble.clone();
    if troubles.is_empty() {
        troubles = Trouble::value_variants().to_vec();
        troubles.retain(|trouble| trouble.fits(redis));
    }
    if let Some(trouble) = troubles.iter().find(|trouble| !trouble.fits(redis)) {
        anyhow::bail!("{trouble:?} is no trouble that {} can have", settings.store);
    }
    let until = Instant::now() + Duration::from_secs(settings.seconds);
    while Instant::now() < until {
        let pause = storm.random.u64(settings.every / 2..settings.every * 3 / 2 + 1);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let trouble = troubles[storm.random.usize(0..troubles.len())];
        storm.make(trouble).await;
        storm.look_after().await;
    }
    storm.producer.stop.store(true, Ordering::Relaxed);
    producing.await?;
    let client = client(&storm.place.url());
    let history = storm.history(&client).await?;
    events.abort();
    for worker in &storm.workers {
        signal(worker.child.id(), "TERM");
    }
    report(&history);
    let violations = history.check();
    for violation in violations.iter().take(20) {
        println!("VIOLATION {violation}");
    }
    println!("{} violations", violations.len());
    Ok(if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn listen(client: Client, log: &'static Log) {
    let mut events = client.events();
    while let Some(event) = events.next().await {
        if let Some(id) = event.task_id {
            log.write(Saw::Event { kind: event.kind.to_string(), id: id.to_string() });
        }
    }
}

fn report(history: &History) {
    println!("| trouble | times |\n| --- | ---: |");
    for (kind, times) in history.troubles() {
        println!("| {kind} | {times} |");
    }
    let mut endings: BTreeMap<String, usize> = BTreeMap::new();
    for end in history.finals.values() {
        let status = end.status.map_or_else(|| "lost".to_owned(), |status| status.to_string());
        *endings.entry(status).or_default() += 1;
    }
    println!(
        "\n{} tasks accepted, {} executions, {endings:?}, longest recovery {:.1} s",
        history.accepted(),
        history.executions(),
        history.longest_recovery().as_secs_f64()
    );
}
