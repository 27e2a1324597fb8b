//! What a task function may ask about its execution.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::sync::Notify;

use crate::client::Client;
use crate::id::TaskId;

/// The context of one execution: declare a parameter `#[ctx] ctx: dtq::Context` to receive it.
///
/// ```
/// # mod dtq_docs {
/// #[dtq::task]
/// async fn import(file: String, #[ctx] ctx: dtq::Context) -> Result<(), dtq::TaskError> {
///     if ctx.is_last_attempt() {
///         eprintln!("{} is tried for the last time", ctx.task_id());
///     }
///     // Follow-up work goes in through the same store.
///     Import::enqueue(format!("{file}.next")).on(ctx.client()).await?;
///     Ok(())
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct Context(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) task_id: TaskId,
    pub(crate) attempt: u32,
    pub(crate) max_attempts: u32,
    pub(crate) queue: String,
    pub(crate) worker_id: String,
    pub(crate) deadline: Instant,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) metadata: Option<String>,
    pub(crate) cancelled: Arc<CancelFlag>,
    pub(crate) client: Client,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("task_id", &self.0.task_id)
            .field("attempt", &self.0.attempt)
            .field("queue", &self.0.queue)
            .finish_non_exhaustive()
    }
}

impl Context {
    /// The task's id, the same for every attempt: a good idempotency key for what the task calls.
    pub fn task_id(&self) -> TaskId {
        self.0.task_id
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// Executions at most, the first included.
    pub fn max_attempts(&self) -> u32 {
        self.0.max_attempts
    }

    /// Whether a failure now is final.
    pub fn is_last_attempt(&self) -> bool {
        self.0.attempt >= self.0.max_attempts
    }

    /// The queue that the task was fetched from.
    pub fn queue(&self) -> &str {
        &self.0.queue
    }

    /// The worker that runs it.
    pub fn worker_id(&self) -> &str {
        &self.0.worker_id
    }

    /// When the attempt's timeout strikes.
    pub fn deadline(&self) -> Instant {
        self.0.deadline
    }

    /// The idempotency key of the enqueue.
    pub fn idempotency_key(&self) -> Option<&str> {
        self.0.idempotency_key.as_deref()
    }

    /// The metadata of the enqueue.
    pub fn metadata(&self) -> serde_json::Map<String, serde_json::Value> {
        let parsed = self.0.metadata.as_deref().and_then(|json| serde_json::from_str(json).ok());
        parsed.unwrap_or_default()
    }

    /// Ends when the task is cancelled, its lease is lost, its timeout strikes, or the worker gives it
    /// back. An async task function is dropped then by itself; wait for this in tasks of your own
    /// that it spawned.
    pub async fn cancelled(&self) {
        self.0.cancelled.wait().await;
    }

    /// Whether [`cancelled`](Self::cancelled) has ended: what a blocking task function asks now and then.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.is_set()
    }

    /// A client of the store that the task came from.
    pub fn client(&self) -> &Client {
        &self.0.client
    }
}

/// Set once, waited for by many.
#[derive(Debug, Default)]
pub(crate) struct CancelFlag {
    set: AtomicBool,
    told: Notify,
}

impl CancelFlag {
    pub(crate) fn set(&self) {
        self.set.store(true, Ordering::Release);
        self.told.notify_waiters();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    pub(crate) async fn wait(&self) {
        let told = self.told.notified();
        tokio::pin!(told);
        // Registered before the flag is read, so that a set in between is not missed.
        told.as_mut().enable();
        if !self.is_set() {
            told.await;
        }
    }
}
