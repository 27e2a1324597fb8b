//! A queue for tests: in memory, with a clock of its own that a test moves.
//!
//! It is the real thing, worker and store, with two differences: tasks are run when the test says so, and
//! time passes when the test says so. A retry that waits for minutes is tried in microseconds.
//!
//! ```standalone_crate
//! # mod dtq_docs {
//! use dtq::testing::TestQueue;
//! use std::time::Duration;
//!
//! #[dtq::task(max_attempts = 5, backoff(base = "1m", jitter = 0.0))]
//! async fn charge(order: u64, #[ctx] ctx: dtq::Context) -> Result<String, dtq::TaskError> {
//!     if ctx.attempt() < 5 {
//!         return Err(dtq::retryable!("the bank is closed"));
//!     }
//!     Ok(format!("order {order} is paid"))
//! }
//!
//! # #[allow(dead_code)]
//! #[tokio::test]
//! # async fn hidden() {}
//! # #[tokio::main(flavor = "current_thread")]
//! # pub
//! async fn an_order_is_charged_until_the_bank_opens() {
//!     let queue = TestQueue::new();
//!     let handle = Charge::enqueue(42).on(&queue).await.unwrap();
//!     assert_eq!(queue.enqueued::<Charge>()[0].order, 42);
//!
//!     queue.drain().await; // the first attempt
//!     assert_eq!(handle.status().await.unwrap(), dtq::Status::Retrying);
//!
//!     queue.advance(Duration::from_secs(3600)).await; // the other four
//!     assert_eq!(handle.result().await.unwrap(), "order 42 is paid");
//! }
//! # }
//! # dtq_docs::an_order_is_charged_until_the_bank_opens();
//! ```
//!
//! # What runs where
//!
//! Task functions run on a thread of the queue's own, on a runtime whose clock is the test's: a
//! [`tokio::time::sleep`] of an hour takes no time, and a timeout of a minute strikes at once. While a task function
//! waits, the clock stands for [`patience`](TestQueueBuilder::patience) of real time before it moves
//! on, and again after 1, 2, 4, 8 seconds and so on, so that an answer of a server beside the test comes
//! before a timeout; it passes as real time does while a
//! task function without `async` runs.
//!
//! # Code that names no client
//!
//! `Charge::enqueue(42).await` uses the process's default client. A test of such code calls
//! `dtq::set_default_client(queue.client().clone())`; tests that run at once in one process share that client.

mod engine;
mod faults;

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt as _;
use serde::de::DeserializeOwned;

use self::engine::{Engine, Time};
use self::faults::{Counts, Fault, Faulty, Op, Plan};
use crate::client::Client;
use crate::config::{Config, StoreUrl, millis};
use crate::error::Result;
use crate::id::TaskId;
use crate::io::Io;
use crate::store::sqlite::{SqliteStore, TestClock, TestView};
use crate::store::{NewTask, StoreResult};
use crate::task::Task;
use crate::worker::{Worker, WorkerBuilder};

/// How long one drain may go on by the clock without a task under way: what does not come forward by
/// then never will.
const STUCK: Duration = Duration::from_secs(600);

/// How finely real time is looked at.
const SLICE: Duration = Duration::from_millis(1);

/// A queue for tests: see the [module](self).
///
/// It is a [`Client`] (by `Deref`), to be given to [`on`](crate::Enqueue::on), and it runs what was
/// enqueued when it is told to. Dropping it drops everything in it.
pub struct TestQueue {
    engine: Engine,
    rig: Arc<Rig>,
}

impl fmt::Debug for TestQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestQueue").finish_non_exhaustive()
    }
}

impl Deref for TestQueue {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client()
    }
}

impl Default for TestQueue {
    fn default() -> Self {
        Self::new()
    }
}

/// What workers did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Drained {
    /// Attempts that were leased to a worker.
    pub attempts: u64,
    /// Tasks that succeeded.
    pub succeeded: u64,
    /// Attempts that failed and will be retried.
    pub retried: u64,
    /// Tasks that failed for good.
    pub failed: u64,
    /// Tasks that were cancelled while they ran.
    pub cancelled: u64,
    /// Outcomes that changed nothing, because their lease was lost.
    pub lost: u64,
}

/// A task that was enqueued: its payload (by `Deref`), and how it was enqueued.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Enqueued<T> {
    /// The payload.
    pub task: T,
    /// Its id.
    pub id: TaskId,
    /// Its queue.
    pub queue: String,
    /// 0 to 9.
    pub priority: u8,
    /// Executions at most.
    pub max_attempts: u32,
    /// What one attempt may take.
    pub timeout: Duration,
    /// The delay that it was enqueued with; a moment, by [`at`](crate::Enqueue::at), counts from the
    /// queue's clock now.
    pub delay: Option<Duration>,
    /// The idempotency key.
    pub idempotency_key: Option<String>,
    /// The metadata.
    pub metadata: serde_json::Map<String, serde_json::Value>,
}

impl<T> Deref for Enqueued<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.task
    }
}

/// A step of a worker, after which its process may be killed ([`TestQueue::crash_after`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// The store has leased tasks to it, of which it does not know yet.
    Fetch,
    /// The task function has returned, and nothing of that is written.
    Run,
    /// The outcome is written, and it does not know that.
    Finish,
    /// The scheduler has claimed what is due, and not put it into the queues.
    Claim,
}

impl TestQueue {
    /// An empty queue with the default configuration, whatever the environment says.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Sets up a queue by hand.
    pub fn builder() -> TestQueueBuilder {
        TestQueueBuilder {
            config: Config::default(),
            worker: Worker::builder(),
            patience: Duration::from_millis(5),
        }
    }

    /// The client of this queue.
    pub fn client(&self) -> &Client {
        &self.rig.client
    }

    /// Runs what can run now, until nothing is left that could: tasks that are ready or due, and what these
    /// enqueue. The clock moves only as far as the task functions themselves wait.
    ///
    /// # Panics
    ///
    /// If a worker cannot start: a task wants a state that nobody gave
    /// ([`state`](TestQueueBuilder::state)), two tasks have one name.
    pub async fn drain(&self) -> Drained {
        self.work(|rig, time| async move { rig.drain(&time).await }).await
    }

    /// Moves the clock on by that much, and on the way runs what becomes due, each at its moment.
    ///
    /// # Panics
    ///
    /// As [`drain`](Self::drain).
    pub async fn advance(&self, by: Duration) -> Drained {
        self.work(move |rig, time| async move { rig.advance(&time, by).await }).await
    }

    /// Moves the clock on, and runs what becomes due, until every task has ended.
    ///
    /// # Panics
    ///
    /// As [`drain`](Self::drain).
    pub async fn drain_all(&self) -> Drained {
        self.work(|rig, time| async move {
            while rig.to_next(&time, None).await? {}
            Ok(())
        })
        .await
    }

    async fn work<F>(&self, job: impl FnOnce(Arc<Rig>, Time) -> F + Send + 'static) -> Drained
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let rig = Arc::clone(&self.rig);
        let done = self.engine.run(move |time| async move {
            let before = rig.plan.counts();
            let result = job(Arc::clone(&rig), time).await;
            result.map(|()| drained(before, rig.plan.counts())).map_err(|error| error.to_string())
        });
        match done.await {
            Ok(Ok(drained)) => drained,
            Ok(Err(problem)) => panic!("the test queue's worker: {problem}"),
            Err(_) => panic!("the test queue's thread has ended"),
        }
    }

    /// The clock's moment; it begins with the system's.
    pub fn now(&self) -> SystemTime {
        let since = self.engine.instant() - self.rig.clock.start;
        UNIX_EPOCH + Duration::from_millis(self.rig.clock.start_ms) + since
    }

    /// The tasks of this type that were accepted so far, in order, by tests as well as by task functions.
    ///
    /// # Panics
    ///
    /// If a payload of that name does not decode as a `T`.
    pub fn enqueued<T: Task + DeserializeOwned>(&self) -> Vec<Enqueued<T>> {
        let definition = T::definition();
        let is_one = |task: &NewTask| {
            task.name == T::NAME || definition.aliases.contains(&task.name.as_str())
        };
        let now = millis(self.now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let all = self.rig.plan.enqueued();
        all.into_iter().filter(is_one).map(|task| enqueued(task, now)).collect()
    }

    /// How many tasks were accepted so far, of whatever type.
    pub fn enqueued_count(&self) -> usize {
        self.rig.plan.enqueued().len()
    }

    /// The next so many calls to the store find it away, of tests and workers alike. They are repeated,
    /// with pauses by the clock.
    pub fn fail_store(&self, calls: u32) {
        self.rig.orders.away.fetch_add(calls, Ordering::Relaxed);
    }

    /// The next so many writes of outcomes, fetches of tasks and enqueues are done, and their answers
    /// lost: they are repeated, which must change nothing.
    pub fn lose_replies(&self, calls: u32) {
        self.rig.orders.deaf.fetch_add(calls, Ordering::Relaxed);
    }

    /// The next so many tasks that a worker fetches lose their lease while they run: each runs again,
    /// as its next attempt, and what the first one comes to changes nothing.
    pub fn lose_leases(&self, tasks: u32) {
        self.rig.plan.lose_leases(tasks);
    }

    /// The next worker that comes to this step is killed there, as by `kill -9`; the next one takes its place.
    /// What it held is redelivered once its leases have lapsed: [`advance`](Self::advance) by more than the
    /// visibility timeout (30 s).
    pub fn crash_after(&self, step: Step) {
        *self.rig.orders.crash.lock().unwrap_or_else(PoisonError::into_inner) = Some(step);
    }
}

/// Sets up a [`TestQueue`].
#[derive(Debug)]
#[must_use]
pub struct TestQueueBuilder {
    config: Config,
    worker: WorkerBuilder,
    patience: Duration,
}

impl TestQueueBuilder {
    /// The configuration of client and workers; without it the defaults. Its URL is not used.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// A value for `#[state]` parameters of exactly this type; each attempt gets a clone.
    pub fn state<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.worker = self.worker.state(value);
        self
    }

    /// How many tasks run at once; without it the configuration's.
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.worker = self.worker.concurrency(tasks);
        self
    }

    /// Only these task types are run, by wire name; without it every one of the program. Others are put
    /// off, as by any worker that does not know them.
    pub fn tasks(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.worker = self.worker.tasks(names);
        self
    }

    /// How long, by real time, a task function that waits is left to wait before the clock moves on, and
    /// again whenever it has moved twice as far; without it 5 ms. More for task functions that ask slow
    /// servers.
    pub fn patience(mut self, real: Duration) -> Self {
        self.patience = real;
        self
    }

    /// The queue.
    ///
    /// # Panics
    ///
    /// If its thread cannot be started.
    pub fn build(self) -> TestQueue {
        let (send, receive) = std::sync::mpsc::channel();
        let prepared = move |io: Io| {
            let rig = Arc::new(Rig::new(self, io));
            let _ = send.send(Arc::clone(&rig));
            move |time: Time| {
                let rig = Arc::clone(&rig);
                async move { rig.serve(&time).await }.boxed()
            }
        };
        let started = Engine::start(prepared);
        match (started, receive.recv()) {
            (Ok(engine), Ok(rig)) => TestQueue { engine, rig },
            (Err(error), _) => panic!("the test queue's thread cannot start: {error}"),
            (_, Err(_)) => panic!("the test queue's thread has ended"),
        }
    }
}

/// What goes wrong by order of the test.
#[derive(Debug, Default)]
struct Orders {
    away: AtomicU32,
    deaf: AtomicU32,
    crash: Mutex<Option<Step>>,
}

impl Orders {
    fn decide(&self, op: Op) -> Fault {
        let take = |left: &AtomicU32| {
            left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1)).is_ok()
        };
        let crash = {
            let mut order = self.crash.lock().unwrap_or_else(PoisonError::into_inner);
            let fault = match (*order, op) {
                (Some(Step::Fetch), Op::Fetched) | (Some(Step::Claim), Op::Claimed) => {
                    Some(Fault::CrashAfter)
                }
                (Some(Step::Run), Op::Finish) => Some(Fault::CrashBefore),
                (Some(Step::Finish), Op::Finish) => Some(Fault::CrashAfter),
                _ => None,
            };
            if fault.is_some() {
                *order = None;
            }
            fault
        };
        if let Some(crash) = crash {
            return crash;
        }
        match op {
            Op::Other if take(&self.away) => Fault::Unavailable,
            Op::Enqueue | Op::Finish if take(&self.away) => Fault::Unavailable,
            Op::Enqueue | Op::Finish | Op::Fetched if take(&self.deaf) => Fault::ReplyLost,
            _ => Fault::None,
        }
    }
}

/// Task functions wait, since the last was fetched: the clock is held at once, and again whenever twice
/// as much time has passed.
struct Waits {
    fetched: u64,
    since: tokio::time::Instant,
    hold_at: tokio::time::Instant,
}

/// All that works on the queue's thread.
struct Rig {
    config: Config,
    worker: WorkerBuilder,
    patience: Duration,
    io: Io,
    clock: TestClock,
    store: Arc<SqliteStore>,
    plan: Arc<Plan>,
    orders: Arc<Orders>,
    client: Client,
}

fn client(config: &Config, io: &Io, store: Arc<Faulty>) -> Client {
    Client::of_store(config.clone(), StoreUrl("sqlite::memory:".to_owned()), store, io.clone())
}

impl Rig {
    fn new(TestQueueBuilder { config, worker, patience }: TestQueueBuilder, io: Io) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock = TestClock { start: tokio::time::Instant::now(), start_ms: millis(since) };
        let store = Arc::new(SqliteStore::of_test(clock, &config.settings()));
        let orders = Arc::new(Orders::default());
        let deciding = Arc::clone(&orders);
        let plan = Arc::new(Plan::new(move |op| deciding.decide(op)));
        let producer = Arc::new(Faulty::of_producer(Arc::clone(&store), Arc::clone(&plan)));
        let client = client(&config, &io, producer);
        Self { config, worker, patience, io, clock, store, plan, orders, client }
    }

    /// Runs workers, one after another, until nothing is left that can run now.
    async fn drain(&self, time: &Time) -> Result<()> {
        let began = tokio::time::Instant::now();
        loop {
            let view = self.store.test_view().await?;
            let ready = view.ready.iter().any(|queue| self.serves(queue));
            if !(ready || view.due) || began.elapsed() > STUCK {
                return Ok(());
            }
            self.work_once(time, view).await?;
        }
    }

    /// Whether workers may fetch from the queue, as far as the configuration says.
    fn serves(&self, queue: &str) -> bool {
        let named = |name: &str| name == "*" || name == queue;
        self.config
            .queues
            .as_ref()
            .is_none_or(|names| names.iter().any(|choice| named(&choice.name)))
    }

    /// One worker, until it has nothing to do, is killed, or does not serve what there is to do.
    async fn work_once(&self, time: &Time, view: TestView) -> Result<()> {
        let seen = Arc::new(Faulty::of_worker(Arc::clone(&self.store), Arc::clone(&self.plan)));
        let mut queues = self.store_queues().await?;
        queues.extend(view.ready);
        queues.extend(crate::registry().iter().map(|task| task.options.queue.to_owned()));
        queues.sort_unstable();
        queues.dedup();
        let mut builder = self.worker.clone().config(self.config.clone()).client(client(
            &self.config,
            &self.io,
            Arc::clone(&seen),
        ));
        if self.config.queues.is_none() {
            builder = builder.queues(queues.clone());
        }
        let (handle, crew) = builder.launch().await?;
        seen.belongs_to(handle.stopper());
        let began = tokio::time::Instant::now();
        let mut waits = None;
        loop {
            time.idle().await;
            if seen.is_dead() {
                return Ok(());
            }
            if crew.flights.any_blocking() {
                // Such a body cannot be waited for by the runtime; time passes as it does for it.
                time.hold(SLICE).await;
                time.until(tokio::time::Instant::now() + SLICE).await;
                continue;
            }
            let fetched = self.plan.counts().fetched;
            let now = tokio::time::Instant::now();
            if waits.as_ref().is_none_or(|waits: &Waits| waits.fetched != fetched) {
                waits = Some(Waits { fetched, since: now, hold_at: now });
            }
            if crew.flights.in_flight() > 0 {
                if let Some(waits) = waits.as_mut().filter(|waits| waits.hold_at <= now) {
                    waits.hold_at = now + (now - waits.since).max(Duration::from_secs(1));
                    let held = std::time::Instant::now();
                    while crew.flights.in_flight() > 0 && held.elapsed() < self.patience {
                        time.hold(self.patience.min(SLICE)).await;
                    }
                } else {
                    time.step().await;
                }
                continue;
            }
            let view = self.store.test_view().await?;
            let mine = view.ready.iter().any(|queue| queues.contains(queue));
            if !(mine || view.due) || began.elapsed() > STUCK {
                break;
            }
            time.step().await;
        }
        handle.shutdown();
        handle.join().await
    }

    async fn store_queues(&self) -> StoreResult<Vec<String>> {
        crate::store::Store::queue_names(&*self.store).await
    }

    async fn advance(&self, time: &Time, by: Duration) -> Result<()> {
        let target = self.clock.now().saturating_add(millis(by));
        while self.to_next(time, Some(target)).await? {}
        Ok(())
    }

    /// Runs what can run now, then moves the clock to where something can again, or to `end`; `false`:
    /// nothing is left to do by then.
    async fn to_next(&self, time: &Time, end: Option<u64>) -> Result<bool> {
        self.drain(time).await?;
        let view = self.store.test_view().await?;
        let next = match (view.next, end) {
            (_, Some(end)) if view.now >= end => return Ok(false),
            (Some(next), Some(end)) => next.min(end),
            (Some(moment), None) | (None, Some(moment)) => moment,
            (None, None) => return Ok(false),
        };
        time.until(self.clock.start + Duration::from_millis(next - self.clock.start_ms)).await;
        Ok(true)
    }

    /// Somebody waits for an answer, or for a task to end: the clock moves for them.
    async fn serve(&self, time: &Time) {
        loop {
            time.idle().await;
            match time.pending() {
                (0, 0) => return,
                // A call that pauses before it is repeated.
                (1.., _) => time.step().await,
                (0, _) => match self.to_next(time, None).await {
                    Ok(true) => {}
                    // Nothing can happen before somebody does something.
                    Ok(false) => {
                        time.idle().await;
                        return;
                    }
                    Err(error) => {
                        tracing::error!(%error, "the test queue's worker cannot work");
                        return;
                    }
                },
            }
        }
    }
}

fn drained(before: Counts, after: Counts) -> Drained {
    Drained {
        attempts: after.fetched - before.fetched,
        succeeded: after.succeeded - before.succeeded,
        retried: after.retried - before.retried,
        failed: after.failed - before.failed,
        cancelled: after.cancelled - before.cancelled,
        lost: after.lost - before.lost,
    }
}

fn enqueued<T: Task + DeserializeOwned>(task: NewTask, now: u64) -> Enqueued<T> {
    let payload = serde_json::from_slice(&task.payload);
    Enqueued {
        task: payload.unwrap_or_else(|error| {
            panic!("a task `{}` was enqueued whose payload does not decode: {error}", task.name)
        }),
        id: task.id,
        queue: task.queue,
        priority: task.priority,
        max_attempts: task.max_attempts,
        timeout: Duration::from_millis(task.timeout),
        delay: match task.due {
            crate::store::Due::Now => None,
            crate::store::Due::After(span) => Some(Duration::from_millis(span)),
            crate::store::Due::At(moment) => {
                Some(Duration::from_millis(moment.saturating_sub(now)))
            }
        },
        idempotency_key: task.idempotency.map(|idempotency| idempotency.key),
        metadata: task
            .metadata
            .and_then(|json| serde_json::from_str(&json).ok())
            .unwrap_or_default(),
    }
}
