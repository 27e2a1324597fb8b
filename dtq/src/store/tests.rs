//! What every store must do, run on each of them: the transitions of SPEC, called in the order in
//! which a fault would call them. A further store adds one line to `on_every_store!`.
//!
//! Longer than a file should be, because one suite for all stores is the point.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::inspect::{ResultInfo, TaskFilter, TaskInfo};

pub(crate) fn settings() -> Settings {
    Settings {
        key_prefix: "dtq".to_owned(),
        max_queue_depth: 10_000,
        max_scheduled: 1_000_000,
        idempotency_ttl: 86_400_000,
        dlq_enabled: true,
        dlq_maxlen: 10_000,
        result_retention: 3_600_000,
        task_retention: 604_800_000,
        events: true,
    }
}

/// A store of its own for each test, and what keeps it alive.
pub(crate) struct Bench {
    pub(crate) store: Arc<dyn Store>,
    _keeps: Box<dyn std::any::Any + Send>,
}

#[cfg(feature = "redis")]
pub(crate) mod redis_server {
    use std::process::{Child, Command, Stdio};

    /// A redis-server of the test's own, on a socket in a directory of its own.
    pub(crate) struct Server {
        child: Child,
        dir: std::path::PathBuf,
    }

    impl Server {
        pub(crate) fn start() -> Self {
            let dir = std::env::temp_dir().join(format!(
                "dtq-unit-{}-{}",
                std::process::id(),
                fastrand::u64(..)
            ));
            std::fs::create_dir_all(&dir).unwrap();
            let socket = dir.join("redis.sock");
            let child = Command::new("redis-server")
                .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
                .arg(&socket)
                .arg("--dir")
                .arg(&dir)
                .stdout(Stdio::null())
                .spawn()
                .expect("redis-server is installed (tests/run does it)");
            let server = Self { child, dir };
            let started = std::time::Instant::now();
            while std::os::unix::net::UnixStream::connect(&socket).is_err() {
                assert!(started.elapsed().as_secs() < 20, "redis-server does not start");
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            server
        }

        pub(crate) fn url(&self) -> String {
            format!("redis+unix://{}", self.dir.join("redis.sock").display())
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

#[cfg(feature = "redis")]
pub(crate) fn redis_bench(settings: &Settings) -> Bench {
    let server = redis_server::Server::start();
    let store = super::redis::RedisStore::open(&server.url(), settings).unwrap();
    Bench { store: Arc::new(store), _keeps: Box::new(server) }
}

#[cfg(feature = "sqlite")]
pub(crate) fn sqlite_bench(settings: &Settings) -> Bench {
    struct Dir(std::path::PathBuf);
    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
    let name = format!("dtq-unit-{}-{:x}", std::process::id(), fastrand::u64(..));
    let dir = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&dir).unwrap();
    let url = format!("sqlite:{}", dir.join("dtq.db").display());
    let store = super::sqlite::SqliteStore::open(&url, settings).unwrap();
    Bench { store: Arc::new(store), _keeps: Box::new(Dir(dir)) }
}

/// How a store is made for a test.
pub(super) type Make = fn(&Settings) -> Bench;

/// Runs each named test on each store.
macro_rules! on_every_store {
    ($($name:ident)*) => {
        #[cfg(feature = "redis")]
        mod on_redis {
            $(#[tokio::test] async fn $name() { super::$name(super::redis_bench).await; })*
        }

        #[cfg(feature = "sqlite")]
        mod on_sqlite {
            $(#[tokio::test] async fn $name() { super::$name(super::sqlite_bench).await; })*
        }
    };
}

on_every_store! {
    spec_4_1_a_task_is_queued_fetched_and_finished
    spec_4_2_a_retry_raises_the_attempt_when_it_is_requeued
    spec_4_3_a_delayed_task_is_first_queued_with_attempt_1
    spec_4_4_a_lapsed_lease_is_redelivered_with_the_next_attempt
    h1_a_second_and_third_crash_are_redelivered_and_the_last_is_worker_lost
    h6_max_attempts_1_and_one_crash_is_never_executed_again
    spec_4_7_a_repeated_fetch_returns_the_same_leases
    spec_4_7_a_repeated_enqueue_succeeds_without_a_second_task
    spec_4_7_a_repeated_finish_says_already
    spec_4_7_with_no_retention_repeats_still_do_nothing
    spec_7_4_h13_a_stale_holder_changes_nothing
    spec_7_1_h19_strict_priority_and_fifo_within_one
    spec_7_1_of_a_thousand_queues_those_that_hold_tasks_are_served_in_order
    spec_7_10_after_a_cancel_request_success_stays_and_failure_becomes_cancelled
    spec_9_1_h14_cancel_in_every_status
    spec_9_2_h8_a_task_past_its_ttl_expires_at_fetch_and_at_requeue
    spec_1_3_a_release_keeps_the_attempt
    spec_3_8_a_snooze_keeps_the_attempt
    spec_6_2_depth_is_exact_and_retries_are_never_refused
    spec_6_2_h22_scheduled_tasks_have_their_own_limit
    spec_6_3_a_unit_is_all_or_nothing
    spec_6_5_idempotency_in_every_state
    spec_8_2_a_claim_is_requeued_once
    spec_8_3_stale_claims_go_back
    spec_8_1_h17_one_leader_at_a_time
    spec_9_3_dead_letters_are_listed_requeued_discarded_and_purged
    spec_9_4_a_paused_queue_is_not_fetched_and_a_purge_cancels_what_waits
    spec_9_5_listings_find_every_task_where_it_is
    spec_5_4_payloads_come_back_byte_for_byte
    spec_7_9_a_registered_id_is_taken_until_it_is_taken_over
    c11_ten_reapers_at_once_adopt_each_task_once
    spec_3_7_the_history_keeps_the_last_20_attempts
    spec_6_1_a_time_in_the_past_means_now
    spec_4_attempts_follow_the_model_through_random_histories
    spec_1_1_only_moves_of_the_table_happen
    spec_4_6_an_admin_requeue_starts_anew_and_remembers
    spec_9_6_ended_tasks_leave_with_their_retention
    h12_bulk_requeues_at_once_take_each_letter_once_and_a_purge_leaves_nothing
    h18_a_late_finish_leaves_a_newer_tasks_key_alone
    h23_what_is_redelivered_into_a_paused_queue_waits
    c36_a_scheduler_that_dies_after_each_of_its_steps_loses_and_doubles_nothing
    c35_ten_schedulers_at_once_start_each_task_once
    what_is_taken_out_stands_aside_and_a_repeated_put_is_known
}

pub(super) fn holder(name: &str) -> Holder {
    Holder { worker_id: format!("worker-{name}"), incarnation: format!("inc{name}") }
}

pub(super) fn new_task() -> NewTask {
    NewTask {
        id: TaskId::new(0),
        name: "greet".to_owned(),
        queue: "default".to_owned(),
        priority: 5,
        max_attempts: 5,
        timeout: 30_000,
        payload: Bytes::from_static(b"{\"to\":\"ada\"}"),
        due: Due::Now,
        ttl: None,
        retention: None,
        result_retention: None,
        result_max_bytes: None,
        idempotency: None,
        metadata: None,
    }
}

pub(super) async fn add(store: &dyn Store, task: NewTask) -> TaskId {
    let id = task.id;
    let answers = store.enqueue(&[vec![task]]).await.unwrap();
    assert_eq!(answers, [Ok(vec![Accepted::New])]);
    id
}

pub(super) async fn fetch_n(
    store: &dyn Store,
    who: &Holder,
    max: usize,
    visibility: Millis,
) -> Vec<Leased> {
    let request = FetchRequest {
        holder: who.clone(),
        queues: vec!["default".to_owned()],
        max,
        visibility,
        nonce: fastrand::u64(..),
    };
    store.fetch(&request).await.unwrap().leased
}

pub(super) async fn fetch(store: &dyn Store, who: &Holder) -> Vec<Leased> {
    fetch_n(store, who, 100, 30_000).await
}

pub(super) async fn finish(
    store: &dyn Store,
    who: &Holder,
    leased: &Leased,
    outcome: Outcome,
) -> Finished {
    let item = Finish { lease: leased.lease.clone(), outcome };
    store.finish(who, &[item]).await.unwrap()[0]
}

pub(super) fn ok(json: &'static str) -> Outcome {
    Outcome::Succeeded { result: KeptResult::Json(Bytes::from_static(json.as_bytes())) }
}

pub(super) fn error(message: &str) -> ErrorInfo {
    ErrorInfo { class: "Boom".to_owned(), message: message.to_owned(), retryable: true }
}

pub(super) async fn info(store: &dyn Store, id: TaskId) -> TaskInfo {
    store.task(id).await.unwrap().expect("the task has a record")
}

pub(super) async fn status(store: &dyn Store, id: TaskId) -> Status {
    info(store, id).await.status
}

/// Waits, by asking the store, until it has claimed what is due; requeues it. How many.
pub(super) async fn run_scheduler_until(store: &dyn Store, wanted: usize) {
    let started = std::time::Instant::now();
    let mut done = 0;
    while done < wanted {
        assert!(started.elapsed() < Duration::from_secs(10), "{done} of {wanted} became due");
        match store.claim_due("worker-s", 100).await.unwrap() {
            Claim::Leader { claimed, next_due, .. } => {
                done += store.requeue_claimed(&claimed).await.unwrap().queued;
                if done < wanted {
                    tokio::time::sleep(Duration::from_millis(next_due.unwrap_or(5).min(50))).await;
                }
            }
            Claim::Follower { .. } => panic!("nobody else leads"),
        }
    }
}

/// Waits until a lease of 1 ms has lapsed and reaps.
pub(super) async fn reap(store: &dyn Store) -> Reaped {
    let started = std::time::Instant::now();
    loop {
        let reaped = store.reap(100).await.unwrap();
        if !reaped.redelivered.is_empty() || !reaped.dead.is_empty() {
            return reaped;
        }
        assert!(started.elapsed() < Duration::from_secs(10), "nothing lapsed");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn spec_4_1_a_task_is_queued_fetched_and_finished(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let id = add(store, new_task()).await;
    assert_eq!(info(store, id).await.attempt, 1);
    let a = holder("a");
    let leased = fetch(store, &a).await;
    assert_eq!(leased.len(), 1);
    assert_eq!((leased[0].lease.id, leased[0].lease.attempt), (id, 1));
    assert_eq!(&leased[0].payload[..], b"{\"to\":\"ada\"}");
    assert_eq!(status(store, id).await, Status::Running);
    assert!(fetch(store, &a).await.is_empty(), "a leased task is not leased again");
    assert_eq!(
        finish(store, &a, &leased[0], ok("\"hi\"")).await,
        Finished::Applied(Status::Succeeded)
    );
    let info = info(store, id).await;
    assert_eq!((info.status, info.attempt), (Status::Succeeded, 1));
    assert_eq!(info.result, ResultInfo::Json("\"hi\"".to_owned()));
    assert_eq!(info.history.len(), 1);
    assert_eq!(
        (info.history[0].outcome.as_str(), info.history[0].worker_id.as_str()),
        ("succeeded", "worker-a")
    );
    let queue = &store.queues().await.unwrap()[0];
    assert_eq!((queue.depth, queue.running, queue.succeeded), (0, 0, 1));
}

async fn spec_4_2_a_retry_raises_the_attempt_when_it_is_requeued(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let id = add(store, new_task()).await;
    let a = holder("a");
    let leased = fetch(store, &a).await;
    let retry = Outcome::Retry { delay: 20, error: error("no luck") };
    assert_eq!(finish(store, &a, &leased[0], retry).await, Finished::Applied(Status::Retrying));
    let waiting = info(store, id).await;
    assert_eq!((waiting.status, waiting.attempt), (Status::Retrying, 1));
    assert_eq!(
        waiting.last_error.as_ref().map(|e| (e.info.message.as_str(), e.delay_ms)),
        Some(("no luck", Some(20)))
    );
    assert!(waiting.due_ms.is_some());
    assert!(fetch(store, &a).await.is_empty());
    run_scheduler_until(store, 1).await;
    let leased = fetch(store, &a).await;
    assert_eq!(leased[0].lease.attempt, 2);
    finish(store, &a, &leased[0], Outcome::Dead { error: error("gone") }).await;
    let dead = info(store, id).await;
    assert_eq!((dead.status, dead.attempt, dead.history.len()), (Status::DeadLettered, 2, 2));
    assert_eq!(dead.history[0].outcome, "retrying");
    assert_eq!(dead.history[1].error.as_ref().unwrap().message, "gone");
}

async fn spec_4_3_a_delayed_task_is_first_queued_with_attempt_1(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let id = add(store, NewTask { due: Due::After(30), ..new_task() }).await;
    assert_eq!(status(store, id).await, Status::Pending);
    assert!(fetch(store, &holder("a")).await.is_empty());
    run_scheduler_until(store, 1).await;
    assert_eq!(fetch(store, &holder("a")).await[0].lease.attempt, 1);
}

async fn spec_4_4_a_lapsed_lease_is_redelivered_with_the_next_attempt(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let id = add(store, new_task()).await;
    fetch_n(store, &holder("a"), 1, 1).await;
    assert_eq!(reap(store).await.redelivered, [id]);
    let again = info(store, id).await;
    assert_eq!((again.status, again.attempt), (Status::Queued, 2));
    assert_eq!(again.history[0].outcome, "lost");
    let leased = fetch(store, &holder("b")).await;
    assert_eq!((leased.len(), leased[0].lease.attempt), (1, 2));
    assert_eq!(store.queues().await.unwrap()[0].depth, 1, "the old entry is gone");
}

async fn h1_a_second_and_third_crash_are_redelivered_and_the_last_is_worker_lost(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let id = add(store, NewTask { max_attempts: 3, ..new_task() }).await;
    for attempt in 1..=3 {
        let leased = fetch_n(store, &holder("a"), 1, 1).await;
        assert_eq!(leased[0].lease.attempt, attempt);
        let reaped = reap(store).await;
        if attempt < 3 {
            assert_eq!(reaped.redelivered, [id]);
        } else {
            assert_eq!(reaped.dead, [id]);
        }
    }
    let dead = info(store, id).await;
    assert_eq!((dead.status, dead.attempt), (Status::DeadLettered, 3));
    assert_eq!(dead.last_error.unwrap().info.class, "worker_lost");
    assert_eq!(store.queues().await.unwrap()[0].depth, 0);
}

async fn h6_max_attempts_1_and_one_crash_is_never_executed_again(make: Make) {
    let bench = make(&Settings { dlq_enabled: false, ..settings() });
    let store = &*bench.store;
    let id = add(store, NewTask { max_attempts: 1, ..new_task() }).await;
    fetch_n(store, &holder("a"), 1, 1).await;
    assert_eq!(reap(store).await.dead, [id]);
    assert_eq!(status(store, id).await, Status::Failed, "3.5: failed when the DLQ is disabled");
    assert!(fetch(store, &holder("b")).await.is_empty());
}

async fn spec_4_7_a_repeated_fetch_returns_the_same_leases(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    for _ in 0..3 {
        add(store, new_task()).await;
    }
    let request = FetchRequest {
        holder: holder("a"),
        queues: vec!["default".to_owned()],
        max: 2,
        visibility: 30_000,
        nonce: 7,
    };
    let first = store.fetch(&request).await.unwrap().leased;
    let second = store.fetch(&request).await.unwrap().leased;
    let leases = |leased: &[Leased]| leased.iter().map(|l| l.lease.clone()).collect::<Vec<_>>();
    assert_eq!(leases(&first), leases(&second));
    assert_eq!(first.len(), 2);
    let next = store.fetch(&FetchRequest { nonce: 8, ..request }).await.unwrap().leased;
    assert_eq!(next.len(), 1, "another nonce fetches on");
}

async fn spec_4_7_a_repeated_enqueue_succeeds_without_a_second_task(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let key = Some(Idempotency { key: "k".to_owned(), fingerprint: "f1".to_owned() });
    let task = NewTask { idempotency: key, ..new_task() };
    add(store, task.clone()).await;
    add(store, task.clone()).await;
    let leased = fetch(store, &holder("a")).await;
    assert_eq!(leased.len(), 1);
    finish(store, &holder("a"), &leased[0], ok("1")).await;
    add(store, task).await;
    assert!(fetch(store, &holder("a")).await.is_empty());
}

async fn spec_4_7_a_repeated_finish_says_already(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let a = holder("a");
    for outcome in [
        ok("1"),
        Outcome::Retry { delay: 100_000, error: error("x") },
        Outcome::Dead { error: error("x") },
        Outcome::Snoozed { delay: 100_000, unknown_type: false },
        Outcome::Released,
    ] {
        let id = add(store, new_task()).await;
        let leased = fetch(store, &a).await.into_iter().find(|l| l.lease.id == id).unwrap();
        assert!(matches!(finish(store, &a, &leased, outcome.clone()).await, Finished::Applied(_)));
        let before = (status(store, id).await, store.queues().await.unwrap()[0].clone());
        assert_eq!(
            finish(store, &a, &leased, outcome.clone()).await,
            Finished::Already,
            "{outcome:?}"
        );
        let after = (status(store, id).await, store.queues().await.unwrap()[0].clone());
        assert_eq!(
            (before.0, before.1.depth, before.1.scheduled),
            (after.0, after.1.depth, after.1.scheduled)
        );
        let renewed = store.renew(&a, 1000, &[leased.lease]).await.unwrap();
        assert_eq!(renewed, [Renewed::Lost]);
    }
}

async fn spec_4_7_with_no_retention_repeats_still_do_nothing(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let task = NewTask { retention: Some(0), ..new_task() };
    let id = add(store, task.clone()).await;
    let leased = fetch(store, &holder("a")).await;
    finish(store, &holder("a"), &leased[0], ok("1")).await;
    assert!(store.task(id).await.unwrap().is_none(), "0 means at once");
    assert_eq!(finish(store, &holder("a"), &leased[0], ok("1")).await, Finished::Already);
    add(store, task).await;
    assert!(fetch(store, &holder("a")).await.is_empty(), "the repeated enqueue added nothing");
}

async fn spec_7_4_h13_a_stale_holder_changes_nothing(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let (a, b) = (holder("a"), holder("b"));
    let id = add(store, new_task()).await;
    let old = fetch_n(store, &a, 1, 1).await.remove(0);
    reap(store).await;
    for outcome in [ok("1"), Outcome::Retry { delay: 1, error: error("x") }, Outcome::Released] {
        assert_eq!(finish(store, &a, &old, outcome).await, Finished::Lost);
    }
    assert_eq!(
        store.renew(&a, 1000, std::slice::from_ref(&old.lease)).await.unwrap(),
        [Renewed::Lost]
    );
    let new = fetch(store, &b).await.remove(0);
    assert!(new.lease.number > old.lease.number);
    let renewed = store.renew(&a, 1000, &[old.lease.clone(), new.lease.clone()]).await.unwrap();
    assert_eq!(renewed, [Renewed::Lost, Renewed::Held]);
    for outcome in [
        ok("1"),
        Outcome::Retry { delay: 1, error: error("x") },
        Outcome::Dead { error: error("x") },
        Outcome::Cancelled,
        Outcome::Released,
        Outcome::Snoozed { delay: 1, unknown_type: false },
    ] {
        assert_eq!(finish(store, &a, &old, outcome).await, Finished::Lost);
    }
    let held = info(store, id).await;
    assert_eq!(
        (held.status, held.attempt, held.worker_id.as_deref()),
        (Status::Running, 2, Some("worker-b"))
    );
    assert_eq!(finish(store, &b, &new, ok("2")).await, Finished::Applied(Status::Succeeded));
    assert_eq!(finish(store, &a, &old, ok("1")).await, Finished::Lost);
    assert_eq!(info(store, id).await.result, ResultInfo::Json("2".to_owned()));
    assert!(
        store.dead_letters(&DeadLetterFilter::default(), None, 10).await.unwrap().items.is_empty()
    );
}

async fn spec_7_1_h19_strict_priority_and_fifo_within_one(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let mut wanted = Vec::new();
    for round in 0..3 {
        for priority in 0..=9 {
            let id = add(store, NewTask { priority, ..new_task() }).await;
            wanted.push((9 - priority, round, id));
        }
    }
    wanted.sort_unstable();
    let mut got = Vec::new();
    for n in [1, 4, 7, 100] {
        let leased = fetch_n(store, &holder("a"), n, 30_000).await;
        assert!(leased.len() <= n, "never more than asked");
        got.extend(leased.into_iter().map(|l| l.lease.id));
    }
    assert_eq!(got, wanted.into_iter().map(|(_, _, id)| id).collect::<Vec<_>>());
}

async fn spec_7_1_of_a_thousand_queues_those_that_hold_tasks_are_served_in_order(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let wanted: Vec<String> = (0..1000).rev().map(|n| format!("q{n}")).collect();
    let served = async |max: usize, nonce: u64| -> Vec<String> {
        let request = FetchRequest {
            holder: holder("a"),
            queues: wanted.clone(),
            max,
            visibility: 30_000,
            nonce,
        };
        let fetched = store.fetch(&request).await.unwrap();
        assert!(fetched.notes.is_empty(), "{:?}", fetched.notes);
        fetched.leased.into_iter().map(|leased| leased.lease.queue).collect()
    };
    let fill = async |of: &[String]| {
        let unit = |queue: &String| vec![NewTask { queue: queue.clone(), ..new_task() }];
        let units: Vec<_> = of.iter().map(unit).collect();
        for accepted in store.enqueue(&units).await.unwrap() {
            accepted.unwrap();
        }
    };
    // A few hold something, among them one whose name begins like another's, and foreign ones.
    fill(&["q1", "q10", "q999", "q", "other", "q500"].map(str::to_owned)).await;
    let waiting = store.wait_for_work(&wanted, Duration::from_secs(60));
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("told at once").unwrap();
    assert_eq!(served(2, 1).await, ["q999", "q500"]);
    assert_eq!(served(10, 2).await, ["q10", "q1"]);
    // All do.
    fill(&wanted).await;
    assert_eq!(served(3, 3).await, wanted[..3]);
    assert_eq!(served(2000, 4).await, wanted[3..]);
    // A few, beside more foreign ones than there are wanted ones.
    fill(&(0..2500).map(|n| format!("other{n}")).collect::<Vec<_>>()).await;
    fill(&["q7", "q8"].map(str::to_owned)).await;
    assert_eq!(served(10, 5).await, ["q8", "q7"]);
    assert_eq!(served(10, 6).await, Vec::<String>::new());
}

async fn spec_7_10_after_a_cancel_request_success_stays_and_failure_becomes_cancelled(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let a = holder("a");
    for (outcome, ends) in [
        (ok("1"), Status::Succeeded),
        (Outcome::Retry { delay: 1, error: error("x") }, Status::Cancelled),
        (Outcome::Dead { error: error("x") }, Status::Cancelled),
        (Outcome::Released, Status::Cancelled),
        (Outcome::Snoozed { delay: 1, unknown_type: false }, Status::Cancelled),
        (Outcome::Cancelled, Status::Cancelled),
    ] {
        let id = add(store, new_task()).await;
        let leased = fetch(store, &a).await.remove(0);
        assert_eq!(store.cancel(id).await.unwrap(), Cancelled::Requested);
        let renewed = store.renew(&a, 30_000, std::slice::from_ref(&leased.lease)).await.unwrap();
        assert_eq!(renewed, [Renewed::CancelRequested]);
        assert!(info(store, id).await.cancel_requested);
        assert_eq!(finish(store, &a, &leased, outcome).await, Finished::Applied(ends));
        assert_eq!(status(store, id).await, ends);
    }
    let id = add(store, new_task()).await;
    fetch_n(store, &a, 1, 1).await;
    store.cancel(id).await.unwrap();
    let started = std::time::Instant::now();
    while status(store, id).await == Status::Running {
        assert!(started.elapsed() < Duration::from_secs(5));
        store.reap(10).await.unwrap();
    }
    assert_eq!(status(store, id).await, Status::Cancelled, "loss becomes cancelled too");
}

async fn spec_9_1_h14_cancel_in_every_status(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let a = holder("a");
    assert_eq!(store.cancel(TaskId::new(0)).await.unwrap(), Cancelled::NotFound);
    let pending = add(store, NewTask { due: Due::After(50), ..new_task() }).await;
    assert_eq!(store.cancel(pending).await.unwrap(), Cancelled::Done);
    let retrying = add(store, new_task()).await;
    let leased = fetch(store, &a).await.remove(0);
    finish(store, &a, &leased, Outcome::Retry { delay: 50, error: error("x") }).await;
    assert_eq!(store.cancel(retrying).await.unwrap(), Cancelled::Done);
    let queued = add(store, new_task()).await;
    assert_eq!(store.cancel(queued).await.unwrap(), Cancelled::Done);
    for id in [pending, retrying, queued] {
        assert_eq!(status(store, id).await, Status::Cancelled);
        assert_eq!(store.cancel(id).await.unwrap(), Cancelled::Ended(Status::Cancelled));
    }
    let queue = &store.queues().await.unwrap()[0];
    assert_eq!((queue.depth, queue.scheduled), (0, 0));
    tokio::time::sleep(Duration::from_millis(80)).await;
    let Claim::Leader { claimed, .. } = store.claim_due("worker-s", 10).await.unwrap() else {
        panic!()
    };
    assert!(claimed.is_empty(), "nothing is left in the schedule");
    // Claimed by a scheduler when the cancel comes: H14.
    let id = add(store, NewTask { due: Due::After(1), ..new_task() }).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let Claim::Leader { claimed, .. } = store.claim_due("worker-s", 10).await.unwrap() else {
        panic!()
    };
    assert_eq!(claimed, [id]);
    assert_eq!(store.cancel(id).await.unwrap(), Cancelled::Done);
    store.requeue_claimed(&claimed).await.unwrap();
    assert_eq!(status(store, id).await, Status::Cancelled);
    assert!(fetch(store, &a).await.is_empty());
}

async fn spec_9_2_h8_a_task_past_its_ttl_expires_at_fetch_and_at_requeue(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let a = holder("a");
    let waits = add(store, NewTask { ttl: Some(1), ..new_task() }).await;
    let retries = add(store, NewTask { ttl: Some(400), priority: 9, ..new_task() }).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let leased = fetch(store, &a).await;
    assert_eq!(leased.iter().map(|l| l.lease.id).collect::<Vec<_>>(), [retries]);
    assert_eq!(status(store, waits).await, Status::Expired);
    finish(store, &a, &leased[0], Outcome::Retry { delay: 600, error: error("x") }).await;
    let started = std::time::Instant::now();
    while status(store, retries).await != Status::Expired {
        assert!(started.elapsed() < Duration::from_secs(5));
        if let Claim::Leader { claimed, .. } = store.claim_due("worker-s", 10).await.unwrap() {
            store.requeue_claimed(&claimed).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(fetch(store, &a).await.is_empty());
}

async fn spec_1_3_a_release_keeps_the_attempt(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let a = holder("a");
    let id = add(store, NewTask { max_attempts: 1, ..new_task() }).await;
    for _ in 0..3 {
        let leased = fetch(store, &a).await.remove(0);
        assert_eq!((leased.lease.id, leased.lease.attempt), (id, 1));
        assert_eq!(
            finish(store, &a, &leased, Outcome::Released).await,
            Finished::Applied(Status::Queued)
        );
        assert_eq!(store.queues().await.unwrap()[0].depth, 1);
    }
}

async fn spec_3_8_a_snooze_keeps_the_attempt(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let a = holder("a");
    let id = add(store, new_task()).await;
    let leased = fetch(store, &a).await.remove(0);
    assert_eq!(leased.unknown_since, None);
    let snooze = Outcome::Snoozed { delay: 10, unknown_type: true };
    assert_eq!(finish(store, &a, &leased, snooze).await, Finished::Applied(Status::Pending));
    assert_eq!(info(store, id).await.last_error, None, "no failure is counted");
    run_scheduler_until(store, 1).await;
    let leased = fetch(store, &a).await.remove(0);
    assert_eq!(leased.lease.attempt, 1);
    assert!(leased.unknown_since.is_some());
}

async fn spec_6_2_depth_is_exact_and_retries_are_never_refused(make: Make) {
    let bench = make(&Settings { max_queue_depth: 3, ..settings() });
    let store = &*bench.store;
    let a = holder("a");
    for _ in 0..2 {
        add(store, new_task()).await;
    }
    let leased = fetch(store, &a).await;
    add(store, NewTask { priority: 9, ..new_task() }).await;
    let refused = store.enqueue(&[vec![new_task()]]).await.unwrap().remove(0).unwrap_err();
    let Refusal::QueueFull { queue, depth, limit, retry_after } = refused else {
        panic!("{refused:?}")
    };
    assert_eq!((queue.as_str(), depth, limit), ("default", 3, 3));
    assert!(retry_after > 0);
    finish(store, &a, &leased[0], Outcome::Retry { delay: 1, error: error("x") }).await;
    add(store, new_task()).await;
    // The queue is full again; the retry joins all the same.
    run_scheduler_until(store, 1).await;
    finish(store, &a, &leased[1], Outcome::Released).await;
    assert_eq!(store.queues().await.unwrap()[0].depth, 4);
}

async fn spec_6_2_h22_scheduled_tasks_have_their_own_limit(make: Make) {
    let bench = make(&Settings { max_scheduled: 2, max_queue_depth: 1, ..settings() });
    let store = &*bench.store;
    for _ in 0..2 {
        add(store, NewTask { due: Due::After(60_000), ..new_task() }).await;
    }
    let later = NewTask { due: Due::After(60_000), ..new_task() };
    let refused = store.enqueue(&[vec![later]]).await.unwrap().remove(0).unwrap_err();
    assert_eq!(refused, Refusal::ScheduleFull { scheduled: 2, limit: 2 });
    add(store, new_task()).await;
}

async fn spec_6_3_a_unit_is_all_or_nothing(make: Make) {
    let bench = make(&Settings { max_queue_depth: 2, ..settings() });
    let store = &*bench.store;
    let full = vec![new_task(), new_task(), new_task()];
    let fits = vec![new_task(), new_task()];
    let ids: Vec<_> = full.iter().map(|task| task.id).collect();
    let answers = store.enqueue(&[full, fits]).await.unwrap();
    assert!(matches!(answers[0], Err(Refusal::QueueFull { depth: 0, .. })));
    assert_eq!(answers[1], Ok(vec![Accepted::New, Accepted::New]), "its neighbour is untouched");
    for id in ids {
        assert!(store.task(id).await.unwrap().is_none());
    }
    assert_eq!(store.queues().await.unwrap()[0].depth, 2);
}

async fn spec_6_5_idempotency_in_every_state(make: Make) {
    let bench = make(&Settings { max_queue_depth: 1, ..settings() });
    let store = &*bench.store;
    let a = holder("a");
    let keyed = |fingerprint: &str| NewTask {
        idempotency: Some(Idempotency {
            key: "k: \"1\"\n".to_owned(),
            fingerprint: fingerprint.to_owned(),
        }),
        ..new_task()
    };
    let first = add(store, keyed("f")).await;
    let answer = async |task: NewTask| store.enqueue(&[vec![task]]).await.unwrap().remove(0);
    let in_progress = Err(Refusal::IdempotencyInProgress { task_id: first });
    assert_eq!(answer(keyed("f")).await, in_progress);
    assert_eq!(answer(keyed("other")).await, Err(Refusal::IdempotencyMismatch { task_id: first }));
    let leased = fetch(store, &a).await.remove(0);
    assert_eq!(answer(keyed("f")).await, in_progress, "running");
    finish(store, &a, &leased, Outcome::Retry { delay: 1, error: error("x") }).await;
    assert_eq!(answer(keyed("f")).await, in_progress, "retrying");
    run_scheduler_until(store, 1).await;
    let leased = fetch(store, &a).await.remove(0);
    finish(store, &a, &leased, ok("1")).await;
    add(store, new_task()).await;
    let duplicate = Ok(vec![Accepted::Duplicate(first)]);
    assert_eq!(answer(keyed("f")).await, duplicate, "never blocked by depth");
    assert_eq!(answer(keyed("other")).await, Err(Refusal::IdempotencyMismatch { task_id: first }));
    let other_queue = NewTask { queue: "other".to_owned(), ..keyed("f") };
    add(store, other_queue).await;
    let cancelled = NewTask {
        idempotency: Some(Idempotency { key: "c".to_owned(), fingerprint: "f".to_owned() }),
        queue: "third".to_owned(),
        ..new_task()
    };
    let id = add(store, cancelled.clone()).await;
    store.cancel(id).await.unwrap();
    let again = NewTask { id: TaskId::new(0), ..cancelled.clone() };
    assert_eq!(
        answer(again.clone()).await,
        Ok(vec![Accepted::Duplicate(id)]),
        "cancelled maps to failed"
    );
    assert_eq!(store.resurrect(&[id], &Actor("ada".to_owned())).await.unwrap(), [Ok(())]);
    assert_eq!(answer(again).await, Err(Refusal::IdempotencyInProgress { task_id: id }));
}

async fn spec_8_2_a_claim_is_requeued_once(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let id = add(store, NewTask { due: Due::After(1), ..new_task() }).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let Claim::Leader { claimed, .. } = store.claim_due("worker-s", 10).await.unwrap() else {
        panic!()
    };
    assert_eq!(claimed, [id]);
    assert_eq!(status(store, id).await, Status::Pending);
    assert_eq!(store.requeue_claimed(&claimed).await.unwrap().queued, 1);
    assert_eq!(store.requeue_claimed(&claimed).await.unwrap().queued, 0, "repeated");
    assert_eq!(store.queues().await.unwrap()[0].depth, 1);
    // A delayed repetition must not run a later retry before its time.
    let a = holder("a");
    let leased = fetch(store, &a).await.remove(0);
    finish(store, &a, &leased, Outcome::Retry { delay: 60_000, error: error("x") }).await;
    assert_eq!(store.requeue_claimed(&claimed).await.unwrap().queued, 0);
    assert_eq!(status(store, id).await, Status::Retrying);
}

async fn spec_8_3_stale_claims_go_back(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let id = add(store, NewTask { due: Due::After(1), ..new_task() }).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    store.claim_due("worker-s", 10).await.unwrap();
    assert_eq!(store.requeue_stale_claims(60_000).await.unwrap(), 0, "60 s have not passed");
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(store.requeue_stale_claims(1).await.unwrap(), 1);
    run_scheduler_until(store, 1).await;
    assert_eq!(fetch(store, &holder("a")).await[0].lease.id, id);
}

async fn spec_8_1_h17_one_leader_at_a_time(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    assert!(matches!(store.claim_due("worker-a", 10).await.unwrap(), Claim::Leader { .. }));
    let Claim::Follower { retry_after } = store.claim_due("worker-b", 10).await.unwrap() else {
        panic!()
    };
    assert!(retry_after <= 10_000);
    store.step_down("worker-b").await.unwrap();
    assert!(matches!(store.claim_due("worker-b", 10).await.unwrap(), Claim::Follower { .. }));
    store.step_down("worker-a").await.unwrap();
    assert!(matches!(store.claim_due("worker-b", 10).await.unwrap(), Claim::Leader { .. }));
}

async fn spec_9_3_dead_letters_are_listed_requeued_discarded_and_purged(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let (a, ada) = (holder("a"), Actor("ada".to_owned()));
    let mut ids = Vec::new();
    for i in 0..4 {
        ids.push(
            add(store, NewTask { name: format!("t{i}"), ttl: Some(60_000), ..new_task() }).await,
        );
        let leased = fetch(store, &a).await.remove(0);
        finish(store, &a, &leased, Outcome::Dead { error: error("x") }).await;
    }
    let all = DeadLetterFilter::default();
    let page = store.dead_letters(&all, None, 3).await.unwrap();
    let names: Vec<_> = page.items.iter().map(|letter| letter.name.as_str()).collect();
    assert_eq!(names, ["t3", "t2", "t1"], "newest first");
    let rest = store.dead_letters(&all, page.next.as_deref(), 3).await.unwrap();
    assert_eq!(rest.items.len(), 1);
    let letter = &rest.items[0];
    assert_eq!(
        (&letter.error.message[..], letter.attempts, letter.worker_id.as_deref()),
        ("x", 1, Some("worker-a"))
    );
    assert_eq!(letter.payload, b"{\"to\":\"ada\"}");
    let expires = info(store, ids[0]).await.expires_ms;
    tokio::time::sleep(Duration::from_millis(3)).await;
    assert_eq!(store.resurrect(&ids[..1], &ada).await.unwrap(), [Ok(())]);
    let back = info(store, ids[0]).await;
    assert_eq!((back.status, back.attempt), (Status::Queued, 1));
    assert!(back.expires_ms > expires, "4.6: the ttl restarts");
    assert_eq!(back.metadata.as_deref(), Some("{\"previous_attempts\":[1]}"));
    let twice = store.resurrect(&ids[..1], &ada).await.unwrap();
    assert_eq!(twice, [Err(Resurrection::Not(Status::Queued))]);
    assert_eq!(store.discard(&ids[1..2], true, &ada).await.unwrap(), [true]);
    assert_eq!(store.discard(&ids[1..2], true, &ada).await.unwrap(), [false]);
    let kept = info(store, ids[1]).await;
    assert_eq!(
        (kept.status, kept.metadata.as_deref()),
        (Status::DeadLettered, Some("{\"discarded\":true}"))
    );
    assert_eq!(store.discard(&ids[2..3], false, &ada).await.unwrap(), [true]);
    assert!(store.task(ids[2]).await.unwrap().is_none());
    assert_eq!(store.dead_letters(&all, None, 10).await.unwrap().items.len(), 1);
    let trail = store.audit_trail(10).await.unwrap();
    let actions: Vec<_> =
        trail.iter().map(|line| (line.actor.as_str(), line.action.as_str())).collect();
    assert_eq!(actions, [("ada", "purge"), ("ada", "discard"), ("ada", "requeue")]);
    assert_eq!(trail[2].target, ids[0].to_string());
    assert_eq!(fetch(store, &a).await[0].lease.id, ids[0], "it runs again");
}

async fn spec_9_4_a_paused_queue_is_not_fetched_and_a_purge_cancels_what_waits(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let (a, ada) = (holder("a"), Actor("ada".to_owned()));
    let runs = add(store, new_task()).await;
    let leased = fetch(store, &a).await.remove(0);
    let waits = add(store, new_task()).await;
    store.set_paused("default", true, &ada).await.unwrap();
    assert!(fetch(store, &a).await.is_empty());
    assert!(store.queues().await.unwrap()[0].paused);
    store.set_paused("default", false, &ada).await.unwrap();
    assert_eq!(store.purge_chunk("default", &ada).await.unwrap(), (1, false));
    assert_eq!(status(store, waits).await, Status::Cancelled);
    assert!(fetch(store, &a).await.is_empty());
    assert_eq!(finish(store, &a, &leased, ok("1")).await, Finished::Applied(Status::Succeeded));
    assert_eq!(status(store, runs).await, Status::Succeeded);
    assert_eq!(store.queues().await.unwrap()[0].depth, 0);
}

async fn spec_9_5_listings_find_every_task_where_it_is(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let a = holder("a");
    let mut wanted = std::collections::BTreeMap::new();
    for (outcome, ends) in [
        (ok("1"), Status::Succeeded),
        (Outcome::Dead { error: error("x") }, Status::DeadLettered),
        (Outcome::Retry { delay: 60_000, error: error("x") }, Status::Retrying),
    ] {
        let id = add(store, new_task()).await;
        let leased = fetch(store, &a).await.remove(0);
        finish(store, &a, &leased, outcome).await;
        wanted.insert(ends, id);
    }
    wanted.insert(Status::Running, add(store, new_task()).await);
    fetch(store, &a).await;
    wanted.insert(Status::Queued, add(store, new_task()).await);
    wanted.insert(
        Status::Pending,
        add(store, NewTask { due: Due::After(60_000), ..new_task() }).await,
    );
    for (status, id) in &wanted {
        let filter = TaskFilter { status: Some(*status), ..TaskFilter::default() };
        let page = store.tasks(&filter, None, 10).await.unwrap();
        assert_eq!(page.items.iter().map(|t| t.id).collect::<Vec<_>>(), [*id], "{status}");
        assert_eq!(page.next, None);
    }
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.tasks(&TaskFilter::default(), cursor.as_deref(), 2).await.unwrap();
        all.extend(page.items.into_iter().map(|t| t.id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    all.sort_unstable();
    let mut ids: Vec<_> = wanted.into_values().collect();
    ids.sort_unstable();
    assert_eq!(all, ids);
    assert!(store.tasks(&TaskFilter::default(), Some("garbage"), 2).await.is_err());
}

async fn spec_5_4_payloads_come_back_byte_for_byte(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let a = holder("a");
    let payload = Bytes::from_static(b"{\"n\":9007199254740993,\"e\":{},\"l\":[],\"f\":1.0,\"z\":\"\0\xf0\x9f\x8e\x89\"}\n\xff\xfe");
    let metadata = "{\"a\":1.0,\"b\":[],\"c\":{}}".to_owned();
    let task = NewTask { payload: payload.clone(), metadata: Some(metadata.clone()), ..new_task() };
    let id = add(store, task).await;
    let leased = fetch(store, &a).await.remove(0);
    assert_eq!(leased.payload, payload);
    assert_eq!(leased.metadata, Some(metadata));
    finish(store, &a, &leased, Outcome::Retry { delay: 1, error: error("x") }).await;
    run_scheduler_until(store, 1).await;
    let leased = fetch(store, &a).await.remove(0);
    assert_eq!(leased.payload, payload, "after a retry");
    finish(store, &a, &leased, Outcome::Dead { error: error("x") }).await;
    let letters = store.dead_letters(&DeadLetterFilter::default(), None, 1).await.unwrap();
    assert_eq!(letters.items[0].payload, payload, "in the DLQ");
    store.resurrect(&[id], &Actor("ada".to_owned())).await.unwrap();
    let leased = fetch(store, &a).await.remove(0);
    assert_eq!(leased.payload, payload, "after a requeue");
    let result = "[1.0,{},[],9007199254740993,1e308,-0.0,\"\u{0}\"]";
    finish(
        store,
        &a,
        &leased,
        Outcome::Succeeded { result: KeptResult::Json(Bytes::from_static(result.as_bytes())) },
    )
    .await;
    assert_eq!(info(store, id).await.result, ResultInfo::Json(result.to_owned()), "I7");
}

async fn spec_7_9_a_registered_id_is_taken_until_it_is_taken_over(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let beat = |incarnation: &str| Heartbeat {
        holder: Holder { worker_id: "w1".to_owned(), incarnation: incarnation.to_owned() },
        queues: vec!["default".to_owned(), "mail".to_owned()],
        concurrency: 4,
        in_flight: 1,
        interval: 5000,
        pid: 42,
        host: "h".to_owned(),
    };
    assert_eq!(store.register(&beat("one"), false).await.unwrap(), Registered::Done);
    store.heartbeat(&beat("one")).await.unwrap();
    let Registered::Taken { incarnation, last_seen_ago } =
        store.register(&beat("two"), false).await.unwrap()
    else {
        panic!("two workers have one id")
    };
    assert_eq!(incarnation, "one");
    assert!(last_seen_ago < 5000);
    assert_eq!(store.register(&beat("two"), true).await.unwrap(), Registered::Done);
    store.deregister(&beat("one").holder).await.unwrap();
    let workers = store.workers().await.unwrap();
    assert_eq!(
        (workers.len(), workers[0].incarnation.as_str(), workers[0].stale),
        (1, "two", false)
    );
    assert_eq!(workers[0].queues, ["default", "mail"]);
    store.deregister(&beat("two").holder).await.unwrap();
    assert!(store.workers().await.unwrap().is_empty());
}

async fn c11_ten_reapers_at_once_adopt_each_task_once(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let (a, live) = (holder("a"), holder("live"));
    store.enqueue(&[(0..500).map(|_| new_task()).collect()]).await.unwrap();
    assert_eq!(fetch_n(store, &live, 500, 60_000).await.len(), 500);
    let dead: Vec<NewTask> = (0..500).map(|_| new_task()).collect();
    let mut ids: Vec<_> = dead.iter().map(|task| task.id).collect();
    store.enqueue(&[dead]).await.unwrap();
    assert_eq!(fetch_n(store, &a, 500, 1).await.len(), 500);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let reapers = (0..10).map(|_| async {
        let mut taken = Vec::new();
        loop {
            let reaped = store.reap(100).await.unwrap();
            let more = reaped.full;
            taken.extend(reaped.redelivered);
            if !more {
                return taken;
            }
        }
    });
    let mut taken: Vec<_> = futures_util::future::join_all(reapers).await.concat();
    taken.sort_unstable();
    ids.sort_unstable();
    assert_eq!(taken, ids);
    for leased in fetch_n(store, &a, 1000, 60_000).await {
        assert_eq!(leased.lease.attempt, 2);
    }
}

async fn spec_3_7_the_history_keeps_the_last_20_attempts(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let a = holder("a");
    let id = add(store, NewTask { max_attempts: 100, ..new_task() }).await;
    for n in 1..=25 {
        let leased = fetch(store, &a).await.remove(0);
        assert_eq!(leased.lease.attempt, n);
        let error = error("a \"quoted\" \u{1f389} text");
        finish(store, &a, &leased, Outcome::Retry { delay: 0, error }).await;
        run_scheduler_until(store, 1).await;
    }
    let history = info(store, id).await.history;
    assert_eq!(history.len(), 20);
    assert_eq!((history[0].attempt, history[19].attempt), (6, 25));
    assert_eq!(history[19].error.as_ref().unwrap().message, "a \"quoted\" \u{1f389} text");
}

async fn spec_6_1_a_time_in_the_past_means_now(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    for due in [Due::At(0), Due::At(1), Due::After(0)] {
        let id = add(store, NewTask { due, ..new_task() }).await;
        assert_eq!(status(store, id).await, Status::Queued, "{due:?}");
    }
}

/// SPEC 1 and 4 once more, written without a look at the stores: where one task stands, and its attempt.
#[derive(Debug, Clone, PartialEq)]
struct Model {
    status: Status,
    attempt: u32,
    max: u32,
    cancel_requested: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    Fetch,
    Lapse,
    Requeue,
    Succeed,
    FailRetryably,
    FailForGood,
    Release,
    Snooze,
    Cancel,
    Resurrect,
    RepeatFinish,
}

impl Model {
    /// What the step does to the task; what does not apply does nothing.
    fn take(&mut self, step: Step) {
        use Status::*;
        let running = self.status == Running;
        let unless_cancelled =
            |model: &Self, to| if model.cancel_requested { Cancelled } else { to };
        match (step, self.status) {
            (Step::Fetch, Queued) => self.status = Running,
            (Step::Lapse, Running) if self.cancel_requested => self.status = Cancelled,
            (Step::Lapse, Running) if self.attempt >= self.max => self.status = DeadLettered,
            (Step::Lapse, Running) => {
                self.status = Queued;
                self.attempt += 1;
            }
            (Step::Requeue, Retrying) => {
                self.status = Queued;
                self.attempt += 1;
            }
            (Step::Requeue, Pending) => self.status = Queued,
            (Step::Succeed, Running) => self.status = Succeeded,
            (Step::FailRetryably, Running) if self.attempt < self.max => {
                self.status = unless_cancelled(self, Retrying);
            }
            (Step::FailRetryably | Step::FailForGood, Running) => {
                self.status = unless_cancelled(self, DeadLettered);
            }
            (Step::Release, Running) => self.status = unless_cancelled(self, Queued),
            (Step::Snooze, Running) => self.status = unless_cancelled(self, Pending),
            (Step::Cancel, Running) => self.cancel_requested = true,
            (Step::Cancel, Pending | Queued | Retrying) => self.status = Cancelled,
            (Step::Resurrect, DeadLettered | Failed | Cancelled | Expired) => {
                self.status = Queued;
                self.attempt = 1;
            }
            _ => {}
        }
        if running && self.status != Running {
            self.cancel_requested = false;
        }
    }
}

async fn spec_4_attempts_follow_the_model_through_random_histories(make: Make) {
    use Step::*;
    const STEPS: [Step; 11] = [
        Fetch,
        Lapse,
        Requeue,
        Succeed,
        FailRetryably,
        FailForGood,
        Release,
        Snooze,
        Cancel,
        Resurrect,
        RepeatFinish,
    ];
    let bench = make(&settings());
    let store = &*bench.store;
    let who = holder("m");
    for seed in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let max = rng.u32(1..=4);
        let id = add(store, NewTask { max_attempts: max, ..new_task() }).await;
        let mut model = Model { status: Status::Queued, attempt: 1, max, cancel_requested: false };
        let mut held: Option<Leased> = None;
        let mut finished: Option<(Leased, Outcome)> = None;
        let mut history = Vec::new();
        for _ in 0..40 {
            // Fetching more often makes longer lives.
            let step = if model.status == Status::Queued && rng.bool() {
                Fetch
            } else {
                *rng.choice(STEPS.iter()).unwrap()
            };
            history.push(step);
            let outcome = match step {
                Succeed => Some(ok("1")),
                FailRetryably if model.attempt < max => {
                    Some(Outcome::Retry { delay: 0, error: error("x") })
                }
                FailRetryably | FailForGood => Some(Outcome::Dead { error: error("x") }),
                Release => Some(Outcome::Released),
                Snooze => Some(Outcome::Snoozed { delay: 0, unknown_type: false }),
                _ => None,
            };
            match step {
                Fetch => {
                    let got = fetch_n(store, &who, 1, 60_000).await;
                    assert_eq!(
                        got.len(),
                        usize::from(model.status == Status::Queued),
                        "{seed} {history:?}"
                    );
                    if let Some(leased) = got.into_iter().next() {
                        held = Some(leased);
                    }
                }
                Lapse => {
                    if let (Some(leased), Status::Running) = (&held, model.status) {
                        store.renew(&who, 1, std::slice::from_ref(&leased.lease)).await.unwrap();
                        while status(store, id).await == Status::Running {
                            store.reap(10).await.unwrap();
                        }
                    }
                }
                Requeue => {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    let Claim::Leader { claimed, .. } =
                        store.claim_due("worker-s", 10).await.unwrap()
                    else {
                        panic!("nobody else leads")
                    };
                    store.requeue_claimed(&claimed).await.unwrap();
                }
                Cancel => {
                    store.cancel(id).await.unwrap();
                }
                Resurrect => {
                    store.resurrect(&[id], &Actor("m".to_owned())).await.unwrap();
                }
                RepeatFinish => {
                    if let Some((leased, outcome)) = &finished {
                        let again = finish(store, &who, leased, outcome.clone()).await;
                        assert!(!matches!(again, Finished::Applied(_)), "{seed} {history:?}");
                    }
                }
                _ => {
                    if let (Some(leased), Some(outcome), Status::Running) =
                        (&held, &outcome, model.status)
                    {
                        let done = finish(store, &who, leased, outcome.clone()).await;
                        assert!(
                            matches!(done, Finished::Applied(_)),
                            "{seed} {history:?}: {done:?}"
                        );
                        finished = Some((leased.clone(), outcome.clone()));
                    }
                }
            }
            model.take(step);
            let now = info(store, id).await;
            assert_eq!(
                (now.status, now.attempt),
                (model.status, model.attempt),
                "{seed} {history:?}"
            );
            assert_eq!(now.cancel_requested, model.cancel_requested, "{seed} {history:?}");
        }
        // Out of the way of the next history.
        store.cancel(id).await.unwrap();
        if let (Some(leased), Status::Running) = (&held, model.status) {
            finish(store, &who, leased, ok("1")).await;
        }
    }
}

/// Every outcome from every status: what the table does not allow changes nothing.
async fn spec_1_1_only_moves_of_the_table_happen(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let a = holder("a");
    let outcomes = [
        ok("1"),
        Outcome::Retry { delay: 60_000, error: error("x") },
        Outcome::Dead { error: error("x") },
        Outcome::Cancelled,
        Outcome::Released,
        Outcome::Snoozed { delay: 60_000, unknown_type: false },
    ];
    for first in &outcomes {
        for second in &outcomes {
            let id = add(store, new_task()).await;
            let leased = fetch(store, &a).await.into_iter().find(|l| l.lease.id == id).unwrap();
            let Finished::Applied(after) = finish(store, &a, &leased, first.clone()).await else {
                panic!("a held lease's finish is written")
            };
            Status::Running.check_move(after).unwrap();
            let again = finish(store, &a, &leased, second.clone()).await;
            assert_eq!(again, Finished::Already, "{first:?} {second:?}");
            assert_eq!(status(store, id).await, after);
            store.cancel(id).await.unwrap();
        }
    }
}

async fn spec_4_6_an_admin_requeue_starts_anew_and_remembers(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let (a, ada) = (holder("a"), Actor("ada".to_owned()));
    let own = Some("{\"mine\":1.0}".to_owned());
    let id = add(store, NewTask { max_attempts: 2, metadata: own, ..new_task() }).await;
    for round in 0..2 {
        let leased = fetch(store, &a).await.remove(0);
        assert_eq!(leased.lease.attempt, 1);
        if round == 0 {
            finish(store, &a, &leased, Outcome::Retry { delay: 0, error: error("x") }).await;
            run_scheduler_until(store, 1).await;
            let leased = fetch(store, &a).await.remove(0);
            finish(store, &a, &leased, Outcome::Dead { error: error("x") }).await;
        } else {
            finish(store, &a, &leased, Outcome::Dead { error: error("x") }).await;
        }
        assert_eq!(store.resurrect(&[id], &ada).await.unwrap(), [Ok(())]);
        assert!(
            store
                .dead_letters(&DeadLetterFilter::default(), None, 1)
                .await
                .unwrap()
                .items
                .is_empty()
        );
    }
    let metadata = info(store, id).await.metadata.unwrap();
    let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
    assert_eq!(metadata, serde_json::json!({"mine": 1.0, "previous_attempts": [2, 1]}));
    // So are cancelled ones, and nothing else.
    store.cancel(id).await.unwrap();
    assert_eq!(store.resurrect(&[id], &ada).await.unwrap(), [Ok(())]);
    let leased = fetch(store, &a).await.remove(0);
    let running = store.resurrect(&[id], &ada).await.unwrap();
    assert_eq!(running, [Err(Resurrection::Not(Status::Running))]);
    finish(store, &a, &leased, ok("1")).await;
    let succeeded = store.resurrect(&[id, TaskId::new(0)], &ada).await.unwrap();
    assert_eq!(succeeded, [Err(Resurrection::Not(Status::Succeeded)), Err(Resurrection::NotFound)]);
}

async fn spec_9_6_ended_tasks_leave_with_their_retention(make: Make) {
    let bench = make(&Settings { result_retention: 60_000, task_retention: 30, ..settings() });
    let store = &*bench.store;
    let a = holder("a");
    let keeps = add(store, new_task()).await;
    let leaves = add(store, NewTask { retention: Some(30), ..new_task() }).await;
    let dies = add(store, new_task()).await;
    let live =
        add(store, NewTask { retention: Some(30), due: Due::After(60_000), ..new_task() }).await;
    for leased in fetch(store, &a).await {
        let outcome =
            if leased.lease.id == dies { Outcome::Dead { error: error("x") } } else { ok("\"r\"") };
        finish(store, &a, &leased, outcome).await;
    }
    let started = std::time::Instant::now();
    for id in [leaves, dies] {
        while store.task(id).await.unwrap().is_some() {
            assert!(started.elapsed() < Duration::from_secs(10), "{id} stays");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert_eq!(info(store, keeps).await.result, ResultInfo::Json("\"r\"".to_owned()));
    assert_eq!(status(store, live).await, Status::Pending, "a live record never expires (H7)");
}

async fn h12_bulk_requeues_at_once_take_each_letter_once_and_a_purge_leaves_nothing(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let (a, ada) = (holder("a"), Actor("ada".to_owned()));
    let tasks: Vec<NewTask> = (0..60)
        .map(|n| NewTask {
            idempotency: Some(Idempotency { key: format!("k{n}"), fingerprint: "f".to_owned() }),
            ..new_task()
        })
        .collect();
    let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    store.enqueue(std::slice::from_ref(&tasks)).await.unwrap();
    for leased in fetch(store, &a).await {
        finish(store, &a, &leased, Outcome::Dead { error: error("x") }).await;
    }
    let both = futures_util::future::join(
        store.resurrect(&ids[..40], &ada),
        store.resurrect(&ids[..40], &ada),
    )
    .await;
    let taken = |answers: &[Result<(), Resurrection>]| {
        answers.iter().filter(|answer| answer.is_ok()).count()
    };
    assert_eq!(taken(&both.0.unwrap()) + taken(&both.1.unwrap()), 40);
    assert_eq!(store.queues().await.unwrap()[0].depth, 40);
    assert_eq!(store.discard(&ids[40..], false, &ada).await.unwrap(), vec![true; 20]);
    assert_eq!(store.discard(&ids[40..], false, &ada).await.unwrap(), vec![false; 20]);
    assert!(
        store.dead_letters(&DeadLetterFilter::default(), None, 100).await.unwrap().items.is_empty()
    );
    for id in &ids[40..] {
        assert!(store.task(*id).await.unwrap().is_none());
    }
    let again: Vec<NewTask> =
        tasks[40..].iter().map(|task| NewTask { id: TaskId::new(0), ..task.clone() }).collect();
    assert_eq!(
        store.enqueue(&[again]).await.unwrap(),
        [Ok(vec![Accepted::New; 20])],
        "their keys are free"
    );
}

async fn h18_a_late_finish_leaves_a_newer_tasks_key_alone(make: Make) {
    let bench = make(&Settings { task_retention: 0, idempotency_ttl: 1, ..settings() });
    let store = &*bench.store;
    let a = holder("a");
    let keyed = || NewTask {
        idempotency: Some(Idempotency { key: "k".to_owned(), fingerprint: "f".to_owned() }),
        max_attempts: 1,
        ..new_task()
    };
    add(store, keyed()).await;
    let old = fetch_n(store, &a, 1, 1).await.remove(0);
    reap(store).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let newer = add(store, keyed()).await;
    assert_ne!(finish(store, &a, &old, ok("1")).await, Finished::Applied(Status::Succeeded));
    let answer = store.enqueue(&[vec![keyed()]]).await.unwrap().remove(0);
    assert_eq!(answer, Err(Refusal::IdempotencyInProgress { task_id: newer }));
}

async fn h23_what_is_redelivered_into_a_paused_queue_waits(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let (a, ada) = (holder("a"), Actor("ada".to_owned()));
    let id = add(store, new_task()).await;
    fetch_n(store, &a, 1, 1).await;
    store.set_paused("default", true, &ada).await.unwrap();
    assert_eq!(reap(store).await.redelivered, [id]);
    assert!(fetch(store, &a).await.is_empty());
    store.set_paused("default", false, &ada).await.unwrap();
    assert_eq!(fetch(store, &a).await.len(), 1);
}

async fn c36_a_scheduler_that_dies_after_each_of_its_steps_loses_and_doubles_nothing(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let id = add(store, NewTask { due: Due::After(1), ..new_task() }).await;
    tokio::time::sleep(Duration::from_millis(3)).await;
    // Dies after claiming, twice; its claims are found to be stale.
    for _ in 0..2 {
        let Claim::Leader { claimed, .. } = store.claim_due("worker-s", 10).await.unwrap() else {
            panic!()
        };
        assert_eq!(claimed, [id]);
        tokio::time::sleep(Duration::from_millis(3)).await;
        assert_eq!(store.requeue_stale_claims(1).await.unwrap(), 1);
    }
    // Dies after requeueing, before it knew: nothing of the claim is left.
    let Claim::Leader { claimed, .. } = store.claim_due("worker-s", 10).await.unwrap() else {
        panic!()
    };
    store.requeue_claimed(&claimed).await.unwrap();
    tokio::time::sleep(Duration::from_millis(3)).await;
    assert_eq!(store.requeue_stale_claims(1).await.unwrap(), 0);
    run_scheduler_until(store, 0).await;
    assert_eq!(fetch(store, &holder("a")).await.len(), 1, "queued once");
}

async fn c35_ten_schedulers_at_once_start_each_task_once(make: Make) {
    let bench = make(&settings());
    let store = &*bench.store;
    let tasks: Vec<_> = (0..300).map(|_| NewTask { due: Due::After(20), ..new_task() }).collect();
    store.enqueue(&[tasks]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(25)).await;
    let schedulers = (0..10).map(|n| async move {
        let id = format!("worker-{n}");
        let mut queued = 0;
        for _ in 0..10 {
            if let Claim::Leader { claimed, .. } = store.claim_due(&id, 100).await.unwrap() {
                queued += store.requeue_claimed(&claimed).await.unwrap().queued;
            }
            store.step_down(&id).await.unwrap();
        }
        queued
    });
    let queued: usize = futures_util::future::join_all(schedulers).await.into_iter().sum();
    assert_eq!(queued, 300);
    assert_eq!(fetch_n(store, &holder("a"), 1000, 30_000).await.len(), 300);
}

async fn what_is_taken_out_stands_aside_and_a_repeated_put_is_known(make: Make) {
    let (from, to) = (make(&settings()), make(&settings()));
    let (from, to) = (&*from.store, &*to.store);
    let me = holder("a");
    // A letter whose record leaves with it, an ended key, a task that runs, one that waits.
    let gone = NewTask { retention: Some(0), ..new_task() };
    add(from, gone).await;
    let leased = fetch(from, &me).await;
    finish(from, &me, &leased[0], Outcome::Dead { error: error("gone") }).await;
    let key = Idempotency { key: "k".to_owned(), fingerprint: "f".to_owned() };
    add(from, NewTask { idempotency: Some(key.clone()), ..new_task() }).await;
    let leased = fetch(from, &me).await;
    finish(from, &me, &leased[0], ok("1")).await;
    add(from, new_task()).await;
    let runs = fetch(from, &me).await;
    let waits = add(from, new_task()).await;

    let mut seen = Vec::new();
    loop {
        let taken = from.take_out(1).await.unwrap();
        assert_eq!(taken.running, 1);
        let Some(item) = taken.moved.first().cloned() else { break };
        // A call that was repeated after a lost reply, and a process that was killed before the put.
        let again = from.take_out(1).await.unwrap();
        assert_eq!(again.moved, std::slice::from_ref(&item));
        seen.push(item.mark.clone());
        let marks = [item.mark.clone()];
        // Killed before the drop: it is put again.
        to.put_in(std::slice::from_ref(&item)).await.unwrap();
        if item.is_task() {
            // And by then it has run.
            assert_eq!(fetch(from, &me).await.len(), 0, "nobody runs it where it was");
            let leased = fetch(to, &me).await;
            assert_eq!(leased[0].lease.id, waits);
            finish(to, &me, &leased[0], ok("2")).await;
        }
        to.put_in(&[item]).await.unwrap();
        assert_eq!(fetch(to, &me).await.len(), 0);
        from.drop_taken(&marks).await.unwrap();
        from.drop_taken(&marks).await.unwrap();
        to.forget_marks(&marks).await.unwrap();
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
    let letters = to.dead_letters(&DeadLetterFilter::default(), None, 10).await.unwrap().items;
    assert_eq!(letters.len(), 1, "{letters:?}");
    let second = NewTask { idempotency: Some(key), ..new_task() };
    let answer = to.enqueue(&[vec![second]]).await.unwrap();
    assert!(matches!(answer[0].as_deref(), Ok([Accepted::Duplicate(_)])), "{answer:?}");
    // What ran is still its worker's to finish.
    assert_eq!(finish(from, &me, &runs[0], ok("3")).await, Finished::Applied(Status::Succeeded));
    assert_eq!(from.take_out(1).await.unwrap().running, 0);
}
