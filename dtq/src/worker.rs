//! The worker: what it is built from, how it starts, runs and shuts down.

mod checks;
mod crew;
mod register;
mod shutdown;

use std::sync::Arc;

use tokio::runtime::Handle as Runtime;
use tokio::sync::{Notify, watch};

use self::checks::{check_tasks, choose_queues, select};
use self::crew::finisher;
pub(crate) use self::crew::{Crew, host_name};
use self::register::register;
use self::shutdown::StopOnDrop;
pub(crate) use self::shutdown::{Stopper, shut_down};
use crate::blocking::Pool;
use crate::client::{Client, default_client};
use crate::config::Config;
use crate::error::{Result, StartError};
use crate::flight::Flights;
use crate::io::Io;
use crate::loops;
use crate::registry::{Lookup, registry};
use crate::store::{Holder, StoreError};
use crate::task::States;

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
    /// A worker of the environment's configuration, on the store of the process's default client
    /// ([`set_default_client`](crate::set_default_client), or else the environment's).
    ///
    /// # Errors
    ///
    /// What is wrong with the environment, all of it.
    pub fn from_env() -> Result<Self> {
        let builder = Self::builder().config(Config::from_env()?).client(default_client()?);
        Ok(builder.build())
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
    // It goes on when the worker has ended: what then still holds up the process, such as a task
    // function that blocks its runtime, ends by the next signal.
    Io::start()?.spawn(crate::signals::shut_down_on_signals(stop));
    worker.join().await
}

/// Builds a [`Worker`].
#[derive(Clone, Default)]
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
    /// The store; without it, that of [`config`](Self::config), or else the process's default client.
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
        Ok(self.launch().await?.0)
    }

    pub(crate) async fn launch(self) -> Result<(WorkerHandle, Arc<Crew>)> {
        let runtime = Runtime::try_current().map_err(|_| StartError {
            problems: vec![
                "there is no tokio runtime here for the task functions to run on".to_owned(),
            ],
        })?;
        let crew = Arc::new(self.crew(runtime)?);
        let starting = Arc::clone(&crew);
        let io = crew.client.io().clone();
        io.run(async move { Ok(register(&starting).await) }).await??;
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
        crew.runtime.spawn(async move { sentinel.0.stopped().await });
        let running = Arc::clone(&crew);
        io.spawn(async move {
            let result = loops::run(running).await;
            let _ = ended.send(Some(result));
        });
        Ok((WorkerHandle { id, stop, done }, crew))
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
            return Err(StartError::new(problems).into());
        }
        let client = match (self.client, self.config) {
            (Some(client), _) => client,
            (None, Some(config)) => Client::builder().config(config).build()?,
            (None, None) => default_client()?,
        };
        let store = Arc::clone(client.store());
        let holder = Holder { worker_id, incarnation: format!("{:016x}", fastrand::u64(..)) };
        Ok(Crew {
            finishes: finisher(client.io(), Arc::clone(&store), holder.clone()),
            holder,
            flights: Flights::new(concurrency),
            pool: Pool::default(),
            states: Arc::new(self.states),
            stop: Stopper::default(),
            renew_now: Notify::new(),
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
