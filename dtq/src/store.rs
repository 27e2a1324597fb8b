//! The seam: what a store does, in the domain's words. Nothing below it knows user types
//! (payloads and results are bytes), nothing above it knows Redis or SQL.
//!
//! Every operation is one atomic transition, by the store's own clock (SPEC 5.2, 5.3), and every
//! operation may be repeated after a lost reply without doing anything twice (SPEC 4.7): an
//! enqueue is known by the task's id, a fetch by its nonce, a finish or renewal by the lease.

pub(crate) mod moved;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

pub(crate) use self::moved::{Moved, TakenOut};
use crate::id::TaskId;
use crate::status::Status;

/// Milliseconds: a span, or a moment since the Unix epoch by the store's clock.
pub(crate) type Millis = u64;

/// What a store needs to know of the configuration; the same for every process of a deployment.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// `DTQ_KEY_PREFIX`: the namespace of the deployment.
    pub(crate) key_prefix: String,
    /// `DTQ_MAX_QUEUE_DEPTH`: entries of one queue not yet finished (SPEC 6.2).
    pub(crate) max_queue_depth: u64,
    /// `DTQ_MAX_SCHEDULED`: tasks waiting for a delay (SPEC 6.2).
    pub(crate) max_scheduled: u64,
    /// `DTQ_IDEM_TTL_S`, counted from the end of the task (SPEC 6.5).
    pub(crate) idempotency_ttl: Millis,
    /// `DTQ_DLQ_ENABLED`: whether a permanent failure is dead-lettered or failed (SPEC 3.5).
    pub(crate) dlq_enabled: bool,
    /// `DTQ_DLQ_MAXLEN`.
    pub(crate) dlq_maxlen: u64,
    /// `DTQ_RESULT_RETENTION_S`: how long a succeeded task and its result stay (SPEC 9.6).
    pub(crate) result_retention: Millis,
    /// `DTQ_TASK_RETENTION_S`: how long any other ended task stays.
    pub(crate) task_retention: Millis,
    /// `DTQ_EVENTS` (SPEC 10).
    pub(crate) events: bool,
}

/// When a task becomes due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Now,
    /// A span from the moment of acceptance.
    After(Millis),
    /// A moment; one in the past means now.
    At(Millis),
}

/// A claim on (queue, key) made together with the enqueue (SPEC 6.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Idempotency {
    pub(crate) key: String,
    /// Of task type and payload: the same key with another fingerprint is a mismatch.
    pub(crate) fingerprint: String,
}

/// A task to be accepted. Everything in it has been validated (SPEC 6.1).
#[derive(Debug, Clone)]
pub(crate) struct NewTask {
    pub(crate) id: TaskId,
    pub(crate) name: String,
    pub(crate) queue: String,
    pub(crate) priority: u8,
    pub(crate) max_attempts: u32,
    pub(crate) timeout: Millis,
    pub(crate) payload: Bytes,
    pub(crate) due: Due,
    /// From acceptance (SPEC 9.2).
    pub(crate) ttl: Option<Millis>,
    /// How long the record stays once the task has ended; `None`: the settings' (SPEC 9.6).
    pub(crate) retention: Option<Millis>,
    pub(crate) result_retention: Option<Millis>,
    pub(crate) result_max_bytes: Option<u64>,
    pub(crate) idempotency: Option<Idempotency>,
    /// A JSON object, opaque to the store.
    pub(crate) metadata: Option<String>,
}

/// What became of one task of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// It is in (also when this call repeats one whose reply was lost).
    New,
    /// Its idempotency key belongs to this ended task; nothing was added.
    Duplicate(TaskId),
}

/// Why a unit was refused. Nothing of the unit was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    QueueFull {
        queue: String,
        depth: u64,
        limit: u64,
        retry_after: Millis,
    },
    ScheduleFull {
        scheduled: u64,
        limit: u64,
    },
    /// The key's task is live.
    IdempotencyInProgress {
        task_id: TaskId,
    },
    /// The key's task has another type or payload.
    IdempotencyMismatch {
        task_id: TaskId,
    },
    /// What the unit would be added to is damaged.
    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    Damaged(String),
}

/// Who holds leases: one run of one worker process (SPEC 7.9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    /// `worker-` and 8 hex digits unless configured.
    pub(crate) worker_id: String,
    /// Random for each start; leases belong to it. Letters and digits alone.
    pub(crate) incarnation: String,
}

/// Asks for leased tasks.
#[derive(Debug, Clone)]
pub(crate) struct FetchRequest {
    pub(crate) holder: Holder,
    /// In the order of preference: a queue is emptied of what is ready before the next is read.
    pub(crate) queues: Vec<String>,
    /// Never more than `concurrency - in_flight` (SPEC 7.1).
    pub(crate) max: usize,
    /// The holder's own visibility timeout; the leases' deadline is counted from it.
    pub(crate) visibility: Millis,
    /// Repeated with the same nonce, a fetch returns the same leases (SPEC 4.7).
    pub(crate) nonce: u64,
}

/// A lease and what is needed to execute its task.
#[derive(Debug, Clone)]
pub(crate) struct Leased {
    pub(crate) lease: Lease,
    pub(crate) name: String,
    pub(crate) payload: Bytes,
    pub(crate) max_attempts: u32,
    pub(crate) timeout: Millis,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) metadata: Option<String>,
    pub(crate) result_max_bytes: Option<u64>,
    /// When the task was first put off because no worker knew its type (SPEC 3.8).
    pub(crate) unknown_since: Option<Millis>,
    /// The store's clock at the fetch.
    pub(crate) now: Millis,
}

/// One worker's ownership of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) id: TaskId,
    pub(crate) queue: String,
    pub(crate) priority: u8,
    pub(crate) attempt: u32,
    /// The fence: grows with every grant; a write that names an older one changes nothing.
    pub(crate) number: u64,
    /// The store's own name for the queue entry that was fetched.
    pub(crate) entry: String,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Fetched {
    pub(crate) leased: Vec<Leased>,
    /// Things an operator should read of: damage quarantined, a group recreated.
    pub(crate) notes: Vec<Note>,
}

/// Something a store met and dealt with, to be logged once by the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) task_id: Option<String>,
    pub(crate) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewed {
    Held,
    /// Held, and a cancel was requested (SPEC 7.10).
    CancelRequested,
    Lost,
}

/// The error of one attempt, as the record keeps it (SPEC 3.6, 3.7).
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct ErrorInfo {
    /// The error type's name without its path, or a word such as `timeout` or `worker_lost`.
    pub class: String,
    /// At most 500 characters, without control characters; never empty.
    pub message: String,
    /// Whether the error could be retried.
    pub retryable: bool,
}

/// What one attempt came to.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Succeeded {
        result: KeptResult,
    },
    /// running -> retrying, due after `delay`.
    Retry {
        delay: Millis,
        error: ErrorInfo,
    },
    /// The permanent path: dead-lettered, or failed when the DLQ is disabled.
    Dead {
        error: ErrorInfo,
    },
    /// The worker dropped the task because a cancel was requested.
    Cancelled,
    /// Handed back unfinished, attempt unchanged (SPEC 1.3).
    Released,
    /// running -> pending for `delay`, attempt unchanged (SPEC 3.8).
    Snoozed {
        delay: Millis,
        unknown_type: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeptResult {
    /// JSON, exactly as the task function's value was encoded.
    Json(Bytes),
    /// Larger than the limit: not kept (SPEC 9.7).
    TooLarge { bytes: u64 },
}

/// One outcome to be written, fenced by its lease.
#[derive(Debug, Clone)]
pub(crate) struct Finish {
    pub(crate) lease: Lease,
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finished {
    /// Written; the status that the task has now (a cancel request may have changed it).
    Applied(Status),
    /// The same finish had been applied before.
    Already,
    /// The lease is not this holder's any more: nothing changed.
    Lost,
}

/// What a scheduler's pass found.
#[derive(Debug, Clone)]
pub(crate) enum Claim {
    /// Another worker leads; worth asking again after this.
    Follower { retry_after: Millis },
    /// This worker leads (the lock was taken or refreshed by this very call).
    Leader {
        claimed: Vec<TaskId>,
        /// More are due already.
        full: bool,
        /// Time until the next one is due, if any waits.
        next_due: Option<Millis>,
    },
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Requeued {
    /// How many were put into their queues.
    pub(crate) queued: usize,
    pub(crate) notes: Vec<Note>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Reaped {
    /// Tasks whose lapsed lease was taken: requeued with the next attempt.
    pub(crate) redelivered: Vec<TaskId>,
    /// Tasks that had no attempt left: ended with class `worker_lost`.
    pub(crate) dead: Vec<TaskId>,
    /// More have lapsed already.
    pub(crate) full: bool,
    /// Time until the next deadline, if any lease exists.
    pub(crate) next_deadline: Option<Millis>,
    pub(crate) notes: Vec<Note>,
}

/// A worker's registration (SPEC 7.9) and its sign of life.
#[derive(Debug, Clone)]
pub(crate) struct Heartbeat {
    pub(crate) holder: Holder,
    pub(crate) queues: Vec<String>,
    pub(crate) concurrency: usize,
    pub(crate) in_flight: usize,
    pub(crate) interval: Millis,
    pub(crate) pid: u32,
    pub(crate) host: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Registered {
    Done,
    /// The id is registered by another incarnation, last seen that long ago.
    Taken {
        incarnation: String,
        last_seen_ago: Millis,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// Cancelled at once.
    Done,
    /// Running: its worker has been told.
    Requested,
    /// It had ended already, with this status.
    Ended(Status),
    NotFound,
}

/// Something a store tells those who listen. Notices may be lost: each has a slower way to be learnt.
#[derive(Debug, Clone)]
pub(crate) enum Notice {
    /// A cancel was requested for a running task of this incarnation.
    Cancel(TaskId),
    /// Something became due earlier than what the leader sleeps for.
    DueEarlier,
    /// A watched task ended.
    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    Ended(TaskId),
    /// The connection was renewed: whatever was sent meanwhile was missed.
    Reconnected,
}

/// Who did an administrative thing; goes to the audit trail.
#[derive(Debug, Clone)]
pub(crate) struct Actor(pub(crate) String);

/// Selects dead letters (SPEC 9.3).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetterFilter {
    /// Only those of this queue.
    pub queue: Option<String>,
    /// Only those of this task type.
    pub name: Option<String>,
    /// Only those of this error class.
    pub class: Option<String>,
}

impl DeadLetterFilter {
    /// Whether a dead letter is one of the selected.
    pub(crate) fn matches(&self, letter: &crate::inspect::DeadLetter) -> bool {
        let is = |wanted: &Option<String>, has: &str| wanted.as_ref().is_none_or(|w| w == has);
        is(&self.queue, &letter.queue)
            && is(&self.name, &letter.name)
            && is(&self.class, &letter.error.class)
    }
}

/// A page of something, and where the next begins.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Pass it to read on; `None` at the end.
    pub next: Option<String>,
}

/// What a store failed with.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Away for now: refused, timed out, cut, loading, read-only replica, busy. Worth repeating.
    #[error("the store cannot be reached: {0}")]
    Unavailable(String),
    /// It answered, and refused the write for want of room (OOM, MISCONF, disk full).
    #[error("the store refused the write: {0}")]
    Refused(String),
    /// A newer layout or schema than this version knows; a server too old.
    #[error("{0}")]
    Incompatible(String),
    /// Anything else: wrong password, bad URL, damage, a bug.
    #[error("the store failed: {0}")]
    Failed(String),
}

impl StoreError {
    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Refused(_))
    }
}

pub(crate) type StoreResult<T> = Result<T, StoreError>;

/// The store that a URL names; connects or opens on first use.
pub(crate) fn open(url: &str, settings: &Settings) -> StoreResult<Arc<dyn Store>> {
    let scheme = url.split(':').next().unwrap_or_default();
    match scheme {
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+unix" | "unix" | "valkey" | "valkeys" | "redis-cluster"
        | "redis-sentinel" => Ok(Arc::new(redis::RedisStore::open(url, settings)?)),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Arc::new(sqlite::SqliteStore::open(url, settings)?)),
        _ => Err(StoreError::Failed(format!(
            "no store is reached by `{scheme}:`: the URL is one of redis://host:port/db, \
             rediss://..., redis+unix:///path, sqlite:PATH, sqlite::memory:, as far as dtq's \
             features are enabled"
        ))),
    }
}

/// Whether an error of a task function is a lost connection to a store (SPEC 3.1).
pub(crate) fn is_connection_error(error: &(dyn std::error::Error + 'static)) -> bool {
    #[cfg(feature = "redis")]
    if redis::is_connection_error(error) {
        return true;
    }
    matches!(error.downcast_ref::<StoreError>(), Some(StoreError::Unavailable(_)))
}

/// The user's metadata with what administration adds to it (SPEC 4.6, 9.3). Stores keep the
/// additions beside the user's bytes, which they never touch.
#[cfg_attr(not(any(feature = "redis", feature = "sqlite")), allow(dead_code))]
pub(crate) fn with_admin_metadata(
    own: Option<String>,
    previous_attempts: Option<&str>,
    discarded: bool,
) -> Option<String> {
    let previous: Vec<u32> = previous_attempts
        .map(|list| list.split(',').filter_map(|n| n.parse().ok()).collect())
        .unwrap_or_default();
    if previous.is_empty() && !discarded {
        return own;
    }
    let parsed = own.as_deref().and_then(|json| serde_json::from_str(json).ok());
    let mut object: serde_json::Map<String, serde_json::Value> = parsed.unwrap_or_default();
    if !previous.is_empty() {
        object.insert("previous_attempts".to_owned(), previous.into());
    }
    if discarded {
        object.insert("discarded".to_owned(), true.into());
    }
    serde_json::to_string(&object).ok()
}

/// Logs what a store met and dealt with.
pub(crate) fn log_notes(notes: &[Note]) {
    for note in notes {
        tracing::warn!(task_id = note.task_id, "{}", note.text);
    }
}

/// Where tasks live. See the module's words on atomicity, clocks and repetition.
#[async_trait]
pub(crate) trait Store: Send + Sync + 'static {
    /// Accepts units of tasks; a unit is all or nothing, one refused unit does not touch its
    /// neighbours, and the answers come in order. At most 1000 tasks and 4 MiB a call.
    async fn enqueue(
        &self,
        units: &[Vec<NewTask>],
    ) -> StoreResult<Vec<Result<Vec<Accepted>, Refusal>>>;

    /// Leases up to `max` tasks: strict priority within a queue, FIFO within a priority.
    async fn fetch(&self, request: &FetchRequest) -> StoreResult<Fetched>;

    /// Waits until there may be work in one of the queues, or until `timeout`. One waiter wakes
    /// per piece of news. Never fails for a quiet store; may wake without cause.
    async fn wait_for_work(&self, queues: &[String], timeout: Duration) -> StoreResult<()>;

    /// Extends leases by `visibility` from now; answers in order.
    async fn renew(
        &self,
        holder: &Holder,
        visibility: Millis,
        leases: &[Lease],
    ) -> StoreResult<Vec<Renewed>>;

    /// Writes outcomes of one holder, each fenced by its lease; answers in order.
    async fn finish(&self, holder: &Holder, batch: &[Finish]) -> StoreResult<Vec<Finished>>;

    /// Takes or refreshes the leadership and, holding it, claims up to `limit` due tasks (SPEC 8).
    async fn claim_due(&self, worker_id: &str, limit: usize) -> StoreResult<Claim>;

    /// Puts claimed tasks into their queues, or ends them (SPEC 8.2).
    async fn requeue_claimed(&self, ids: &[TaskId]) -> StoreResult<Requeued>;

    /// Claims older than `older_than` go back to the schedule, due now (SPEC 8.3).
    async fn requeue_stale_claims(&self, older_than: Millis) -> StoreResult<usize>;

    /// Gives the leadership up, if `worker_id` holds it.
    async fn step_down(&self, worker_id: &str) -> StoreResult<()>;

    /// Redelivers tasks whose lease has lapsed (SPEC 4.4).
    async fn reap(&self, limit: usize) -> StoreResult<Reaped>;

    /// Slow upkeep, done by the leader once a minute or so: finds what damage by hand has
    /// stranded, prunes dead members of bounded structures.
    async fn maintain(&self) -> StoreResult<Vec<Note>>;

    /// Registers a starting worker; `take_over` replaces another incarnation of the same id.
    async fn register(&self, beat: &Heartbeat, take_over: bool) -> StoreResult<Registered>;

    /// Renews the registration; restores it when it is gone.
    async fn heartbeat(&self, beat: &Heartbeat) -> StoreResult<()>;

    /// Removes the registration, if it is still this incarnation's.
    async fn deregister(&self, holder: &Holder) -> StoreResult<()>;

    /// Starts the stream of notices for a worker (`Some`) or for waiters alone. The store keeps
    /// it connected until the receiver is dropped.
    fn notices(&self, holder: Option<&Holder>) -> tokio::sync::mpsc::UnboundedReceiver<Notice>;

    /// Asks for a notice when the task ends, and tells its status now (`None`: no record).
    async fn watch(&self, id: TaskId) -> StoreResult<Option<Status>>;

    /// Subscribes to the lifecycle events as JSON texts, undecoded (SPEC 10).
    fn events(&self) -> tokio::sync::mpsc::UnboundedReceiver<String>;

    /// The record, for inspection.
    async fn task(&self, id: TaskId) -> StoreResult<Option<crate::inspect::TaskInfo>>;

    /// Cancels, or asks the task's worker to (SPEC 9.1).
    async fn cancel(&self, id: TaskId) -> StoreResult<Cancelled>;

    /// Live tasks of a queue and status, or finished ones; at most 1000 records are examined.
    async fn tasks(
        &self,
        filter: &crate::inspect::TaskFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> StoreResult<Page<crate::inspect::TaskInfo>>;

    /// Every known queue with its figures.
    async fn queues(&self) -> StoreResult<Vec<crate::inspect::QueueInfo>>;

    /// The names of the known queues alone: what a worker of `*` fetches from.
    async fn queue_names(&self) -> StoreResult<Vec<String>>;

    /// Every registered worker.
    async fn workers(&self) -> StoreResult<Vec<crate::inspect::WorkerInfo>>;

    /// Pauses or resumes a queue: a paused queue is not fetched from (SPEC 9.4).
    async fn set_paused(&self, queue: &str, paused: bool, actor: &Actor) -> StoreResult<()>;

    /// Cancels every task of the queue that waits in it; running ones go on. One bounded chunk:
    /// the count and whether to call again.
    async fn purge_chunk(&self, queue: &str, actor: &Actor) -> StoreResult<(u64, bool)>;

    /// Dead letters, newest first.
    async fn dead_letters(
        &self,
        filter: &DeadLetterFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> StoreResult<Page<crate::inspect::DeadLetter>>;

    /// The admin requeue (SPEC 9.3, 4.6) of tasks that ended dead_lettered, failed, cancelled or
    /// expired; answers in order: the error says why not.
    async fn resurrect(
        &self,
        ids: &[TaskId],
        actor: &Actor,
    ) -> StoreResult<Vec<Result<(), Resurrection>>>;

    /// Removes dead letters. With `keep_records` their records stay, marked `discarded`; without
    /// (a purge) record, result and idempotency key go too. Answers in order whether there was one.
    async fn discard(
        &self,
        ids: &[TaskId],
        keep_records: bool,
        actor: &Actor,
    ) -> StoreResult<Vec<bool>>;

    /// Writes a line to the audit trail: the begin and end of a bulk operation.
    async fn audit(&self, actor: &Actor, action: &str, target: &str, count: u64)
    -> StoreResult<()>;

    /// The newest lines of the audit trail.
    async fn audit_trail(&self, limit: usize) -> StoreResult<Vec<crate::inspect::AuditEntry>>;

    /// Takes up to `limit` things out, to be put into another store: queued, pending and retrying tasks in
    /// the order in which they stand, dead letters, idempotency keys. Nobody runs or finds them here any
    /// more; they stand aside until they are dropped, and a repeated call gives those first.
    async fn take_out(&self, limit: usize) -> StoreResult<TakenOut>;

    /// Puts in what another store gave; what is known by its mark to be in is passed over.
    async fn put_in(&self, moved: &[Moved]) -> StoreResult<()>;

    /// What was taken out is in the other store: here nothing is left of it.
    async fn drop_taken(&self, marks: &[String]) -> StoreResult<()>;

    /// The other store has dropped these: their marks are not needed any more.
    async fn forget_marks(&self, marks: &[String]) -> StoreResult<()>;

    /// A cheap question that fails when the store is away.
    async fn ping(&self) -> StoreResult<()>;
}

/// Why the admin requeue refused a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Resurrection {
    /// There is no record (it may have left with its retention).
    #[error("no such task")]
    NotFound,
    /// It is live, or it succeeded.
    #[error("a task that is {0} cannot be requeued")]
    Not(Status),
    /// Another live task holds its idempotency key.
    #[error("task {0} holds its idempotency key and is still live")]
    KeyTaken(TaskId),
}
