//! Enqueueing: options, their checks (SPEC 6.1), and the way to the store.

mod all;
mod draft;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tokio::sync::oneshot;

pub use self::all::EnqueueAllError;
pub(crate) use self::all::all;
use self::draft::{Draft, When};
pub use self::draft::{Json, RawTask};
use crate::client::{Client, default_client};
use crate::config::ConfigError;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::id::TaskId;
use crate::io::{self, Counted};
use crate::store::{Accepted, NewTask, Refusal, StoreError, StoreResult};
use crate::task::{EncodeError, Task};

/// Why a task was not accepted. Nothing of it was written, but for what [`Store`](Self::Store) says.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// The queue holds as many unfinished tasks as it may (`DTQ_MAX_QUEUE_DEPTH`).
    #[error(
        "queue `{queue}` is full: {depth} of at most {limit} tasks in it are not finished; try \
         again in {retry_after:?}"
    )]
    QueueFull {
        /// Which.
        queue: String,
        /// Tasks in it that are not finished.
        depth: u64,
        /// How many there may be.
        limit: u64,
        /// When it is worth trying again.
        retry_after: Duration,
    },
    /// As many tasks wait for a delay as may (`DTQ_MAX_SCHEDULED`).
    #[error("too many tasks wait for a delay: {scheduled} of at most {limit}")]
    ScheduleFull {
        /// Tasks that wait.
        scheduled: u64,
        /// How many may.
        limit: u64,
    },
    /// The encoded payload is larger than `DTQ_MAX_PAYLOAD_BYTES`.
    #[error("the payload has {bytes} bytes, at most {limit} are allowed")]
    PayloadTooLarge {
        /// Its size.
        bytes: u64,
        /// What is allowed.
        limit: u64,
    },
    /// The idempotency key belongs to a task that has not ended.
    #[error("the idempotency key belongs to task {task_id}, which has not ended")]
    IdempotencyInProgress {
        /// That task.
        task_id: TaskId,
    },
    /// The idempotency key belongs to a task of another type or with another payload.
    #[error("the idempotency key belongs to task {task_id}, which has another type or payload")]
    IdempotencyMismatch {
        /// That task.
        task_id: TaskId,
    },
    /// An option is not what it may be.
    #[error("{field}: {reason}")]
    Invalid {
        /// The option: `queue`, `priority`, `timeout`, `max_attempts`, `metadata`,
        /// `idempotency_key`, `delay`, `at`, `ttl`, `retention`, `name`.
        field: &'static str,
        /// What it is and what is allowed.
        reason: String,
    },
    /// The payload cannot be written as JSON.
    #[error("the payload cannot be written as JSON: {0}")]
    Serialize(#[source] EncodeError),
    /// The store failed or is away. If the reply was lost, the task may have been accepted after all:
    /// an idempotency key makes it safe to enqueue again.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no default client: the environment's configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl From<Refusal> for EnqueueError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::QueueFull { queue, depth, limit, retry_after } => {
                let retry_after = Duration::from_millis(retry_after);
                Self::QueueFull { queue, depth, limit, retry_after }
            }
            Refusal::ScheduleFull { scheduled, limit } => Self::ScheduleFull { scheduled, limit },
            Refusal::IdempotencyInProgress { task_id } => Self::IdempotencyInProgress { task_id },
            Refusal::IdempotencyMismatch { task_id } => Self::IdempotencyMismatch { task_id },
            Refusal::Damaged(text) => Self::Store(StoreError::Failed(text)),
        }
    }
}

/// An enqueue in the making: add options, then `.await` it (or [`send`](Self::send) it, or
/// [`send_blocking`](Self::send_blocking) outside async code).
///
/// The payload is encoded already. Setters never fail: everything is checked when it is sent, before
/// anything is written. Options that are not set are those of the task function's attribute.
///
/// ```no_run
/// use std::time::Duration;
/// # async fn f<T: dtq::Task>(task: T, client: dtq::Client) -> Result<(), dtq::EnqueueError> {
/// let handle = client
///     .enqueue(task)
///     .priority(9)
///     .delay(Duration::from_secs(60))
///     .idempotency_key("welcome:42")
///     .metadata("tenant", "acme")
///     .await?;
/// println!("task {}", handle.id());
/// # Ok(()) }
/// ```
#[must_use = "nothing is enqueued until this is awaited"]
pub struct Enqueue<T> {
    draft: Draft,
    client: Option<Client>,
    /// Never a `T`: it is encoded, so this is `Send` whatever `T` is.
    task: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Enqueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the payload: it may be a secret, and this may be logged.
        f.debug_struct("Enqueue").field("name", &self.draft.name).finish_non_exhaustive()
    }
}

impl<T: Task> From<T> for Enqueue<T> {
    fn from(task: T) -> Self {
        Self::from_task(task)
    }
}

impl<T: Task> Enqueue<T> {
    /// An enqueue of `task` with its attribute's options. What cannot be encoded is told when it is
    /// sent.
    pub fn from_task(task: T) -> Self {
        let draft = Draft::new(Cow::Borrowed(T::NAME), task.encode(), &T::definition().options);
        Self { draft, client: None, task: PhantomData }
    }
}

impl Enqueue<RawTask> {
    pub(crate) fn raw(name: String, payload: Vec<u8>) -> Self {
        let draft = Draft::new(Cow::Owned(name), Ok(payload), &crate::task::Options::DEFAULT);
        Self { draft, client: None, task: PhantomData }
    }
}

impl<T> Enqueue<T> {
    /// The queue: 1 to 64 of `a-z 0-9 _ -`, beginning with a letter or a digit.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.draft.queue = Cow::Owned(queue.into());
        self
    }

    /// 0 to 9: within a queue, what has 9 goes before everything else.
    pub fn priority(mut self, priority: u8) -> Self {
        self.draft.priority = priority;
        self
    }

    /// The task may start this much later, at the earliest: up to ten years. Replaces
    /// [`at`](Self::at).
    pub fn delay(mut self, delay: Duration) -> Self {
        self.draft.when = When::After(delay);
        self
    }

    /// The task may start at this moment, at the earliest; one in the past means now. Replaces
    /// [`delay`](Self::delay).
    pub fn at(mut self, moment: SystemTime) -> Self {
        self.draft.when = When::At(moment);
        self
    }

    /// Executions at most, the first included: 1 up to the deployment's `DTQ_MAX_ATTEMPTS`.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.draft.max_attempts = Some(attempts);
        self
    }

    /// How long one attempt may take: 1 ms to 1 h.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.draft.timeout = Some(timeout);
        self
    }

    /// How long after now the task may still start: longer than its delay. An attempt that runs is
    /// let finish.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.draft.ttl = Some(ttl);
        self
    }

    /// How long the record and the result stay once the task has ended; zero: not at all.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.draft.retention = Some(retention);
        self
    }

    /// At most one task of the queue has this key (1 to 512 bytes) while it lives, and for
    /// `DTQ_IDEM_TTL_S` after it has ended.
    ///
    /// While the key's task lives, another enqueue with it is
    /// [`IdempotencyInProgress`](EnqueueError::IdempotencyInProgress); after that it gives the handle
    /// of that task, a [duplicate](Handle::is_duplicate). With another task type or payload it is
    /// [`IdempotencyMismatch`](EnqueueError::IdempotencyMismatch).
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.draft.idempotency_key = Some(key.into());
        self
    }

    /// Adds to the task's metadata, which the task function sees in its context: at most 4096 bytes
    /// of JSON in all. The last value of a key counts.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Serialize) -> Self {
        self.draft.add_metadata(key.into(), &value);
        self
    }

    /// Sends it through `client` rather than the process's default one.
    pub fn on(mut self, client: &Client) -> Self {
        self.client = Some(client.clone());
        self
    }

    /// Sends it: the future for `join!` and the like. Nothing happens before it is polled.
    pub fn send(self) -> Sending<T> {
        Sending(State::Start(self))
    }

    /// Sends it and blocks the thread until it is accepted or refused: for code that is not async.
    /// Works outside any runtime, and also inside one (which it then blocks).
    ///
    /// # Errors
    ///
    /// As awaiting it.
    pub fn send_blocking(self) -> Result<Handle<T>, EnqueueError> {
        io::block_on(self.send())
    }

    /// Checks it and hands it to dtq's thread.
    fn submit(self) -> Result<Sent, EnqueueError> {
        let client = match self.client {
            Some(client) => client,
            None => default_client().map_err(|error| match error {
                Error::Config(error) => EnqueueError::Config(error),
                Error::Store(error) => EnqueueError::Store(error),
                error => EnqueueError::Store(StoreError::Failed(error.to_string())),
            })?,
        };
        let task = self.draft.check(client.config(), SystemTime::now())?;
        let id = task.id;
        let call = client.io().call();
        let answer = client.enqueues().submit(vec![task]);
        Ok(Sent { client, id, answer, _call: call })
    }
}

/// A unit under way, and what comes back.
type Answer = oneshot::Receiver<StoreResult<Result<Vec<Accepted>, Refusal>>>;

struct Sent {
    client: Client,
    id: TaskId,
    answer: Answer,
    _call: Option<Counted>,
}

impl<T> IntoFuture for Enqueue<T> {
    type Output = Result<Handle<T>, EnqueueError>;
    type IntoFuture = Sending<T>;

    fn into_future(self) -> Sending<T> {
        self.send()
    }
}

/// The future of an [`Enqueue`]. Dropped before it is done, it leaves open whether the task is
/// accepted.
#[must_use = "nothing is enqueued until this is awaited"]
pub struct Sending<T>(State<T>);

#[expect(clippy::large_enum_variant, reason = "a box would be one more allocation per task")]
enum State<T> {
    Start(Enqueue<T>),
    Sent(Sent),
    Done,
}

impl<T> fmt::Debug for Sending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sending").finish_non_exhaustive()
    }
}

impl<T> Future for Sending<T> {
    type Output = Result<Handle<T>, EnqueueError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Start(_) = self.0
            && let State::Start(enqueue) = std::mem::replace(&mut self.0, State::Done)
        {
            match enqueue.submit() {
                Ok(sent) => self.0 = State::Sent(sent),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        let State::Sent(sent) = &mut self.0 else {
            // Polled again after it was done: a caller's bug that waits, like any other future's.
            return Poll::Pending;
        };
        let answer = ready!(Pin::new(&mut sent.answer).poll(context));
        let State::Sent(sent) = std::mem::replace(&mut self.0, State::Done) else {
            return Poll::Pending;
        };
        let accepted = settle(answer)?;
        let handle = match accepted.into_iter().next() {
            Some(Accepted::Duplicate(id)) => Handle::new(sent.client, id, true),
            _ => Handle::new(sent.client, sent.id, false),
        };
        Poll::Ready(Ok(handle))
    }
}

/// What came of a unit.
fn settle(
    answer: Result<StoreResult<Result<Vec<Accepted>, Refusal>>, oneshot::error::RecvError>,
) -> Result<Vec<Accepted>, EnqueueError> {
    let answer = answer.map_err(|_| StoreError::Failed("dtq's own thread has ended".to_owned()))?;
    Ok(answer??)
}

/// Count and bytes of a unit.
#[expect(clippy::ptr_arg, reason = "a batch's item is the vector")]
pub(crate) fn weigh(unit: &Vec<NewTask>) -> (usize, usize) {
    (unit.len(), unit.iter().map(weight).sum())
}

/// The bytes that a task adds to a call.
fn weight(task: &NewTask) -> usize {
    // What goes along with a payload: id, numbers, lengths.
    const AROUND: usize = 128;
    let key = task.idempotency.as_ref().map_or(0, |idempotency| idempotency.key.len());
    let metadata = task.metadata.as_ref().map_or(0, String::len);
    AROUND + task.name.len() + task.queue.len() + task.payload.len() + key + metadata
}
