//! Moving a deployment to another store: [`migrate`].

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use crate::client::{Client, LIMIT};
use crate::config::ConfigError;
use crate::error::Error;
use crate::store::{Actor, Heartbeat, Holder, Moved, Registered, StoreError};

/// The id under which a migration is registered in both stores, so that there is one at a time.
const MIGRATION: &str = "migration";
/// Things taken out at once.
const BATCH: usize = 200;
/// Of the registration. One that was killed is taken over after three.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often running tasks are looked at.
const PAUSE: Duration = Duration::from_millis(100);

/// Moves all that is to be done from one store to another: from the embedded file to Redis when it is
/// outgrown, or back.
///
/// Moved are the queued, pending and retrying tasks with their options, attempts and history, in the order
/// in which they wait; dead letters with their records; idempotency keys; and which queues are paused. What
/// has ended otherwise stays where it is until its retention is over. Tasks keep their ids.
///
/// Stop the producers and workers of the old store first, and start them on the new one when this is done.
/// While workers are alive in either store it refuses, unless [told otherwise](Migrate::beside_workers);
/// tasks that run are waited for, those of killed workers until their lease is over.
///
/// It may be killed at any point: run it again with the same two stores and it goes on, nothing lost and
/// nothing doubled. Two at a time exclude each other; one that was killed is taken over after 3 seconds.
///
/// ```no_run
/// # async fn f() -> dtq::Result<()> {
/// let moved = dtq::migrate("sqlite:dtq.db", "redis://localhost:6379").await?;
/// println!("{} tasks, {} dead letters", moved.tasks, moved.dead_letters);
/// # Ok(()) }
/// ```
///
/// Each end is a URL as [`Client::connect`] takes it, or a [`Client`] (which may have a namespace of its own).
pub fn migrate(from: impl Into<Deployment>, to: impl Into<Deployment>) -> Migrate {
    Migrate { from: from.into(), to: to.into(), beside_workers: false }
}

/// A store with its namespace: made of a URL or a [`Client`].
#[derive(Debug, Clone)]
pub struct Deployment(End);

#[derive(Debug, Clone)]
enum End {
    Url(String),
    Client(Client),
}

impl From<&str> for Deployment {
    fn from(url: &str) -> Self {
        Self(End::Url(url.to_owned()))
    }
}

impl From<String> for Deployment {
    fn from(url: String) -> Self {
        Self(End::Url(url))
    }
}

impl From<Client> for Deployment {
    fn from(client: Client) -> Self {
        Self(End::Client(client))
    }
}

impl From<&Client> for Deployment {
    fn from(client: &Client) -> Self {
        Self(End::Client(client.clone()))
    }
}

impl Deployment {
    fn open(self) -> Result<Client, MigrateError> {
        match self.0 {
            End::Client(client) => Ok(client),
            End::Url(url) => Client::connect(url).map_err(|error| match error {
                Error::Config(error) => MigrateError::Config(error),
                Error::Store(error) => MigrateError::Store(error),
                error => MigrateError::Store(StoreError::Failed(error.to_string())),
            }),
        }
    }
}

/// A migration that is to be: await it. Made by [`migrate`].
#[derive(Debug, Clone)]
#[must_use = "nothing is moved until this is awaited"]
pub struct Migrate {
    from: Deployment,
    to: Deployment,
    beside_workers: bool,
}

/// What a migration has moved. One that goes on after a kill counts what it found left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migrated {
    /// Tasks that are to be done, or have a dead letter.
    pub tasks: u64,
    /// Dead letters, with or without a record.
    pub dead_letters: u64,
    /// Idempotency keys, of tasks that were moved and of those that have ended.
    pub idempotency_keys: u64,
}

/// Why a migration was not done, or not to its end. What has been moved is in the new store, and the rest in
/// the old one: run it again.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// A URL is none, or its client's configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Both ends are one store.
    #[error("`{url}` is the store to move from and the store to move to: they must be two")]
    Same {
        /// Its address, without its password.
        url: String,
    },
    /// Workers are alive.
    #[error(
        "workers are alive in `{url}`: {}; stop them first, or allow them with `.beside_workers()`",
        ids.join(", ")
    )]
    Workers {
        /// The store's address, without its password.
        url: String,
        /// Their ids.
        ids: Vec<String>,
    },
    /// Another migration from or to this store is under way.
    #[error("another migration is at work in `{url}`: wait for its end")]
    Busy {
        /// The store's address, without its password.
        url: String,
    },
    /// A store failed for longer than 10 s.
    #[error("{0}; what has been moved stays moved, run the migration again to go on")]
    Store(#[from] StoreError),
}

impl Migrate {
    /// Moves while workers are alive in either store. Those of the old one go on with what they find before it
    /// is moved, so that stopping them first is quicker.
    pub fn beside_workers(mut self) -> Self {
        self.beside_workers = true;
        self
    }

    async fn run(self) -> Result<Migrated, MigrateError> {
        let (from, to) = (self.from.open()?, self.to.open()?);
        let token = format!("{:016x}", fastrand::u64(..));
        let [beat_from, beat_to] = [&from, &to].map(|_| heartbeat(token.clone()));
        tell_apart(&from, &to, &token).await?;
        register(&from, &beat_from, self.beside_workers).await?;
        let done = async {
            register(&to, &beat_to, self.beside_workers).await?;
            let moved = move_all(&from, &to, [&beat_from, &beat_to]).await;
            deregister(&to, &beat_to).await?;
            moved
        }
        .await;
        deregister(&from, &beat_from).await?;
        done
    }
}

impl IntoFuture for Migrate {
    type Output = Result<Migrated, MigrateError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// The audit trails of both say that a migration begins; that of one store would show it twice.
async fn tell_apart(from: &Client, to: &Client, token: &str) -> Result<(), MigrateError> {
    let target = format!("from {} ({token})", from.url());
    audit(to, target.clone(), 0).await?;
    let lines = from.call("audit", |store| async move { store.audit_trail(100).await }).await?;
    if lines.iter().any(|line| line.target == target) {
        return Err(MigrateError::Same { url: from.url() });
    }
    Ok(())
}

async fn audit(client: &Client, target: String, count: u64) -> Result<(), StoreError> {
    let call = client.call("audit", move |store| {
        let target = target.clone();
        async move { store.audit(&Actor("migration".to_owned()), "migrate", &target, count).await }
    });
    call.await
}

fn heartbeat(incarnation: String) -> Heartbeat {
    Heartbeat {
        holder: Holder { worker_id: MIGRATION.to_owned(), incarnation },
        queues: Vec::new(),
        concurrency: 0,
        in_flight: 0,
        interval: u64::try_from(INTERVAL.as_millis()).unwrap_or(1000),
        pid: std::process::id(),
        host: crate::worker::host_name(),
    }
}

/// Refuses beside living workers and beside another migration; waits until one that is silent counts as dead.
async fn register(
    client: &Client,
    beat: &Heartbeat,
    beside_workers: bool,
) -> Result<(), MigrateError> {
    let url = client.url();
    if !beside_workers {
        let workers = client.call("workers", |store| async move { store.workers().await }).await?;
        let alive = workers.into_iter().filter(|worker| !worker.stale && worker.id != MIGRATION);
        let ids: Vec<_> = alive.map(|worker| worker.id).collect();
        if !ids.is_empty() {
            return Err(MigrateError::Workers { url, ids });
        }
    }
    let mut seen: Option<u64> = None;
    let mut take_over = false;
    loop {
        let beat = beat.clone();
        let call = client.call("registering", move |store| {
            let beat = beat.clone();
            async move { store.register(&beat, take_over).await }
        });
        match call.await? {
            Registered::Done => return Ok(()),
            Registered::Taken { last_seen_ago, .. } => {
                // Its silence grows while it is dead, and starts anew when it is not.
                if seen.is_some_and(|before| last_seen_ago < before) {
                    return Err(MigrateError::Busy { url });
                }
                seen = Some(last_seen_ago);
                take_over = u128::from(last_seen_ago) > 3 * INTERVAL.as_millis();
            }
        }
        pause(client).await?;
    }
}

async fn deregister(client: &Client, beat: &Heartbeat) -> Result<(), StoreError> {
    let holder = beat.holder.clone();
    let call = client.call("deregistering", move |store| {
        let holder = holder.clone();
        async move { store.deregister(&holder).await }
    });
    call.await
}

async fn pause(client: &Client) -> Result<(), StoreError> {
    let pause = async {
        tokio::time::sleep(PAUSE).await;
        Ok(())
    };
    client.io().run(pause).await
}

async fn move_all(
    from: &Client,
    to: &Client,
    beats: [&Heartbeat; 2],
) -> Result<Migrated, MigrateError> {
    let queues = from.call("queues", |store| async move { store.queues().await }).await?;
    for queue in queues.into_iter().filter(|queue| queue.paused) {
        let call = to.call("pausing", move |store| {
            let name = queue.name.clone();
            async move { store.set_paused(&name, true, &Actor("migration".to_owned())).await }
        });
        call.await?;
    }
    let mut done = Migrated::default();
    loop {
        for (client, beat) in [from, to].into_iter().zip(beats) {
            let beat = beat.clone();
            let call = client.call("heartbeat", move |store| {
                let beat = beat.clone();
                async move { store.heartbeat(&beat).await }
            });
            call.await?;
        }
        let taken =
            from.call("taking out", |store| async move { store.take_out(BATCH).await }).await?;
        if taken.moved.is_empty() {
            if taken.running == 0 {
                break;
            }
            // What its worker has left behind becomes takeable when its lease is over.
            from.call("reaping", |store| async move { store.reap(BATCH).await }).await?;
            pause(from).await?;
            continue;
        }
        for chunk in chunks(taken.moved) {
            done.count(&chunk);
            hand_over(from, to, chunk).await?;
        }
    }
    let Migrated { tasks, dead_letters, idempotency_keys } = done;
    tracing::info!(
        from = from.url(),
        to = to.url(),
        tasks,
        dead_letters,
        idempotency_keys,
        "migrated"
    );
    audit(from, format!("to {}", to.url()), tasks).await?;
    Ok(done)
}

/// Puts into the new store what stands aside in the old one, and only then drops it there; the marks by which
/// a repetition is known go last.
async fn hand_over(from: &Client, to: &Client, chunk: Vec<Moved>) -> Result<(), StoreError> {
    let marks: Vec<String> = chunk.iter().map(|item| item.mark.clone()).collect();
    let put = to.call("putting in", move |store| {
        let chunk = chunk.clone();
        async move { store.put_in(&chunk).await }
    });
    put.await?;
    let gone = marks.clone();
    let drop = from.call("dropping", move |store| {
        let gone = gone.clone();
        async move { store.drop_taken(&gone).await }
    });
    drop.await?;
    let forget = to.call("forgetting", move |store| {
        let marks = marks.clone();
        async move { store.forget_marks(&marks).await }
    });
    forget.await
}

/// As much as one round trip holds (SPEC 6.3).
fn chunks(moved: Vec<Moved>) -> Vec<Vec<Moved>> {
    let mut chunks: Vec<Vec<Moved>> = Vec::new();
    let mut bytes = 0;
    for item in moved {
        bytes += item.payload.len();
        match chunks.last_mut() {
            Some(chunk) if bytes <= LIMIT.bytes => chunk.push(item),
            _ => {
                bytes = item.payload.len();
                chunks.push(vec![item]);
            }
        }
    }
    chunks
}

impl Migrated {
    fn count(&mut self, chunk: &[Moved]) {
        for item in chunk {
            self.tasks += u64::from(item.is_task());
            self.dead_letters += u64::from(item.letter.is_some());
            self.idempotency_keys += u64::from(item.key.is_some());
        }
    }
}
