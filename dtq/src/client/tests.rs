//! The producer's side against a real server; what a worker would do is done by hand.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::enqueue::EnqueueError;
use crate::handle::{CancelError, Cancelled, TaskFailure};
use crate::inspect::{DeadLetterFilter, Resurrection, TaskFilter};
use crate::status::Status;
use crate::store::tests::redis_server::Server;
use crate::store::{ErrorInfo, FetchRequest, Finish, Holder, KeptResult, Leased, Outcome};
use crate::task::{Definition, EncodeError};

/// What the attribute would generate for `async fn greet(name: String) -> String`.
#[derive(Debug, Clone)]
struct Greet(&'static str);

impl Task for Greet {
    const NAME: &'static str = "greet";
    type Output = String;

    fn definition() -> &'static Definition {
        RawTask::definition()
    }

    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        if self.0 == "bad" {
            return Err(EncodeError("NaN is not a number that JSON can hold".to_owned()));
        }
        Ok(serde_json::to_vec(&serde_json::json!({ "name": self.0 })).unwrap())
    }
}

struct Rig {
    client: Client,
    server: Server,
}

fn rig_with(configure: impl FnOnce(crate::ConfigBuilder) -> crate::ConfigBuilder) -> Rig {
    let server = Server::start();
    let config = configure(Config::builder().url(server.url())).build().unwrap();
    Rig { client: Client::builder().config(config).build().unwrap(), server }
}

fn rig() -> Rig {
    rig_with(|config| config)
}

impl Rig {
    /// Runs store calls on dtq's thread, where the connection lives.
    async fn on_io<T: Send + 'static, F: Future<Output = StoreResult<T>> + Send + 'static>(
        &self,
        call: impl FnOnce(Arc<dyn Store>) -> F,
    ) -> T {
        self.client.io().run(call(Arc::clone(self.client.store()))).await.unwrap()
    }

    async fn fetch(&self) -> Vec<Leased> {
        let request = FetchRequest {
            holder: holder(),
            queues: vec!["default".to_owned()],
            max: 100,
            visibility: 30_000,
            nonce: fastrand::u64(..),
        };
        self.on_io(|store| async move { store.fetch(&request).await }).await.leased
    }

    async fn finish(&self, leased: Leased, outcome: Outcome) {
        let finish = Finish { lease: leased.lease, outcome };
        self.on_io(|store| async move { store.finish(&holder(), &[finish]).await }).await;
    }

    /// Runs the one task that waits.
    async fn run_one(&self, outcome: Outcome) {
        let leased = self.fetch().await.pop().unwrap();
        self.finish(leased, outcome).await;
    }
}

fn holder() -> Holder {
    Holder { worker_id: "worker-t".to_owned(), incarnation: "t".to_owned() }
}

fn ok(json: &'static str) -> Outcome {
    Outcome::Succeeded { result: KeptResult::Json(Bytes::from_static(json.as_bytes())) }
}

fn dead() -> Outcome {
    let (class, message) = ("MailError".to_owned(), "smtp down".to_owned());
    Outcome::Dead { error: ErrorInfo { class, message, retryable: false } }
}

#[tokio::test]
async fn c23_a_result_that_is_waited_for_before_it_is_there_arrives_at_once() {
    let rig = rig();
    let handle = rig.client.enqueue(Greet("ada")).await.unwrap();
    assert_eq!(handle.status().await.unwrap(), Status::Queued);
    let waiting = tokio::spawn({
        let handle = handle.clone();
        async move { handle.result().await }
    });
    // Long enough for it to have read and subscribed; if not, it reads afterwards.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let started = std::time::Instant::now();
    rig.run_one(ok("\"hello ada\"")).await;
    assert_eq!(waiting.await.unwrap().unwrap(), "hello ada");
    assert!(started.elapsed() < Duration::from_secs(4), "by the notice, not by the slow read");
    assert_eq!(handle.result().await.unwrap(), "hello ada", "also afterwards");
}

#[tokio::test]
async fn c23_every_ending_resolves_a_waiter() {
    let rig = rig();
    let client = &rig.client;
    let enqueue = async || client.enqueue(Greet("ada")).await.unwrap();

    let handle = enqueue().await;
    let short = Duration::from_millis(50);
    assert!(matches!(handle.result_within(short).await, Err(TaskFailure::TimedOut)));
    rig.run_one(dead()).await;
    let failed = handle.result_within(Duration::MAX).await.unwrap_err();
    assert_eq!(failed.to_string(), "the task failed at attempt 1: MailError: smtp down");

    let handle = enqueue().await;
    assert_eq!(handle.cancel().await.unwrap(), Cancelled::Done);
    assert!(matches!(handle.result().await, Err(TaskFailure::Cancelled)));
    assert!(matches!(handle.cancel().await, Err(CancelError::Ended(Status::Cancelled))));

    let handle = client.enqueue(Greet("ada")).ttl(Duration::from_millis(1)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(rig.fetch().await.is_empty());
    assert!(matches!(handle.result().await, Err(TaskFailure::Expired)));

    let handle = enqueue().await;
    rig.run_one(Outcome::Succeeded { result: KeptResult::TooLarge { bytes: 9000 } }).await;
    assert!(matches!(handle.result().await, Err(TaskFailure::TooLarge { bytes: 9000 })));

    let handle = enqueue().await;
    rig.run_one(ok("17")).await;
    assert!(matches!(handle.result().await, Err(TaskFailure::Decode(_))));

    let gone = client.handle::<Greet>(TaskId::new(0));
    assert!(matches!(gone.result().await, Err(TaskFailure::Gone)));
    assert!(matches!(gone.status().await, Err(TaskFailure::Gone)));
    assert!(matches!(gone.cancel().await, Err(CancelError::NotFound)));

    let handle = client.enqueue(Greet("ada")).retention(Duration::ZERO).await.unwrap();
    let waiting = tokio::spawn(async move { handle.result().await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    rig.run_one(ok("\"x\"")).await;
    assert!(matches!(waiting.await.unwrap(), Err(TaskFailure::Gone)), "removed at once");
}

#[tokio::test]
async fn i7_a_raw_tasks_result_is_the_very_bytes() {
    let rig = rig();
    let payload = r#"{"n":9007199254740993,"x":[]}"#;
    let handle = rig.client.enqueue_raw("greet", payload).await.unwrap();
    let leased = rig.fetch().await.pop().unwrap();
    assert_eq!((&*leased.name, &leased.payload[..]), ("greet", payload.as_bytes()));
    rig.finish(leased, ok("[1.0, 9007199254740993 ,{}]")).await;
    assert_eq!(handle.result().await.unwrap().as_str(), "[1.0, 9007199254740993 ,{}]");
}

#[test]
fn c30c_one_client_serves_runtimes_one_after_another_and_none() {
    let rig = rig();
    for n in 0..3 {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let handle = runtime.block_on(async { rig.client.enqueue(Greet("ada")).await }).unwrap();
        // Inside a current-thread runtime, which it blocks.
        let other = runtime.block_on(async { rig.client.enqueue(Greet("bob")).send_blocking() });
        assert!(other.unwrap().id() > handle.id());
        drop(runtime);
        rig.client.enqueue(Greet("eve")).send_blocking().unwrap();
        let queues = io::block_on(rig.client.inspect().queues()).unwrap();
        assert_eq!(queues[0].depth, 3 * (n + 1));
    }
}

#[tokio::test]
async fn spec_6_3_many_tasks_go_in_chunks_and_an_error_tells_how_far_it_came() {
    let rig = rig();
    let handles = rig.client.enqueue_all((0..2500).map(|_| Greet("ada"))).await.unwrap();
    assert_eq!(handles.len(), 2500);
    assert!(handles.is_sorted_by_key(Handle::id), "in order");

    let names = (0..2500).map(|n| Greet(if n == 1700 { "bad" } else { "ada" }));
    let error = rig.client.enqueue_all(names).await.unwrap_err();
    assert_eq!(error.accepted.len(), 1000, "the whole chunk of the bad one is refused: {error}");
    assert!(matches!(error.error, EnqueueError::Serialize(_)));

    let mixed = [Greet::into_enqueue("ada").priority(9), Greet::into_enqueue("bob")];
    assert_eq!(rig.client.enqueue_all(mixed).await.unwrap().len(), 2);
    let none: [Greet; 0] = [];
    assert!(rig.client.enqueue_all(none).await.unwrap().is_empty());
    assert_eq!(rig.client.inspect().queues().await.unwrap()[0].depth, 3502);
}

impl Greet {
    fn into_enqueue(name: &'static str) -> Enqueue<Self> {
        Self(name).into()
    }
}

#[tokio::test]
async fn spec_6_2_a_full_queue_is_told_with_its_figures() {
    let rig = rig_with(|config| config.max_queue_depth(2).max_scheduled(1));
    let enqueue = || rig.client.enqueue(Greet("ada"));
    enqueue().await.unwrap();
    enqueue().await.unwrap();
    let full = enqueue().await.unwrap_err();
    assert!(
        matches!(&full, EnqueueError::QueueFull { queue, depth: 2, limit: 2, .. } if queue == "default")
    );
    let delay = Duration::from_secs(60);
    enqueue().delay(delay).await.unwrap();
    let full = enqueue().delay(delay).await.unwrap_err();
    assert!(matches!(full, EnqueueError::ScheduleFull { scheduled: 1, limit: 1 }));
}

#[tokio::test]
async fn spec_6_5_c42_a_key_has_one_task() {
    let rig = rig();
    let enqueue = |name| rig.client.enqueue(Greet(name)).idempotency_key("welcome:42");
    let all: Vec<_> = (0..200).map(|_| tokio::spawn(enqueue("ada").send())).collect();
    let (mut accepted, mut refused) = (Vec::new(), Vec::new());
    for one in all {
        match one.await.unwrap() {
            Ok(handle) => accepted.push(handle),
            Err(EnqueueError::IdempotencyInProgress { task_id }) => refused.push(task_id),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((accepted.len(), refused.len()), (1, 199));
    let id = accepted[0].id();
    assert!(refused.iter().all(|other| *other == id) && !accepted[0].is_duplicate());
    assert!(matches!(
        enqueue("bob").await,
        Err(EnqueueError::IdempotencyMismatch { task_id }) if task_id == id
    ));
    rig.run_one(ok("\"x\"")).await;
    let again = enqueue("ada").await.unwrap();
    assert!(again.is_duplicate() && again.id() == id);
    assert_eq!(again.result().await.unwrap(), "x");
}

#[tokio::test]
async fn h29_a_malformed_event_never_disturbs_a_subscriber() {
    let rig = rig();
    let mut events = rig.client.events();
    let raw = redis::Client::open(rig.server.url()).unwrap();
    let mut raw = raw.get_multiplexed_async_connection().await.unwrap();
    let good = r#"{"event_id":"1","ts":5,"type":"TASK_INVENTED","task_id":"?","new":{}}"#;
    // Whatever the subscriber is not there for yet is published again.
    let publish = tokio::spawn(async move {
        loop {
            for text in ["", "{", "[]", "{\"type\":7}", "\u{0}", good, "nonsense"] {
                let _: redis::RedisResult<u64> =
                    redis::cmd("PUBLISH").arg("dtq:events").arg(text).query_async(&mut raw).await;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let event = events.next().await.unwrap();
    assert_eq!((event.kind, event.task_id), (crate::EventKind::Other, None));
    publish.abort();
    let handle = rig.client.enqueue(Greet("ada")).await.unwrap();
    let queued = loop {
        let event = events.next().await.unwrap();
        if event.kind == crate::EventKind::TaskQueued {
            break event;
        }
    };
    assert_eq!(
        (queued.task_id, &*queued.task_type, queued.attempt),
        (Some(handle.id()), "greet", 1)
    );
    assert_eq!(events.missed(), 0);
}

#[tokio::test]
async fn spec_9_3_and_9_4_administration_is_done_and_audited() {
    let rig = rig();
    let inspect = rig.client.inspect().as_actor("ada\n");
    let handles = rig.client.enqueue_all([Greet("a"), Greet("b"), Greet("c")]).await.unwrap();
    for leased in rig.fetch().await {
        rig.finish(leased, dead()).await;
    }
    let all = DeadLetterFilter::default();
    let letters = inspect.dead_letters(&all, None, 2).await.unwrap();
    assert_eq!((letters.items.len(), &*letters.items[0].error.class), (2, "MailError"));
    assert!(inspect.discard(handles[0].id()).await.unwrap());
    assert!(!inspect.discard(handles[0].id()).await.unwrap());
    let other = DeadLetterFilter::default().queue("other");
    assert_eq!(inspect.requeue_all(&other).await.unwrap().done, 0);
    assert_eq!(inspect.requeue_all(&all.clone().class("MailError")).await.unwrap().done, 2);
    let again = inspect.requeue(handles[1].id()).await.unwrap_err();
    assert!(matches!(again, Error::Requeue(Resurrection::Not(Status::Queued))));
    assert_eq!(handles[1].status().await.unwrap(), Status::Queued);

    inspect.pause("default").await.unwrap();
    assert!(inspect.queues().await.unwrap()[0].paused && rig.fetch().await.is_empty());
    inspect.resume("default").await.unwrap();
    assert!(matches!(inspect.pause("No").await, Err(Error::Invalid { field: "queue", .. })));
    let found =
        inspect.tasks(&TaskFilter::default().status(Status::Queued), None, 10).await.unwrap();
    assert_eq!(found.items.len(), 2);
    assert_eq!(inspect.purge("default").await.unwrap(), 2);
    assert!(matches!(handles[2].result().await, Err(TaskFailure::Cancelled)));

    rig.client.enqueue(Greet("d")).await.unwrap();
    rig.run_one(dead()).await;
    assert_eq!(inspect.purge_dead_letters(&all).await.unwrap(), 1);
    inspect.ping().await.unwrap();
    assert!(inspect.workers().await.unwrap().is_empty());

    let trail = inspect.audit_trail(100).await.unwrap();
    assert!(trail.iter().all(|line| line.actor == "ada"));
    let mut lines: Vec<_> = trail.iter().map(|line| (&*line.action, line.count)).collect();
    lines.reverse();
    let of = |action: &str| lines.iter().filter(|line| line.0 == action).count();
    assert_eq!(
        (of("requeue"), of("pause"), of("resume"), of("discard")),
        (2, 1, 1, 1),
        "{lines:?}"
    );
    assert!(
        lines.contains(&("requeue all end", 2)) && lines.contains(&("purge end", 2)),
        "{lines:?}"
    );
    assert_eq!(*lines.last().unwrap(), ("purge dead letters end", 1));
}

#[tokio::test]
async fn the_default_client_is_the_one_that_was_set() {
    let rig = rig();
    set_default_client(rig.client.clone());
    let handle = Greet::into_enqueue("ada").await.unwrap();
    assert_eq!(rig.client.handle::<Greet>(handle.id()).status().await.unwrap(), Status::Queued);
}

#[test]
fn c28_neither_errors_nor_debug_output_show_the_password() {
    let client = Client::connect("redis://ada:s3cr/et#@localhost:1/2").unwrap();
    assert!(!format!("{client:?}").contains("s3cr"));
    for url in ["redis://ada:s3cret@h:port", "http://ada:s3cret@h", "redis-cluster://ada:s3cret@h"]
    {
        let error = Client::connect(url).unwrap_err();
        assert!(
            matches!(error, Error::Config(_)) && !error.to_string().contains("s3cret"),
            "{error}"
        );
    }
}

impl Rig {
    async fn redis<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let client = redis::Client::open(self.server.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut connection).await.unwrap()
    }

    /// How often scripts were called.
    async fn script_calls(&self) -> u64 {
        let stats: String = self.redis(&["INFO", "commandstats"]).await;
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
    }
}

#[tokio::test]
async fn spec_6_single_enqueues_at_once_share_round_trips_and_one_alone_takes_one() {
    let rig = rig();
    rig.client.enqueue(Greet("first")).await.unwrap();
    let before = rig.script_calls().await;
    rig.client.enqueue(Greet("alone")).await.unwrap();
    assert_eq!(rig.script_calls().await - before, 1);

    let before = rig.script_calls().await;
    let producers: Vec<_> = (0..64)
        .map(|_| {
            let client = rig.client.clone();
            tokio::spawn(async move {
                for _ in 0..50 {
                    client.enqueue(Greet("ada")).await.unwrap();
                }
            })
        })
        .collect();
    for producer in producers {
        producer.await.unwrap();
    }
    let calls = rig.script_calls().await - before;
    assert!(calls <= 3200 / 8, "{calls} round trips for 3200 tasks");
    let before = rig.script_calls().await;
    rig.client.enqueue_all((0..3000).map(|_| Greet("ada"))).await.unwrap();
    assert_eq!(rig.script_calls().await - before, 3);
}

#[tokio::test]
async fn c24_killed_connections_are_renewed_under_enqueues_and_waiters() {
    let rig = rig();
    let handle = rig.client.enqueue(Greet("ada")).await.unwrap();
    let waiting = tokio::spawn({
        let handle = handle.clone();
        async move { handle.result().await }
    });
    while rig.client.waits().waiting() == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..5 {
        for kind in ["normal", "pubsub"] {
            let _: u64 = rig.redis(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]).await;
        }
        rig.client.enqueue(Greet("bob")).await.unwrap();
    }
    let first = rig.fetch().await.into_iter().find(|leased| leased.lease.id == handle.id());
    let _: u64 = rig.redis(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    rig.finish(first.unwrap(), ok("\"hello\"")).await;
    assert_eq!(waiting.await.unwrap().unwrap(), "hello");
    assert_eq!(rig.client.inspect().queues().await.unwrap()[0].depth, 5, "none doubled, none lost");
}

#[tokio::test]
async fn spec_5_1_waiters_that_give_up_leave_nothing_behind() {
    let rig = rig();
    let handle = rig.client.enqueue(Greet("ada")).await.unwrap();
    for _ in 0..20 {
        let given_up = tokio::time::timeout(Duration::from_millis(5), handle.result()).await;
        assert!(given_up.is_err());
        let short = Duration::from_millis(5);
        assert!(matches!(handle.result_within(short).await, Err(TaskFailure::TimedOut)));
    }
    while rig.client.waits().waiting() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c30c_a_runtime_whose_clock_stands_still_is_served_all_the_same() {
    let rig = rig();
    let handle = rig.client.enqueue(Greet("ada")).await.unwrap();
    tokio::time::advance(Duration::from_secs(3600)).await;
    rig.client.enqueue(Greet("ada")).await.unwrap();
    rig.fetch().await;
    assert_eq!(handle.status().await.unwrap(), Status::Running);
}

#[test]
fn every_future_may_travel_between_threads() {
    fn travels<T: Send>(_: &T) {}
    let rig = rig();
    let (client, inspect) = (&rig.client, rig.client.inspect());
    let handle = client.handle::<Greet>(TaskId::new(0));
    travels(&client.enqueue(Greet("ada")).send());
    travels(&client.enqueue_all(vec![Greet("ada")]));
    travels(&client.enqueue_all((0..3).map(|_| Greet("ada"))));
    travels(&(handle.result(), handle.status(), handle.cancel()));
    let filter = DeadLetterFilter::default();
    travels(&(
        inspect.requeue_all(&filter),
        inspect.purge_dead_letters(&filter),
        inspect.purge("q"),
    ));
    travels(&(inspect.task(handle.id()), inspect.tasks(&TaskFilter::default(), None, 1)));
    fn is_error<E: std::error::Error + Send + Sync + 'static>() {}
    is_error::<Error>();
    is_error::<EnqueueError>();
    is_error::<TaskFailure>();
}
