//! The worker on a real store: executing, retrying, classifying, timeouts, panics, cancelling.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dtq::{Client, Handle, Mark, Status, Task, TaskError, TaskFailure, Worker, WorkerHandle};
use dtq_tests::{PATIENCE, client, config, until};

use super::Server;

/// What ran, by a label that each test makes unique: start times, and how many run at once.
static RAN: Mutex<Option<HashMap<String, Vec<Instant>>>> = Mutex::new(None);

pub(super) fn note(label: &str) -> usize {
    let mut ran = RAN.lock().unwrap_or_else(PoisonError::into_inner);
    let times = ran.get_or_insert_default().entry(label.to_owned()).or_default();
    times.push(Instant::now());
    times.len()
}

pub(super) fn ran(label: &str) -> usize {
    let mut ran = RAN.lock().unwrap_or_else(PoisonError::into_inner);
    ran.get_or_insert_default().get(label).map_or(0, Vec::len)
}

pub(super) fn unique(label: &str) -> String {
    format!("{label}-{:x}", fastrand::u64(..))
}

/// A server, a client of it and a worker on it.
pub(super) struct Rig {
    pub(super) client: Client,
    pub(super) worker: WorkerHandle,
    pub(super) server: Server,
}

pub(super) async fn rig_with(change: impl FnOnce(dtq::ConfigBuilder) -> dtq::ConfigBuilder) -> Rig {
    let server = Server::start();
    let client = client(change(config(&server.url())));
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    Rig { client, worker, server }
}

async fn rig() -> Rig {
    rig_with(|config| config).await
}

async fn failure<T: Task>(handle: &Handle<T>) -> dtq::inspect::ErrorInfo
where
    T::Output: serde::de::DeserializeOwned + std::fmt::Debug,
{
    match handle.result_within(PATIENCE).await {
        Err(TaskFailure::Failed { error, .. }) => error,
        other => panic!("expected a failure, not {other:?}"),
    }
}

async fn attempts(client: &Client, id: dtq::TaskId) -> u32 {
    client.inspect().task(id).await.unwrap().unwrap().attempt
}

#[dtq::task]
async fn add_up(label: String, a: u64, b: Option<i64>) -> u64 {
    note(&label);
    a.wrapping_add_signed(b.unwrap_or(0))
}

#[tokio::test]
async fn a_task_goes_from_call_to_result() {
    let rig = rig().await;
    let label = unique("result");
    let handle = AddUp::enqueue(label.clone(), u64::MAX, Some(-1)).on(&rig.client).await.unwrap();
    assert_eq!(handle.result_within(PATIENCE).await.unwrap(), u64::MAX - 1);
    assert_eq!(handle.status().await.unwrap(), Status::Succeeded);
    assert_eq!(ran(&label), 1);
    rig.worker.shutdown();
    rig.worker.join().await.unwrap();
}

#[dtq::task(max_attempts = 4, backoff(base = "1ms", max = "3ms", jitter = 0.0))]
async fn always_busy(label: String) -> Result<(), TaskError> {
    note(&label);
    Err(dtq::retryable!("busy"))
}

#[tokio::test]
async fn spec_4_5_a_task_executes_at_most_max_attempts_times() {
    let rig = rig().await;
    let label = unique("attempts");
    let handle = AlwaysBusy::enqueue(label.clone()).on(&rig.client).await.unwrap();
    let error = failure(&handle).await;
    assert_eq!(
        (error.class.as_str(), error.message.as_str(), error.retryable),
        ("Error", "busy", true)
    );
    assert_eq!(ran(&label), 4);
    let info = rig.client.inspect().task(handle.id()).await.unwrap().unwrap();
    assert_eq!((info.status, info.attempt, info.history.len()), (Status::DeadLettered, 4, 4));
    let numbers: Vec<_> = info.history.iter().map(|attempt| attempt.attempt).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    let letters = rig.client.inspect().dead_letters(&Default::default(), None, 10).await.unwrap();
    assert_eq!((letters.items.len(), letters.items[0].attempts), (1, 4));
}

#[tokio::test]
async fn spec_3_5_without_a_dlq_a_task_fails() {
    let rig = rig_with(|config| config.dlq_enabled(false)).await;
    let handle = AlwaysBusy::enqueue(unique("nodlq")).on(&rig.client).await.unwrap();
    failure(&handle).await;
    assert_eq!(handle.status().await.unwrap(), Status::Failed);
}

#[derive(Debug, thiserror::Error)]
#[error("plain")]
struct Plain;

#[derive(Debug, thiserror::Error, dtq::Retryable)]
enum Marked {
    #[error("lost")]
    #[retryable]
    Lost,
    #[error("later")]
    #[retryable(after = "7ms")]
    Later,
    #[error("wraps")]
    #[retryable(inherit)]
    Wraps(#[source] std::io::Error),
    #[error("never")]
    Never,
}

/// Fails as it is told; the second attempt succeeds.
#[dtq::task(max_attempts = 2, retry_on(std::num::ParseIntError))]
async fn fail_as(how: String, #[ctx] ctx: dtq::Context) -> Result<u32, TaskError> {
    if ctx.attempt() > 1 {
        return Ok(ctx.attempt());
    }
    let timed_out = || std::io::Error::new(std::io::ErrorKind::TimedOut, "slow");
    match how.as_str() {
        "retryable" => Err(dtq::retryable!("x")),
        "permanent" => Err(dtq::permanent!("x")),
        "timed_out" => Err(timed_out())?,
        "elapsed" => {
            tokio::time::timeout(Duration::from_millis(1), std::future::pending::<()>()).await?;
            Ok(0)
        }
        "permanent timed_out" => Ok(Err(timed_out()).permanent()?),
        "refused" => Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))?,
        "marked refused" => {
            Ok(Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)).retryable()?)
        }
        "plain" => Err(Plain)?,
        "anyhow marked" => {
            let error = anyhow::Error::from(Err::<(), _>(Plain).retryable().unwrap_err());
            Err(TaskError::from(Wrapped(error)))
        }
        "retry_on" => Ok("x".parse::<u32>()?),
        "derived lost" => Err(Marked::Lost)?,
        "derived later" => Err(Marked::Later)?,
        "derived wraps" => Err(Marked::Wraps(timed_out()))?,
        "derived never" => Err(Marked::Never)?,
        "redis" => {
            // Nothing listens there.
            let client = redis::Client::open("redis://127.0.0.1:1").unwrap();
            client.get_multiplexed_async_connection().await?;
            Ok(0)
        }
        other => panic!("unknown {other}"),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("wrapped")]
struct Wrapped(#[source] anyhow::Error);

#[tokio::test]
async fn spec_3_the_classification_table_holds_through_real_task_functions() {
    let rig = rig().await;
    for (how, retried) in [
        ("retryable", true),
        ("permanent", false),
        ("timed_out", true),
        ("elapsed", true),
        ("permanent timed_out", false),
        ("refused", false),
        ("marked refused", true),
        ("plain", false),
        ("anyhow marked", true),
        ("retry_on", true),
        ("derived lost", true),
        ("derived later", true),
        ("derived wraps", true),
        ("derived never", false),
        ("redis", true),
    ] {
        let handle = FailAs::enqueue(how).on(&rig.client).await.unwrap();
        let result = handle.result_within(PATIENCE).await;
        if retried {
            assert_eq!(result.unwrap(), 2, "{how}");
        } else {
            assert!(
                matches!(result, Err(TaskFailure::Failed { attempts: 1, .. })),
                "{how}: {result:?}"
            );
        }
    }
    let info = FailAs::enqueue("derived later").on(&rig.client).await.unwrap();
    info.result_within(PATIENCE).await.unwrap();
    let info = rig.client.inspect().task(info.id()).await.unwrap().unwrap();
    assert_eq!(info.last_error.unwrap().delay_ms, Some(7), "2.5: as given, without jitter");
}

#[tokio::test]
async fn spec_3_2_undecodable_payloads_and_unknown_types_are_never_executed() {
    let rig = rig().await;
    for (name, payload, class, says) in [
        ("add_up", r#"{"label":"x","a":"seven"}"#, "InvalidPayload", "a"),
        ("add_up", r#"{"label":"x"}"#, "InvalidPayload", "a"),
        ("add_up", "{", "InvalidPayload", "EOF"),
        ("add_up", "\u{0}", "InvalidPayload", ""),
        ("no_such_task", "{}", "UnknownTaskType", "unknown_task_type:no_such_task"),
    ] {
        let handle = rig.client.enqueue_raw(name, payload).await.unwrap();
        let error = match handle.result_within(PATIENCE).await {
            Err(TaskFailure::Failed { error, attempts: 1 }) => error,
            other => panic!("{name} {payload}: {other:?}"),
        };
        assert_eq!(error.class, class, "{error:?}");
        assert!(error.message.contains(says), "{error:?}");
    }
    // C39: more than is known, and less with a default, decode.
    let more = rig.client.enqueue_raw("add_up", r#"{"new":1,"a":2,"label":"more"}"#).await.unwrap();
    assert_eq!(more.result_within(PATIENCE).await.unwrap().as_str(), "2");
}

#[tokio::test]
async fn spec_3_8_unknown_types_are_put_off_where_that_is_configured() {
    let rig = rig_with(|config| config.unknown_task(dtq::UnknownTask::Snooze)).await;
    let handle = rig.client.enqueue_raw("of_the_next_release", "{}").await.unwrap();
    until("it is put off", async || handle.status().await.unwrap() == Status::Pending).await;
    let info = rig.client.inspect().task(handle.id()).await.unwrap().unwrap();
    assert_eq!((info.attempt, info.last_error), (1, None));
}

#[dtq::task]
async fn snooze_once(label: String, #[ctx] ctx: dtq::Context) -> Result<u32, TaskError> {
    if note(&label) == 1 {
        return Err(TaskError::snooze(Duration::from_millis(20)));
    }
    Ok(ctx.attempt())
}

#[tokio::test]
async fn spec_3_8_a_snoozed_task_runs_again_as_the_same_attempt() {
    let rig = rig().await;
    let label = unique("snooze");
    let handle = SnoozeOnce::enqueue(label.clone()).on(&rig.client).await.unwrap();
    assert_eq!(handle.result_within(PATIENCE).await.unwrap(), 1);
    assert_eq!(ran(&label), 2);
}

#[dtq::task(max_attempts = 2, timeout_ms = 60)]
async fn too_slow(label: String) {
    if note(&label) == 1 {
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
}

#[dtq::task(max_attempts = 1, timeout_ms = 60)]
fn too_slow_blocking(label: String) {
    note(&label);
    std::thread::sleep(Duration::from_millis(600));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spec_7_6_c21_timeouts_are_retryable_and_drop_the_future() {
    let rig = rig().await;
    let label = unique("slow");
    let handle = TooSlow::enqueue(label.clone()).on(&rig.client).await.unwrap();
    handle.result_within(PATIENCE).await.unwrap();
    assert_eq!(ran(&label), 2);
    let info = rig.client.inspect().task(handle.id()).await.unwrap().unwrap();
    let error = info.history[0].error.as_ref().unwrap();
    assert_eq!((error.class.as_str(), error.retryable), ("timeout", true));
    // A blocking body that returns within its grace has returned: its result counts.
    let handle = TooSlowBlocking::enqueue(unique("block")).on(&rig.client).await.unwrap();
    handle.result_within(PATIENCE).await.unwrap();
}

#[dtq::task(max_attempts = 2, timeout_ms = 100)]
fn spin(label: String, ms: u64) {
    if note(&label) == 1 {
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(ms) {
            std::hint::spin_loop();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spec_7_6_a_body_that_cannot_be_stopped_is_finished_without_it_and_keeps_its_slot() {
    let rig = rig_with(|config| config.concurrency(1)).await;
    let label = unique("spin");
    let handle = Spin::enqueue(label.clone(), 6500).on(&rig.client).await.unwrap();
    until("it spins", async || ran(&label) == 1).await;
    until("the timeout is written", async || handle.status().await.unwrap() != Status::Running)
        .await;
    // Its one slot is taken until the body returns: the retry waits for it.
    until("the retry is due", async || handle.status().await.unwrap() == Status::Queued).await;
    assert_eq!(ran(&label), 1);
    handle.result_within(PATIENCE).await.unwrap();
    assert_eq!(ran(&label), 2);
}

#[dtq::task(timeout_ms = 60000)]
async fn block_the_runtime(label: String, ms: u64) {
    note(&label);
    std::thread::sleep(Duration::from_millis(ms));
}

#[tokio::test]
async fn c9_a_blocked_current_thread_runtime_costs_no_lease() {
    let server = Server::start();
    let client = client(config(&server.url()).visibility_timeout(Duration::from_millis(600)));
    // Two more workers, on runtimes of their own, would redeliver it if its lease lapsed.
    let peers: Vec<_> = (0..2)
        .map(|_| {
            let client = client.clone();
            let (stop, wait) = tokio::sync::oneshot::channel::<()>();
            let thread = std::thread::spawn(move || {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let worker =
                        Worker::builder().client(client).queues(["peers"]).start().await.unwrap();
                    let _ = wait.await;
                    worker.shutdown();
                    worker.join().await.unwrap();
                });
            });
            (stop, thread)
        })
        .collect();
    let label = unique("block");
    let handle = BlockTheRuntime::enqueue(label.clone(), 2500).on(&client).await.unwrap();
    let behind = AddUp::enqueue(unique("behind"), 1, None).on(&client).await.unwrap();
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    handle.result_within(PATIENCE).await.unwrap();
    behind.result_within(PATIENCE).await.unwrap();
    assert_eq!(ran(&label), 1);
    assert_eq!(
        (attempts(&client, handle.id()).await, attempts(&client, behind.id()).await),
        (1, 1)
    );
    worker.shutdown();
    worker.join().await.unwrap();
    for (stop, thread) in peers {
        let _ = stop.send(());
        thread.join().unwrap();
    }
}

#[dtq::task(timeout_ms = 60000)]
async fn take(label: String, ms: u64) {
    note(&label);
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

#[tokio::test]
async fn c8_three_workers_and_a_task_longer_than_the_visibility_timeout_are_one_execution() {
    let server = Server::start();
    let client = client(config(&server.url()).visibility_timeout(Duration::from_millis(500)));
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(Worker::builder().client(client.clone()).start().await.unwrap());
    }
    let label = unique("long");
    let handle = Take::enqueue(label.clone(), 2500).on(&client).await.unwrap();
    let delayed = unique("delayed");
    // Delay three times the visibility: one execution.
    let later = Take::enqueue(delayed.clone(), 0)
        .delay(Duration::from_millis(1500))
        .on(&client)
        .await
        .unwrap();
    handle.result_within(PATIENCE).await.unwrap();
    later.result_within(PATIENCE).await.unwrap();
    assert_eq!((ran(&label), ran(&delayed)), (1, 1));
    assert_eq!(attempts(&client, handle.id()).await, 1);
}

#[dtq::task(max_attempts = 3)]
async fn panic_with(how: String) {
    struct InDrop;
    impl Drop for InDrop {
        fn drop(&mut self) {
            panic!("in a destructor");
        }
    }
    match how.as_str() {
        "text" => panic!("a text"),
        "value" => std::panic::panic_any(42),
        "drop" => drop(InDrop),
        _ => {}
    }
}

#[dtq::task]
fn panic_blocking() {
    panic!("on a thread");
}

/// Cannot be read without a panic.
#[derive(Debug, serde::Serialize)]
struct PanicsInDecode;

impl<'de> serde::Deserialize<'de> for PanicsInDecode {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        panic!("in decoding");
    }
}

#[dtq::task]
async fn panic_in_decode(what: PanicsInDecode) {
    let _ = what;
}

#[tokio::test]
async fn spec_7_7_c22_panics_are_one_permanent_failure_with_message_and_place() {
    let rig = rig().await;
    for (how, says) in [("text", "a text"), ("value", "no text"), ("drop", "in a destructor")] {
        let handle = PanicWith::enqueue(how).on(&rig.client).await.unwrap();
        let error = failure(&handle).await;
        assert_eq!((error.class.as_str(), error.retryable), ("panic", false));
        assert!(error.message.contains(says) && error.message.contains("cases.rs:"), "{error:?}");
        assert_eq!(attempts(&rig.client, handle.id()).await, 1);
    }
    let blocking = PanicBlocking::enqueue().on(&rig.client).await.unwrap();
    assert!(failure(&blocking).await.message.contains("on a thread"));
    let decoding = PanicInDecode::enqueue(PanicsInDecode).on(&rig.client).await.unwrap();
    assert!(failure(&decoding).await.message.contains("in decoding"));
    let alive = AddUp::enqueue(unique("alive"), 1, None).on(&rig.client).await.unwrap();
    assert_eq!(alive.result_within(PATIENCE).await.unwrap(), 1, "the worker lives");
}

#[dtq::task(timeout_ms = 60000)]
pub(super) async fn tell_when_dropped(label: String) {
    struct Tell(String);
    impl Drop for Tell {
        fn drop(&mut self) {
            note(&format!("{} dropped", self.0));
        }
    }
    note(&label);
    let _tell = Tell(label);
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn spec_9_1_a_running_task_is_dropped_soon_after_its_cancel() {
    let rig = rig().await;
    let label = unique("cancel");
    let handle = TellWhenDropped::enqueue(label.clone()).on(&rig.client).await.unwrap();
    until("it runs", async || ran(&label) == 1).await;
    assert_eq!(handle.cancel().await.unwrap(), dtq::Cancelled::Requested);
    let ended = handle.result_within(PATIENCE).await;
    assert!(matches!(ended, Err(TaskFailure::Cancelled)), "{ended:?}");
    assert_eq!(ran(&format!("{label} dropped")), 1);
    assert!(matches!(handle.cancel().await, Err(dtq::CancelError::Ended(Status::Cancelled))));
}

#[dtq::task]
async fn order(label: String, priority: u8) {
    note(&format!("{label}:{priority}"));
    note(&label);
}

#[tokio::test]
async fn c34_a_batch_of_every_priority_runs_p9_first_on_one_slot() {
    let server = Server::start();
    let client = client(config(&server.url()).concurrency(1));
    let label = unique("order");
    let mut handles = Vec::new();
    for priority in [0, 5, 9, 3, 7, 1, 8, 2, 6, 4] {
        let enqueue = Order::enqueue(label.clone(), priority).priority(priority);
        handles.push((priority, enqueue.on(&client).await.unwrap()));
    }
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    for (_, handle) in &handles {
        handle.result_within(PATIENCE).await.unwrap();
    }
    let at = |priority: u8| {
        let ran = RAN.lock().unwrap_or_else(PoisonError::into_inner);
        ran.as_ref().unwrap()[&format!("{label}:{priority}")][0]
    };
    assert!((1..=9).all(|priority| at(priority) < at(priority - 1)));
    worker.shutdown();
    worker.join().await.unwrap();
}

#[tokio::test]
async fn c16_a_busy_worker_hoards_nothing() {
    let server = Server::start();
    let client = client(config(&server.url()));
    let first = Worker::builder().client(client.clone()).concurrency(6).start().await.unwrap();
    let label = unique("hoard");
    for _ in 0..26 {
        Take::enqueue(label.clone(), 60_000).on(&client).await.unwrap();
    }
    until("six run", async || ran(&label) == 6).await;
    let queue = &client.inspect().queues().await.unwrap()[0];
    assert_eq!((queue.depth, queue.running), (26, 6));
    let second = Worker::builder().client(client.clone()).concurrency(20).start().await.unwrap();
    until("the rest runs elsewhere", async || ran(&label) == 26).await;
    for worker in [&first, &second] {
        worker.shutdown();
    }
}

#[tokio::test]
async fn spec_6_5_c42_of_1000_concurrent_enqueues_with_one_key_one_is_in() {
    let rig = rig().await;
    let label = unique("key");
    let enqueues = (0..1000).map(|_| {
        AddUp::enqueue(label.clone(), 1, None).idempotency_key("one").on(&rig.client).send()
    });
    let mut ids = std::collections::BTreeSet::new();
    let mut accepted = 0;
    for answer in futures_util::future::join_all(enqueues).await {
        match answer {
            Ok(handle) => {
                accepted += usize::from(!handle.is_duplicate());
                ids.insert(handle.id());
            }
            Err(dtq::EnqueueError::IdempotencyInProgress { task_id }) => {
                ids.insert(task_id);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((accepted, ids.len()), (1, 1));
    until("it ran", async || ran(&label) == 1).await;
}

#[dtq::task(result_max_bytes = 10)]
async fn long_result(n: usize) -> String {
    "x".repeat(n)
}

#[tokio::test]
async fn spec_9_7_c41_a_result_over_its_limit_is_marked_not_cut() {
    let rig = rig().await;
    let fits = LongResult::enqueue(8).on(&rig.client).await.unwrap();
    assert_eq!(fits.result_within(PATIENCE).await.unwrap(), "xxxxxxxx");
    let over = LongResult::enqueue(9).on(&rig.client).await.unwrap();
    let result = over.result_within(PATIENCE).await;
    assert!(matches!(result, Err(TaskFailure::TooLarge { .. })), "{result:?}");
    assert_eq!(over.status().await.unwrap(), Status::Succeeded);
}

#[dtq::task]
async fn not_a_number() -> Vec<f64> {
    vec![1.0, f64::NAN]
}

#[tokio::test]
async fn h30_a_result_that_is_no_number_is_a_failure_not_a_null() {
    let rig = rig().await;
    let handle = NotANumber::enqueue().on(&rig.client).await.unwrap();
    let error = failure(&handle).await;
    assert_eq!((error.class.as_str(), error.retryable), ("InvalidResult", false));
}

#[dtq::task(queue = "of-its-own")]
async fn elsewhere(label: String) {
    note(&label);
}

#[tokio::test]
async fn spec_7_1_h20_the_default_queues_are_default_and_those_of_the_workers_tasks() {
    let rig = rig().await;
    let handle = Elsewhere::enqueue(unique("own")).on(&rig.client).await.unwrap();
    handle.result_within(PATIENCE).await.unwrap();
    let star = Worker::builder().client(rig.client.clone()).queues(["*"]).start().await.unwrap();
    rig.worker.shutdown();
    rig.worker.join().await.unwrap();
    let unheard =
        Elsewhere::enqueue(unique("star")).queue("unheard-of").on(&rig.client).await.unwrap();
    unheard.result_within(PATIENCE).await.unwrap();
    star.shutdown();
    star.join().await.unwrap();
}

#[tokio::test]
async fn spec_8_4_h21_many_due_at_one_moment_all_start_once_and_never_early() {
    let rig = rig_with(|config| config.concurrency(64)).await;
    let label = unique("due");
    let due = std::time::SystemTime::now() + Duration::from_millis(1500);
    let tasks = (0..2000).map(|_| AddUp::enqueue(label.clone(), 1, None).at(due).on(&rig.client));
    rig.client.enqueue_all(tasks).await.unwrap();
    until("all ran", async || ran(&label) == 2000).await;
    let late = due.elapsed().expect("none ran before its time");
    assert!(late < PATIENCE);
    let counted = ran(&label);
    assert_eq!(counted, 2000, "each once");
}

#[dtq::task(max_attempts = 3, backoff(base = "120ms", max = "120ms", jitter = 0.0))]
async fn own_delays(how: String) -> Result<(), TaskError> {
    match how.as_str() {
        "policy" => Err(dtq::retryable!("by the policy")),
        _ => Err(dtq::retryable!("by the error"))
            .map_err(|error: TaskError| error.retry_after(Duration::from_millis(70_123))),
    }
}

#[tokio::test]
async fn spec_2_5_a_task_overrides_the_policy_and_an_error_its_own_delay() {
    let rig = rig().await;
    for (how, delay) in [("policy", 120), ("error", 70_123)] {
        let handle = OwnDelays::enqueue(how).on(&rig.client).await.unwrap();
        until("it is retried", async || {
            let info = rig.client.inspect().task(handle.id()).await.unwrap().unwrap();
            info.last_error.is_some_and(|error| error.delay_ms == Some(delay))
        })
        .await;
    }
}
