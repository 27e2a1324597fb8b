//! Workers that shut down, or whose runtime is blocked or ends: what they hold goes on elsewhere.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dtq::{Client, Handle, Status, Task, TaskFailure, Worker, WorkerHandle};
use dtq_tests::{PATIENCE, client, config, until};

use super::Server;

static RAN: Mutex<Option<HashMap<String, usize>>> = Mutex::new(None);

pub(super) fn note(label: &str) {
    let mut ran = RAN.lock().unwrap_or_else(PoisonError::into_inner);
    *ran.get_or_insert_default().entry(label.to_owned()).or_default() += 1;
}

pub(super) fn ran(label: &str) -> usize {
    let mut ran = RAN.lock().unwrap_or_else(PoisonError::into_inner);
    ran.get_or_insert_default().get(label).copied().unwrap_or_default()
}

pub(super) fn unique(label: &str) -> String {
    format!("{label}-{:x}", fastrand::u64(..))
}

/// Tells when it begins and when it is dropped unfinished.
#[dtq::task(timeout_ms = 60000)]
pub(super) async fn take(label: String, ms: u64) {
    struct Unfinished(String);
    impl Drop for Unfinished {
        fn drop(&mut self) {
            note(&format!("{} dropped", self.0));
        }
    }
    note(&label);
    let unfinished = Unfinished(label);
    tokio::time::sleep(Duration::from_millis(ms)).await;
    std::mem::forget(unfinished);
}

/// Blocks whatever thread it runs on.
#[dtq::task(timeout_ms = 60000)]
async fn block_the_runtime(label: String, ms: u64) {
    note(&label);
    std::thread::sleep(Duration::from_millis(ms));
}

#[dtq::task(timeout_ms = 60000)]
fn block_a_thread(label: String, ms: u64) {
    note(&label);
    std::thread::sleep(Duration::from_millis(ms));
}

/// Runs on until it is told to stop, and then succeeds or fails as it was told.
#[dtq::task(timeout_ms = 60000)]
fn until_cancelled(
    label: String,
    succeeds: bool,
    #[ctx] ctx: dtq::Context,
) -> Result<u32, dtq::TaskError> {
    note(&label);
    while !ctx.is_cancelled() {
        std::thread::sleep(Duration::from_millis(1));
    }
    if succeeds { Ok(7) } else { Err(dtq::retryable!("stopped")) }
}

pub(super) async fn attempt_and_status<T: Task>(
    client: &Client,
    handle: &Handle<T>,
) -> (u32, Status) {
    let info = client.inspect().task(handle.id()).await.unwrap().unwrap();
    (info.attempt, info.status)
}

/// A worker on a current-thread runtime of its own, which it may block, and which may end.
struct Apart {
    worker: WorkerHandle,
    /// The runtime stands still.
    rest: tokio::sync::oneshot::Sender<()>,
    /// It ends.
    end: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Apart {
    async fn start(client: &Client) -> Self {
        let client = client.clone();
        let (started, starts) = tokio::sync::oneshot::channel();
        let (rest, rests) = tokio::sync::oneshot::channel();
        let (end, ends) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let worker = Worker::builder().client(client).start().await.unwrap();
                let _ = started.send(worker);
                let _ = rests.await;
            });
            let _ = ends.recv();
        });
        Self { worker: starts.await.unwrap(), rest, end, thread }
    }

    /// Waits until the runtime has ended.
    fn end(self) {
        drop((self.rest, self.end));
        self.thread.join().unwrap();
    }
}

#[tokio::test]
async fn spec_7_8_what_runs_is_waited_for_the_rest_given_back_and_nothing_new_begun() {
    let server = Server::start();
    let client = client(config(&server.url()).drain_timeout(Duration::from_millis(800)));
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    let (short, long, new) = (unique("short"), unique("long"), unique("new"));
    let ends = Take::enqueue(short.clone(), 300).on(&client).await.unwrap();
    let lasts = Take::enqueue(long.clone(), 60_000).on(&client).await.unwrap();
    until("both run", async || ran(&short) + ran(&long) == 2).await;
    worker.shutdown();
    let waits = Take::enqueue(new.clone(), 0).on(&client).await.unwrap();
    worker.join().await.unwrap();
    assert_eq!(attempt_and_status(&client, &ends).await, (1, Status::Succeeded));
    assert_eq!(attempt_and_status(&client, &lasts).await, (1, Status::Queued), "1.3: released");
    assert_eq!((ran(&format!("{short} dropped")), ran(&format!("{long} dropped"))), (0, 1));
    assert_eq!(attempt_and_status(&client, &waits).await, (1, Status::Queued));
    assert_eq!(ran(&new), 0);
    assert!(client.inspect().workers().await.unwrap().is_empty(), "it signed off");
}

#[tokio::test]
async fn spec_7_8_a_blocking_body_is_not_waited_for_and_its_lease_lapses() {
    let server = Server::start();
    let client = client(
        config(&server.url())
            .drain_timeout(Duration::from_millis(200))
            .visibility_timeout(Duration::from_millis(900)),
    );
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    let label = unique("blocking");
    let handle = BlockAThread::enqueue(label.clone(), 6000).on(&client).await.unwrap();
    until("it runs", async || ran(&label) == 1).await;
    worker.shutdown();
    let asked = Instant::now();
    worker.join().await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
    let peer = Worker::builder().client(client.clone()).start().await.unwrap();
    until("it is redelivered", async || ran(&label) == 2).await;
    assert_eq!(attempt_and_status(&client, &handle).await.0, 2);
    peer.shutdown();
}

#[tokio::test]
async fn c20_a_task_that_was_fetched_and_not_begun_is_cancelled_while_its_runtime_is_blocked() {
    let server = Server::start();
    let client = client(config(&server.url()).visibility_timeout(Duration::from_secs(30)));
    let apart = Apart::start(&client).await;
    let (blocks, behind) = (unique("blocks"), unique("behind"));
    let blocking = BlockTheRuntime::enqueue(blocks.clone(), 3000).on(&client).await.unwrap();
    until("the runtime is blocked", async || ran(&blocks) == 1).await;
    let handle = Take::enqueue(behind.clone(), 0).on(&client).await.unwrap();
    let fetched = async || handle.status().await.unwrap() == Status::Running;
    until("it is fetched", fetched).await;
    assert_eq!(handle.cancel().await.unwrap(), dtq::Cancelled::Requested);
    let asked = Instant::now();
    let result = handle.result_within(PATIENCE).await;
    assert!(matches!(result, Err(TaskFailure::Cancelled)), "{result:?}");
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert_eq!(blocking.status().await.unwrap(), Status::Running, "the runtime is still blocked");
    blocking.result_within(PATIENCE).await.unwrap();
    assert_eq!(ran(&behind), 0, "it never ran");
    apart.end();
}

#[tokio::test]
async fn spec_7_8_what_has_not_begun_is_given_back_also_when_its_runtime_is_blocked() {
    let server = Server::start();
    let client = client(
        config(&server.url())
            .visibility_timeout(Duration::from_secs(30))
            .drain_timeout(Duration::from_millis(100)),
    );
    let apart = Apart::start(&client).await;
    let (blocks, behind) = (unique("blocks"), unique("behind"));
    let _blocking = BlockTheRuntime::enqueue(blocks.clone(), 4000).on(&client).await.unwrap();
    until("the runtime is blocked", async || ran(&blocks) == 1).await;
    let handle = Take::enqueue(behind.clone(), 0).on(&client).await.unwrap();
    let status = async || handle.status().await.unwrap();
    until("it is fetched", async || status().await == Status::Running).await;
    apart.worker.shutdown();
    apart.worker.clone().join().await.unwrap();
    assert_eq!(attempt_and_status(&client, &handle).await, (1, Status::Queued));
    apart.end();
    assert_eq!(ran(&behind), 0);
}

#[tokio::test]
async fn h10_what_a_runtime_holds_when_it_ends_is_given_back_begun_or_not() {
    let server = Server::start();
    let client = client(config(&server.url()).visibility_timeout(Duration::from_secs(60)));
    let apart = Apart::start(&client).await;
    let (runs, behind) = (unique("runs"), unique("behind"));
    let running = Take::enqueue(runs.clone(), 60_000).on(&client).await.unwrap();
    until("it runs", async || ran(&runs) == 1).await;
    apart.rest.send(()).unwrap();
    let mut held = vec![running];
    for _ in 0..4 {
        held.push(Take::enqueue(behind.clone(), 60_000).on(&client).await.unwrap());
    }
    let status = async |handle: &Handle<Take>| handle.status().await.unwrap();
    until("the last is fetched", async || status(&held[4]).await == Status::Running).await;
    drop(apart.end);
    apart.thread.join().unwrap();
    apart.worker.join().await.unwrap();
    for handle in &held {
        assert_eq!(attempt_and_status(&client, handle).await, (1, Status::Queued));
    }
    assert_eq!((ran(&format!("{runs} dropped")), ran(&behind)), (1, 0));
}

#[tokio::test]
async fn spec_7_10_after_a_cancel_success_stays_success_and_failure_becomes_cancelled() {
    let server = Server::start();
    let client = client(config(&server.url()));
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    for succeeds in [true, false] {
        let label = unique("cancelled");
        let handle = UntilCancelled::enqueue(label.clone(), succeeds).on(&client).await.unwrap();
        until("it runs", async || ran(&label) == 1).await;
        handle.cancel().await.unwrap();
        let result = handle.result_within(PATIENCE).await;
        if succeeds {
            assert_eq!(result.unwrap(), 7);
        } else {
            assert!(matches!(result, Err(TaskFailure::Cancelled)), "{result:?}");
        }
    }
    worker.shutdown();
    worker.join().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c19_whenever_workers_stop_what_was_accepted_ends_once_without_burning_an_attempt() {
    let server = Server::start();
    let client = client(config(&server.url()).drain_timeout(Duration::from_millis(20)));
    let label = unique("interleaved");
    let mut handles = Vec::new();
    for _ in 0..40 {
        let worker = Worker::builder().client(client.clone()).start().await.unwrap();
        let stop = async {
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..20_000))).await;
            worker.shutdown();
        };
        let produce = async {
            for _ in 0..25 {
                let enqueue = Take::enqueue(label.clone(), fastrand::u64(0..40)).max_attempts(1);
                handles.push(enqueue.on(&client).await.unwrap());
            }
        };
        tokio::join!(stop, produce);
        worker.clone().join().await.unwrap();
    }
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    for handle in &handles {
        handle.result_within(PATIENCE).await.unwrap();
        assert_eq!(attempt_and_status(&client, handle).await, (1, Status::Succeeded));
    }
    // Each ran to its end once; what was given back was dropped before.
    assert_eq!(ran(&label) - ran(&format!("{label} dropped")), handles.len());
    worker.shutdown();
    worker.join().await.unwrap();
}

#[tokio::test]
async fn spec_9_1_a_body_is_dropped_within_100_ms_of_its_cancel() {
    let server = Server::start();
    let client = client(config(&server.url()).visibility_timeout(Duration::from_secs(60)));
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    let mut took = Vec::new();
    for _ in 0..7 {
        let label = unique("soon");
        let handle = Take::enqueue(label.clone(), 60_000).on(&client).await.unwrap();
        until("it runs", async || ran(&label) == 1).await;
        handle.cancel().await.unwrap();
        let asked = Instant::now();
        until("it is dropped", async || ran(&format!("{label} dropped")) == 1).await;
        took.push(asked.elapsed());
        let result = handle.result_within(PATIENCE).await;
        assert!(matches!(result, Err(TaskFailure::Cancelled)), "{result:?}");
    }
    took.sort_unstable();
    assert!(took[3] < Duration::from_millis(100), "{took:?}");
    worker.shutdown();
    worker.join().await.unwrap();
}
