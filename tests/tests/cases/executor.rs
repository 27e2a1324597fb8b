//! What task functions can do to whoever runs them: each attempt comes to one outcome, and the worker
//! lives (SPEC 7.7, C22, H10).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dtq::inspect::ErrorInfo;
use dtq::{Client, Handle, Task, TaskError, TaskFailure, Worker, WorkerHandle};
use dtq_tests::{PATIENCE, client, config};

use super::Server;

struct Rig {
    client: Client,
    worker: WorkerHandle,
    _server: Server,
}

async fn rig() -> Rig {
    let server = Server::start();
    let client = client(config(&server.url()));
    let worker = Worker::builder()
        .client(client.clone())
        .state(CannotClone)
        .state(Arc::new(Most::default()))
        .start()
        .await
        .unwrap();
    Rig { client, worker, _server: server }
}

/// Failed, for good, in its first attempt.
async fn failed<T: Task>(handle: Handle<T>) -> ErrorInfo
where
    T::Output: serde::de::DeserializeOwned + std::fmt::Debug,
{
    match handle.result_within(PATIENCE).await {
        Err(TaskFailure::Failed { error, attempts: 1 }) => error,
        other => panic!("expected one failed attempt, not {other:?}"),
    }
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

/// An error that panics where it is told to.
#[derive(Debug)]
struct Nasty {
    when_shown: bool,
    _when_dropped: Option<PanicsWhenDropped>,
}

impl std::fmt::Display for Nasty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        assert!(!self.when_shown, "shown");
        f.write_str("nasty")
    }
}

impl std::error::Error for Nasty {}

impl std::fmt::Debug for PanicsWhenDropped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PanicsWhenDropped")
    }
}

#[dtq::task(max_attempts = 3)]
async fn be_nasty(how: String) -> Result<(), TaskError> {
    match how.as_str() {
        "payload" => std::panic::panic_any(PanicsWhenDropped),
        "shown" => Err(Nasty { when_shown: true, _when_dropped: None })?,
        "error dropped" => {
            Err(Nasty { when_shown: false, _when_dropped: Some(PanicsWhenDropped) })?
        }
        _ => {
            let _ = std::panic::catch_unwind(|| panic!("caught by the task function itself"));
            Ok(())
        }
    }
}

#[tokio::test]
async fn c22_a_panic_wherever_it_comes_from_is_one_failed_attempt() {
    let rig = rig().await;
    for how in ["payload", "shown", "error dropped"] {
        let error = failed(BeNasty::enqueue(how).on(&rig.client).await.unwrap()).await;
        assert_eq!((error.class.as_str(), error.retryable), ("panic", false), "{how}");
        assert!(error.message.contains("executor.rs:"), "{how}: {error:?}");
    }
    // A panic that a task function caught is no failure, and not why the next one fails.
    let caught = BeNasty::enqueue("caught").on(&rig.client).await.unwrap();
    caught.result_within(PATIENCE).await.unwrap();
    let error = failed(BeNasty::enqueue("payload").on(&rig.client).await.unwrap()).await;
    assert!(!error.message.contains("itself"), "{error:?}");
    rig.worker.shutdown();
    rig.worker.join().await.unwrap();
}

struct CannotClone;

impl Clone for CannotClone {
    fn clone(&self) -> Self {
        panic!("cannot be cloned");
    }
}

#[dtq::task]
async fn want_what_cannot_be_cloned(#[state] state: CannotClone) {
    let _ = state;
}

#[tokio::test]
async fn c22_a_panic_in_cloning_a_state_is_one_failed_attempt() {
    let rig = rig().await;
    let handle = WantWhatCannotBeCloned::enqueue().on(&rig.client).await.unwrap();
    let error = failed(handle).await;
    assert!(error.message.contains("cannot be cloned"), "{error:?}");
    rig.worker.shutdown();
    rig.worker.join().await.unwrap();
}

#[dtq::task]
fn use_the_runtime() -> u32 {
    // The idiom of tokio's own blocking threads.
    tokio::runtime::Handle::current().block_on(async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        42
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spec_7_6_a_blocking_task_function_finds_the_runtime_of_its_worker() {
    let rig = rig().await;
    let handle = UseTheRuntime::enqueue().on(&rig.client).await.unwrap();
    assert_eq!(handle.result_within(PATIENCE).await.unwrap(), 42);
    rig.worker.shutdown();
    rig.worker.join().await.unwrap();
}

/// How many ran at once, at most.
#[derive(Default)]
struct Most {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Most {
    fn enter(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[dtq::task]
async fn count(#[state] most: Arc<Most>) {
    most.enter();
    tokio::time::sleep(Duration::from_millis(2)).await;
    most.leave();
}

#[dtq::task]
fn count_blocking(#[state] most: Arc<Most>) {
    most.enter();
    std::thread::sleep(Duration::from_millis(2));
    most.leave();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spec_7_1_never_more_run_than_the_concurrency_allows() {
    let server = Server::start();
    let client = client(config(&server.url()));
    let most = Arc::new(Most::default());
    let builder = Worker::builder().client(client.clone()).concurrency(5);
    let worker =
        builder.tasks(["count", "count_blocking"]).state(Arc::clone(&most)).start().await.unwrap();
    let mut counts = client.enqueue_all((0..150).map(|_| Count {})).await.unwrap();
    let blocking = client.enqueue_all((0..150).map(|_| CountBlocking {})).await.unwrap();
    for handle in counts.drain(..) {
        handle.result_within(PATIENCE).await.unwrap();
    }
    for handle in blocking {
        handle.result_within(PATIENCE).await.unwrap();
    }
    assert_eq!(most.most.load(Ordering::SeqCst), 5, "all of them, and never more");
    worker.shutdown();
    worker.join().await.unwrap();
}

#[dtq::task(max_attempts = 2, timeout_ms = 100, backoff(base = "1ms", max = "1ms", jitter = 0.0))]
fn overrun(#[ctx] ctx: dtq::Context, #[state] most: Arc<Most>) -> u32 {
    most.enter();
    if ctx.attempt() == 1 {
        // Past the grace of a body that cannot be stopped, whatever it is told.
        std::thread::sleep(Duration::from_millis(6500));
        assert!(ctx.is_cancelled());
    }
    most.leave();
    ctx.attempt()
}

#[tokio::test]
async fn c21_a_worker_never_runs_two_attempts_of_one_task_at_once() {
    let server = Server::start();
    let client = client(config(&server.url()).concurrency(4));
    let most = Arc::new(Most::default());
    let worker = Worker::builder()
        .client(client.clone())
        .tasks(["overrun"])
        .state(Arc::clone(&most))
        .start()
        .await
        .unwrap();
    let handle = Overrun::enqueue().on(&client).await.unwrap();
    assert_eq!(handle.result_within(PATIENCE).await.unwrap(), 2);
    assert_eq!(most.most.load(Ordering::SeqCst), 1, "the retry waited for the first to return");
    let info = client.inspect().task(handle.id()).await.unwrap().unwrap();
    let outcomes: Vec<_> = info.history.iter().map(|a| (a.attempt, a.outcome.as_str())).collect();
    assert_eq!(outcomes, [(1, "retrying"), (2, "succeeded")]);
    worker.shutdown();
    worker.join().await.unwrap();
}
