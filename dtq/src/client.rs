//! The producer's side of a deployment: a connection to its store, cheap to clone.

#[cfg(all(test, feature = "redis"))]
mod tests;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use futures_util::FutureExt as _;

use crate::config::{Config, ConfigError, ConfigProblem, StoreUrl};
use crate::enqueue::{self, Enqueue, EnqueueAllError, RawTask};
use crate::error::{Error, Result};
use crate::events::Events;
use crate::handle::Handle;
use crate::handle::waits::Waits;
use crate::id::TaskId;
use crate::inspect::Inspect;
use crate::io::{self, BatchLimit, Batcher, Batching, Io};
use crate::store::{self, Accepted, NewTask, Refusal, Store, StoreError, StoreResult};
use crate::task::Task;

/// Enqueues tasks and looks after them: a connection to the store of a deployment.
///
/// Cloning is cheap, and clones share everything. All I/O is done by a thread of dtq's own, so that
/// one client serves any number of runtimes, one after another or at once, and none at all
/// ([`send_blocking`](Enqueue::send_blocking)). Making a client reads and checks the address and
/// connects nowhere: that is done by its first call, which waits up to 10 s for a store that is away.
///
/// ```
/// # fn main() -> dtq::Result<()> {
/// let client = dtq::Client::connect("redis://localhost:6379")?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client(Arc<Inner>);

/// A unit of tasks and what becomes of it.
pub(crate) type Enqueues = Batcher<Vec<NewTask>, Result<Vec<Accepted>, Refusal>>;

struct Inner {
    config: Config,
    url: StoreUrl,
    store: Arc<dyn Store>,
    enqueues: Enqueues,
    waits: Arc<Waits>,
    io: Io,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("url", &self.0.url).finish_non_exhaustive()
    }
}

/// Round trips hold this much at most (SPEC 6.3).
pub(crate) const LIMIT: BatchLimit = BatchLimit { count: 1000, bytes: 4 << 20 };

impl Client {
    /// A client configured by the environment's `DTQ_` variables.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] names everything that is wrong with them. Without `DTQ_URL` a debug build
    /// keeps its tasks in the file `dtq.db`, and a release build fails.
    pub fn from_env() -> Result<Self> {
        Self::from_config(Config::from_env()?)
    }

    /// A client of the store at `url`, with the default configuration whatever the environment says:
    /// `redis://[user:password@]host[:port][/db]`, `rediss://...`, `redis+unix:///path`,
    /// `sqlite:PATH` or `sqlite::memory:`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if it is no such URL. Whether anybody answers there is seen by the first call.
    pub fn connect(url: impl Into<String>) -> Result<Self> {
        Self::builder().url(url).build()
    }

    /// Sets up a client by hand.
    pub fn builder() -> ClientBuilder {
        ClientBuilder { config: None, url: None }
    }

    pub(crate) fn from_config(config: Config) -> Result<Self> {
        let url = config.store_url()?;
        let io = Io::start()?;
        // A store may start tasks of its own.
        let _guard = io.enter();
        let store = store::open(&url.0, &config.settings()).map_err(|error| match error {
            StoreError::Failed(why) => Error::Config(ConfigError {
                problems: vec![ConfigProblem {
                    variable: "DTQ_URL".to_owned(),
                    value: url.to_string(),
                    allowed: format!("a URL that the store understands ({why})"),
                }],
            }),
            error => Error::Store(error),
        })?;
        Ok(Self::of_store(config, url, store, io.clone()))
    }

    pub(crate) fn of_store(config: Config, url: StoreUrl, store: Arc<dyn Store>, io: Io) -> Self {
        let batching = Batching {
            what: "enqueue",
            limit: LIMIT,
            weigh: enqueue::weigh,
            patience: Some(io::PATIENCE),
        };
        let target = Arc::clone(&store);
        let enqueues = Batcher::new(&io, batching, move |units: &[Vec<NewTask>]| {
            let target = Arc::clone(&target);
            async move { target.enqueue(units).await }.boxed()
        });
        let waits = Waits::new(Arc::clone(&store));
        Self(Arc::new(Inner { config, url, store, enqueues, waits, io }))
    }

    /// An enqueue of `task` through this client: options may be added before it is awaited.
    ///
    /// ```no_run
    /// # async fn f<SendWelcome: dtq::Task>(client: dtq::Client, task: SendWelcome) -> dtq::Result<()> {
    /// let handle = client.enqueue(task).priority(9).await?;
    /// println!("task {}", handle.id());
    /// # Ok(()) }
    /// ```
    pub fn enqueue<T: Task>(&self, task: T) -> Enqueue<T> {
        Enqueue::from_task(task).on(self)
    }

    /// Enqueues many tasks: payloads, or [`Enqueue`]s with options of their own.
    ///
    /// They go in chunks of up to 1000 tasks and 4 MiB, each one round trip and all or nothing; the
    /// next is encoded while one is under way. The iterator is not read ahead of that.
    ///
    /// # Errors
    ///
    /// [`EnqueueAllError`] tells which tasks were accepted before the chunk that was not.
    pub async fn enqueue_all<T, I>(&self, tasks: I) -> Result<Vec<Handle<T>>, EnqueueAllError>
    where
        T: Task,
        I: IntoIterator,
        I::Item: Into<Enqueue<T>>,
    {
        enqueue::all(self, tasks.into_iter().map(Into::into)).await
    }

    /// An enqueue of a task by its wire name, with a payload that is encoded already: for tools, and
    /// for tasks that another program or language runs.
    ///
    /// A payload is a JSON object that holds the task function's parameters by name; it is not looked
    /// at here. Options are the defaults, whatever the task function's attribute says.
    ///
    /// ```no_run
    /// # async fn f(client: dtq::Client) -> dtq::Result<()> {
    /// let handle = client.enqueue_raw("send_welcome", br#"{"to":"ada@example.com"}"#).await?;
    /// println!("{}", handle.result().await?.as_str());
    /// # Ok(()) }
    /// ```
    pub fn enqueue_raw(
        &self,
        name: impl Into<String>,
        payload: impl Into<Vec<u8>>,
    ) -> Enqueue<RawTask> {
        Enqueue::raw(name.into(), payload.into()).on(self)
    }

    /// A handle for a task that was enqueued earlier, or elsewhere. Its type is the caller's word: a
    /// result of another shape is [`TaskFailure::Decode`](crate::TaskFailure::Decode).
    pub fn handle<T: Task>(&self, id: TaskId) -> Handle<T> {
        Handle::new(self.clone(), id, false)
    }

    /// Reading and administering what is in the store.
    pub fn inspect(&self) -> Inspect {
        Inspect::new(self.clone())
    }

    /// Subscribes to the lifecycle events of the deployment (SPEC 10), from now on.
    ///
    /// Nothing comes while `DTQ_EVENTS` is off for those who make the events.
    pub fn events(&self) -> Events {
        Events::subscribe(self.store(), self.io())
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    pub(crate) fn io(&self) -> &Io {
        &self.0.io
    }

    pub(crate) fn enqueues(&self) -> &Enqueues {
        &self.0.enqueues
    }

    pub(crate) fn waits(&self) -> &Arc<Waits> {
        &self.0.waits
    }

    /// The store's address, without its password.
    pub(crate) fn url(&self) -> String {
        self.0.url.to_string()
    }

    /// A call that may be repeated without doing anything twice, made on dtq's thread.
    pub(crate) async fn call<T, F>(
        &self,
        what: &'static str,
        call: impl Fn(Arc<dyn Store>) -> F + Send + 'static,
    ) -> StoreResult<T>
    where
        T: Send + 'static,
        F: Future<Output = StoreResult<T>> + Send + 'static,
    {
        let store = Arc::clone(self.store());
        let patience = Some(io::PATIENCE);
        self.io().run(io::retrying(what, patience, move || call(Arc::clone(&store)))).await
    }
}

/// Sets up a [`Client`].
#[derive(Debug, Clone)]
#[must_use]
pub struct ClientBuilder {
    config: Option<Config>,
    url: Option<StoreUrl>,
}

impl ClientBuilder {
    /// Where tasks live; wins over the configuration's.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(StoreUrl(url.into()));
        self
    }

    /// The configuration; without it the defaults, whatever the environment says.
    pub fn config(mut self, config: Config) -> Self {
        self.config = Some(config);
        self
    }

    /// Checks everything. Connects nowhere yet.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the URL is not one of those that [`Client::connect`] lists.
    pub fn build(self) -> Result<Client> {
        let mut config = self.config.unwrap_or_default();
        if let Some(url) = self.url {
            config.url = Config::builder().url(url.0).build()?.url;
        }
        Client::from_config(config)
    }
}

static DEFAULT: RwLock<Option<Client>> = RwLock::new(None);

/// Sets the client of everything that names none: `SendWelcome::enqueue(..)` without
/// [`on`](Enqueue::on), and workers. Replaces the one before.
pub fn set_default_client(client: Client) {
    *DEFAULT.write().unwrap_or_else(PoisonError::into_inner) = Some(client);
}

/// The process's client: the one that was set, otherwise one made from the environment, once. A
/// failure is not kept.
pub(crate) fn default_client() -> Result<Client> {
    if let Some(client) = &*DEFAULT.read().unwrap_or_else(PoisonError::into_inner) {
        return Ok(client.clone());
    }
    let mut default = DEFAULT.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(client) = &*default {
        return Ok(client.clone());
    }
    let client = Client::from_env()?;
    *default = Some(client.clone());
    Ok(client)
}
