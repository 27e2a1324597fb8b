//! The worker: what it is built from, how it starts, runs and shuts down.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle as Runtime;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::blocking::Pool;
use crate::client::Client;
use crate::config::{Config, QUEUE_NAME, QueueChoice, is_queue_name, millis, queues};
use crate::error::{Result, StartError};
use crate::executor;
use crate::flight::{Flight, Flights, Stop};
use crate::io::{self, BatchLimit, Batcher, Batching};
use crate::loops;
use crate::registry::{Lookup, registry};
use crate::store::{
    Finish, Finished, Heartbeat, Holder, KeptResult, Millis, Outcome, Registered, Store, StoreError,
};
use crate::task::{Definition, States};

/// What one finishing call carries.
const FINISH_LIMIT: BatchLimit = BatchLimit { count: 256, bytes: 4 << 20 };
/// How long the store is waited for once the drain is over: for giving back and signing off.
const LAST_WORDS: Duration = Duration::from_millis(1000);

/// Runs tasks: fetches them, executes them under their timeouts, retries, dead-letters, redelivers.
///
/// [`run`](crate::run) is what most programs need. A worker of one's own is for programs that do
/// more: serve HTTP beside it, run several, shut down by their own rules.
///
/// ```no_run
/// # use std::sync::Arc;
/// # struct Pool;
/// # async fn f() -> dtq::Result<()> {
/// let worker = dtq::Worker::builder()
///     .queues(["critical", "default"])
///     .concurrency(64)
///     .state(Arc::new(Pool))
///     .start()
///     .await?;
/// // ... later
/// worker.shutdown();
/// worker.join().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Worker {
    builder: WorkerBuilder,
}

impl Worker {
    /// A worker of the environment's configuration.
    ///
    /// # Errors
    ///
    /// What is wrong with the environment, all of it.
    pub fn from_env() -> Result<Self> {
        let config = Config::from_env()?;
        let client = Client::builder().config(config.clone()).build()?;
        Ok(Self { builder: Self::builder().config(config).client(client) })
    }

    /// Starts from the environment's configuration and sets what differs.
    pub fn builder() -> WorkerBuilder {
        WorkerBuilder::default()
    }

    /// Starts it and runs until it is shut down. It ends when this future is dropped.
    ///
    /// # Errors
    ///
    /// Why it could not start, everything together; or the store failed for good.
    pub async fn run(self) -> Result<()> {
        self.builder.run().await
    }

    /// Starts it in the background of the current runtime.
    ///
    /// # Errors
    ///
    /// Why it could not start, everything together.
    pub async fn start(self) -> Result<WorkerHandle> {
        self.builder.start().await
    }
}

/// Runs a worker of the environment's configuration until SIGTERM or SIGINT: then it stops fetching,
/// waits for what it runs (`DTQ_DRAIN_TIMEOUT_S`), gives back the rest, and returns. A second signal
/// ends the process at once.
///
/// # Errors
///
/// Why it could not start, everything together; or the store failed for good.
pub async fn run() -> Result<()> {
    let worker = Worker::from_env()?.start().await?;
    let stop = worker.stopper();
    let signals = io::handle().spawn(crate::signals::shut_down_on_signals(stop));
    let ended = worker.join().await;
    signals.abort();
    ended
}

/// Builds a [`Worker`].
#[derive(Default)]
pub struct WorkerBuilder {
    client: Option<Client>,
    config: Option<Config>,
    queues: Option<Vec<String>>,
    concurrency: Option<usize>,
    tasks: Option<Vec<String>>,
    worker_id: Option<String>,
    states: States,
}

impl std::fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerBuilder")
            .field("queues", &self.queues)
            .field("concurrency", &self.concurrency)
            .finish_non_exhaustive()
    }
}

impl WorkerBuilder {
    /// The store; without it, the configuration's.
    #[must_use]
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// All settings; without it, those of the client, or else the environment's.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = Some(config);
        self
    }

    /// What it fetches from, in this order; `*` is every known queue. Without it, `DTQ_QUEUES`, or
    /// `default` and the queues of its own tasks.
    #[must_use]
    pub fn queues(mut self, queues: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.queues = Some(queues.into_iter().map(Into::into).collect());
        self
    }

    /// How many tasks it runs at once, at least 1.
    #[must_use]
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.concurrency = Some(tasks);
        self
    }

    /// Only these task types, by wire name; without it, every one of the program.
    #[must_use]
    pub fn tasks(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.tasks = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Its name; without it, `DTQ_WORKER_ID` or `worker-` and eight hex digits.
    #[must_use]
    pub fn worker_id(mut self, id: impl Into<String>) -> Self {
        self.worker_id = Some(id.into());
        self
    }

    /// A value for `#[state]` parameters of exactly this type; each attempt gets a clone.
    #[must_use]
    pub fn state<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.states.insert(value);
        self
    }

    /// The worker itself, for [`Worker::run`] and [`Worker::start`].
    pub fn build(self) -> Worker {
        Worker { builder: self }
    }

    /// Starts it and runs until it is shut down. It ends when this future is dropped.
    ///
    /// # Errors
    ///
    /// Why it could not start, everything together; or the store failed for good.
    pub async fn run(self) -> Result<()> {
        let worker = self.start().await?;
        // Dropped with the future: whoever stops waiting for a worker wants it to stop.
        let _stop = StopOnDrop(worker.stopper());
        worker.join().await
    }

    /// Starts it in the background of the current runtime, where its task functions will run.
    ///
    /// # Errors
    ///
    /// Why it could not start, everything together.
    pub async fn start(self) -> Result<WorkerHandle> {
        let runtime = Runtime::try_current().map_err(|_| StartError {
            problems: vec![
                "there is no tokio runtime here for the task functions to run on".to_owned(),
            ],
        })?;
        let crew = Arc::new(self.crew(runtime)?);
        let starting = Arc::clone(&crew);
        io::run(async move { Ok(register(&starting).await) }).await??;
        tracing::info!(
            worker_id = crew.holder.worker_id,
            tasks = crew.lookup.len(),
            "worker started"
        );
        let (ended, done) = watch::channel(None);
        let id = crew.holder.worker_id.clone();
        let stop = crew.stop.clone();
        // When the runtime of the task functions ends, so does the worker.
        let sentinel = StopOnDrop(stop.clone());
        crew.runtime.spawn(async move {
            let _sentinel = sentinel;
            std::future::pending::<()>().await;
        });
        io::handle().spawn(async move {
            let result = loops::run(crew).await;
            let _ = ended.send(Some(result));
        });
        Ok(WorkerHandle { id, stop, done })
    }

    /// Checks everything that can be known before the store is asked.
    fn crew(self, runtime: Runtime) -> Result<Crew> {
        let config = match (&self.config, &self.client) {
            (Some(config), _) => config.clone(),
            (None, Some(client)) => client.config().clone(),
            (None, None) => Config::from_env()?,
        };
        let mut problems = Vec::new();
        let all = registry();
        let tasks = select(&all, self.tasks.as_deref(), &mut problems);
        if all.is_empty() {
            problems.push(
                "the program has no tasks: write #[dtq::task] over a function; a library crate that \
                 the program never names is not linked (write `use my_tasks as _;`)"
                    .to_owned(),
            );
        }
        check_tasks(&tasks, &config, &self.states, &mut problems);
        let lookup = Lookup::new(&tasks).unwrap_or_else(|duplicates| {
            problems.extend(duplicates);
            Lookup::default()
        });
        let concurrency = self.concurrency.unwrap_or(config.concurrency);
        if concurrency == 0 {
            problems.push("concurrency is 0: it must be at least 1".to_owned());
        }
        let choices = choose_queues(self.queues.as_deref(), &config, &tasks, &mut problems);
        let worker_id = match self.worker_id.or_else(|| config.worker_id.clone()) {
            Some(id) => {
                let fits = (1..=64).contains(&id.len())
                    && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.:-".contains(&b));
                if !fits {
                    problems.push(format!("worker id {id:?} is not allowed: it must be 1 to 64 letters, digits and any of _ . : -"));
                }
                id
            }
            None => format!("worker-{:08x}", fastrand::u32(..)),
        };
        if !problems.is_empty() {
            return Err(StartError { problems }.into());
        }
        let client = match self.client {
            Some(client) => client,
            None => Client::builder().config(config.clone()).build()?,
        };
        let store = Arc::clone(client.store());
        Ok(Crew {
            finishes: finisher(Arc::clone(&store)),
            holder: Holder { worker_id, incarnation: format!("{:016x}", fastrand::u64(..)) },
            flights: Flights::new(concurrency),
            pool: Pool::default(),
            states: Arc::new(self.states),
            stop: Stopper::default(),
            max_attempts: std::sync::Mutex::default(),
            concurrency,
            choices,
            config,
            client,
            store,
            lookup,
            runtime,
        })
    }
}

/// The tasks that the worker runs; each name of `wanted` that is none is a problem.
fn select(
    all: &[&'static Definition],
    wanted: Option<&[String]>,
    problems: &mut Vec<String>,
) -> Vec<&'static Definition> {
    let Some(wanted) = wanted else { return all.to_vec() };
    for name in wanted {
        if !all.iter().any(|task| task.name == name) {
            let known: BTreeSet<_> = all.iter().map(|task| task.name).collect();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            problems.push(format!("no task is called `{name}`: the program has {known}"));
        }
    }
    all.iter().copied().filter(|task| wanted.iter().any(|name| name == task.name)).collect()
}

fn check_tasks(
    tasks: &[&'static Definition],
    config: &Config,
    states: &States,
    problems: &mut Vec<String>,
) {
    for task in tasks {
        let place = format!("task `{}` ({}:{})", task.name, task.file, task.line);
        for need in task.states {
            if !states.contains((need.type_id)()) {
                let name = (need.type_name)();
                problems.push(format!(
                    "{place} wants a state of type {name}: give it with Worker::builder().state(..)"
                ));
            }
        }
        if let Some(attempts) = task.options.max_attempts
            && attempts > config.max_attempts_cap
        {
            let cap = config.max_attempts_cap;
            problems.push(format!(
                "{place} asks for {attempts} attempts: the deployment allows {cap} (DTQ_MAX_ATTEMPTS)"
            ));
        }
        let policy = config.retry.overridden(&task.options.backoff);
        if let Err(error) = policy.validate() {
            problems.push(format!(
                "{place} has a backoff that does not fit the configuration: {error}"
            ));
        }
    }
}

fn choose_queues(
    named: Option<&[String]>,
    config: &Config,
    tasks: &[&'static Definition],
    problems: &mut Vec<String>,
) -> Vec<QueueChoice> {
    let plain = |name: &str| QueueChoice { name: name.to_owned(), weight: None };
    if let Some(named) = named {
        if let Some(choices) = queues(&named.join(",")) {
            return choices;
        }
        for name in named {
            if !is_queue_name(name) && name != "*" {
                problems
                    .push(format!("queue {name:?} is not allowed: it must be {QUEUE_NAME}, or *"));
            }
        }
        if problems.is_empty() {
            problems.push(format!("queues {named:?}: there must be at least one, each named once"));
        }
        return Vec::new();
    }
    if let Some(choices) = &config.queues {
        return choices.clone();
    }
    let mut own: BTreeSet<&str> = tasks.iter().map(|task| task.options.queue).collect();
    own.remove("default");
    std::iter::once("default").chain(own).map(plain).collect()
}

/// SPEC 7.9: an id that is registered is waited for; refreshed meanwhile, it is refused.
async fn register(crew: &Crew) -> std::result::Result<(), crate::Error> {
    let beat = crew.heartbeat();
    let started = Instant::now();
    let patience = crew.config.heartbeat_interval() * 3;
    let mut earlier_beat: Option<Instant> = None;
    loop {
        let take_over = started.elapsed() >= patience;
        let call = || crew.store.register(&beat, take_over);
        match io::retrying("registering", None, call).await? {
            Registered::Done => return Ok(()),
            Registered::Taken { last_seen_ago, .. } => {
                let ago = Duration::from_millis(last_seen_ago.min(millis(patience) * 10));
                let beat_at = Instant::now().checked_sub(ago).unwrap_or(started);
                // A beat that came after we first looked: somebody lives under this id.
                let slack = Duration::from_millis(20);
                if earlier_beat.is_some_and(|earlier| beat_at > earlier + slack) {
                    let id = &beat.holder.worker_id;
                    let problem = format!(
                        "worker id `{id}` belongs to another worker that is alive: give each its own \
                         (DTQ_WORKER_ID), or none for a random one"
                    );
                    return Err(StartError { problems: vec![problem] }.into());
                }
                earlier_beat.get_or_insert(beat_at);
                tokio::time::sleep(crew.config.heartbeat_interval() / 2).await;
            }
        }
    }
}

/// Everything that the loops and the attempts of one worker share.
pub(crate) struct Crew {
    pub(crate) config: Config,
    pub(crate) client: Client,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) holder: Holder,
    pub(crate) lookup: Lookup,
    pub(crate) states: Arc<States>,
    /// Where async task functions run.
    pub(crate) runtime: Runtime,
    pub(crate) pool: Pool,
    pub(crate) flights: Flights,
    pub(crate) choices: Vec<QueueChoice>,
    pub(crate) concurrency: usize,
    pub(crate) stop: Stopper,
    finishes: Batcher<Finish, Finished>,
    /// Name and attempts of what is in flight, which leases do not tell.
    max_attempts: std::sync::Mutex<std::collections::HashMap<(crate::TaskId, u64), (String, u32)>>,
}

/// Writes outcomes in batches, repeated for ever while the store is away: the leases that they name
/// are renewed until they are confirmed.
fn finisher(store: Arc<dyn Store>) -> Batcher<Finish, Finished> {
    let batching = Batching {
        what: "writing outcomes",
        limit: FINISH_LIMIT,
        weigh: |finish: &Finish| {
            let bytes = match &finish.outcome {
                Outcome::Succeeded { result: KeptResult::Json(json) } => json.len(),
                _ => 0,
            };
            (1, 256 + bytes)
        },
        patience: None,
    };
    Batcher::new(batching, move |batch| {
        let store = Arc::clone(&store);
        Box::pin(async move { store.finish(batch).await })
    })
}

impl Crew {
    pub(crate) fn visibility(&self) -> Millis {
        millis(self.config.visibility_timeout)
    }

    pub(crate) fn heartbeat(&self) -> Heartbeat {
        Heartbeat {
            holder: self.holder.clone(),
            queues: self.choices.iter().map(|choice| choice.name.clone()).collect(),
            concurrency: self.concurrency,
            in_flight: self.flights.in_flight(),
            interval: millis(self.config.heartbeat_interval()).max(1),
            pid: std::process::id(),
            host: host_name(),
        }
    }

    /// Notes what a lease does not tell.
    pub(crate) fn note(&self, leased: &crate::store::Leased) {
        let key = (leased.lease.id, leased.lease.number);
        let value = (leased.name.clone(), leased.max_attempts);
        self.notes().insert(key, value);
    }

    fn notes(
        &self,
    ) -> std::sync::MutexGuard<'_, std::collections::HashMap<(crate::TaskId, u64), (String, u32)>>
    {
        self.max_attempts.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn max_attempts(&self, flight: &Flight) -> u32 {
        let key = (flight.lease.id, flight.lease.number);
        self.notes().get(&key).map_or(1, |(_, attempts)| *attempts)
    }

    pub(crate) fn name_of(&self, flight: &Flight) -> Option<String> {
        let key = (flight.lease.id, flight.lease.number);
        self.notes().get(&key).map(|(name, _)| name.clone())
    }

    /// Writes the outcome unless somebody else has taken that on; without one, forgets the task.
    pub(crate) fn conclude(
        self: &Arc<Self>,
        flight: &Arc<Flight>,
        name: &str,
        outcome: Option<Outcome>,
    ) {
        if !flight.conclude() {
            return;
        }
        match outcome {
            Some(outcome) => self.finish(flight, name, outcome),
            None => self.forget(flight),
        }
    }

    fn forget(&self, flight: &Flight) {
        self.notes().remove(&(flight.lease.id, flight.lease.number));
        self.flights.remove(flight);
    }

    /// Hands the outcome to the batcher; the task is in flight until it is confirmed.
    pub(crate) fn finish(self: &Arc<Self>, flight: &Arc<Flight>, name: &str, outcome: Outcome) {
        executor::log(flight, name, &outcome);
        let item = Finish { lease: flight.lease.clone(), holder: self.holder.clone(), outcome };
        let confirmed = self.finishes.submit(item);
        let (crew, flight) = (Arc::clone(self), Arc::clone(flight));
        io::handle().spawn(async move {
            match confirmed.await {
                Ok(Ok(Finished::Applied(_) | Finished::Already)) => {}
                Ok(Ok(Finished::Lost)) => tracing::warn!(
                    task_id = %flight.lease.id, attempt = flight.lease.attempt,
                    "the lease was lost before the outcome was written: nothing changed"
                ),
                Ok(Err(error)) => tracing::error!(
                    task_id = %flight.lease.id, attempt = flight.lease.attempt, %error,
                    "the outcome could not be written: the task is redelivered when its lease lapses"
                ),
                Err(_) => {}
            }
            crew.forget(&flight);
        });
    }
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    name.trim().chars().filter(|c| !c.is_control()).take(255).collect()
}

/// Asks a worker to shut down.
#[derive(Debug, Clone)]
pub(crate) struct Stopper(watch::Sender<bool>);

impl Default for Stopper {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Stopper {
    pub(crate) fn stop(&self) {
        self.0.send_if_modified(|stopped| !std::mem::replace(stopped, true));
    }

    pub(crate) fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    pub(crate) async fn stopped(&self) {
        let _ = self.0.subscribe().wait_for(|stopped| *stopped).await;
    }
}

struct StopOnDrop(Stopper);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// A worker that runs in the background. Dropping the handle leaves it running until its runtime ends.
#[derive(Debug, Clone)]
pub struct WorkerHandle {
    id: String,
    stop: Stopper,
    done: watch::Receiver<Option<std::result::Result<(), StoreError>>>,
}

impl WorkerHandle {
    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Asks it to shut down: it stops fetching, waits for what it runs (`DTQ_DRAIN_TIMEOUT_S`), and
    /// gives back the rest. Returns at once; [`join`](Self::join) waits.
    pub fn shutdown(&self) {
        self.stop.stop();
    }

    /// Waits until it has shut down.
    ///
    /// # Errors
    ///
    /// The store failed for good, such as one of a newer layout.
    pub async fn join(mut self) -> Result<()> {
        match self.done.wait_for(Option::is_some).await.map(|done| done.clone()) {
            Ok(Some(result)) => Ok(result?),
            _ => Err(StoreError::Failed("the worker ended without a word".to_owned()).into()),
        }
    }

    pub(crate) fn stopper(&self) -> Stopper {
        self.stop.clone()
    }
}

/// Waits for what runs, gives back the rest (SPEC 7.8). Fetching has stopped.
pub(crate) async fn drain(crew: &Arc<Crew>) {
    let began = Instant::now();
    let limit = crew.config.drain_timeout;
    let empty = async {
        loop {
            let freed = crew.flights.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if crew.flights.unfinished().is_empty() {
                return;
            }
            freed.await;
        }
    };
    tokio::pin!(empty);
    if tokio::time::timeout(limit, &mut empty).await.is_ok() {
        return;
    }
    let rest = crew.flights.unfinished();
    tracing::warn!(tasks = rest.len(), after = ?began.elapsed(), "giving back what still runs");
    for flight in rest {
        flight.stop(Stop::Release);
    }
    // Futures are dropped at once; blocking bodies are not waited for, their leases lapse.
    let _ = tokio::time::timeout(LAST_WORDS, empty).await;
}

/// Signs off, if the store answers.
pub(crate) async fn sign_off(crew: &Crew) {
    let words = async {
        let _ = crew.store.step_down(&crew.holder.worker_id).await;
        let _ = crew.store.deregister(&crew.holder).await;
    };
    if tokio::time::timeout(LAST_WORDS, words).await.is_err() {
        tracing::debug!("the store did not hear that the worker stopped");
    }
}
