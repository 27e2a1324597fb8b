//! Reading and administering what is in the store: `client.inspect()` (SPEC 9).

mod admin;

pub use self::admin::{BulkReport, Inspect};
use crate::id::TaskId;
use crate::status::Status;
pub use crate::store::{DeadLetterFilter, ErrorInfo, Page, Resurrection};

/// A task's record as the store holds it.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct TaskInfo {
    /// Its id.
    pub id: TaskId,
    /// The task type's wire name; empty if the record was damaged.
    pub name: String,
    /// Its queue.
    pub queue: String,
    /// 0 to 9.
    pub priority: u8,
    /// Where it stands.
    pub status: Status,
    /// The attempt that runs, ran last, or will run next.
    pub attempt: u32,
    /// Executions at most.
    pub max_attempts: u32,
    /// What one attempt may take, in milliseconds.
    pub timeout_ms: u64,
    /// The encoded payload.
    pub payload: Vec<u8>,
    /// The producer's clock at the enqueue, milliseconds since the Unix epoch.
    pub created_ms: u64,
    /// When a pending or retrying task becomes due, by the store's clock.
    pub due_ms: Option<u64>,
    /// After this it may not start any more.
    pub expires_ms: Option<u64>,
    /// When the latest attempt started.
    pub started_ms: Option<u64>,
    /// When the task ended.
    pub finished_ms: Option<u64>,
    /// The worker of the latest attempt.
    pub worker_id: Option<String>,
    /// The idempotency key.
    pub idempotency_key: Option<String>,
    /// The metadata: a JSON object.
    pub metadata: Option<String>,
    /// The latest error.
    pub last_error: Option<LastError>,
    /// The latest attempts, at most 20, oldest first.
    pub history: Vec<AttemptInfo>,
    /// A cancel was requested while it ran.
    pub cancel_requested: bool,
    /// What is known of its result.
    pub result: ResultInfo,
}

/// What is known of a task's result.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ResultInfo {
    /// None: the task has not succeeded, or the result has left with its retention.
    None,
    /// The JSON that the task function returned.
    Json(String),
    /// It was larger than the limit and not kept.
    TooLarge {
        /// Its size.
        bytes: u64,
    },
}

/// The latest error of a task.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct LastError {
    /// Class, message, whether it was retryable.
    #[serde(flatten)]
    pub info: ErrorInfo,
    /// The delay that was chosen, if it was retried.
    pub delay_ms: Option<u64>,
}

/// One attempt of a task.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct AttemptInfo {
    /// Its number, from 1.
    pub attempt: u32,
    /// When it started, by the store's clock.
    pub started_ms: u64,
    /// When it ended; `None` while it runs.
    pub ended_ms: Option<u64>,
    /// Who ran it.
    pub worker_id: String,
    /// `running`, `succeeded`, `retrying`, `dead_lettered`, `failed`, `cancelled`, `released`, `snoozed` or `lost`.
    pub outcome: String,
    /// Its error.
    pub error: Option<ErrorInfo>,
}

/// A dead letter.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The task; a text, because an undecodable entry may carry none or a broken one.
    pub task_id: String,
    /// The task type's wire name.
    pub name: String,
    /// Its queue.
    pub queue: String,
    /// The encoded payload.
    pub payload: Vec<u8>,
    /// Class and message.
    pub error: ErrorInfo,
    /// Attempts made.
    pub attempts: u32,
    /// The worker of the last attempt.
    pub worker_id: Option<String>,
    /// When it was dead-lettered, by the store's clock.
    pub dead_ms: u64,
}

/// A queue and its figures.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct QueueInfo {
    /// Its name.
    pub name: String,
    /// Whether it is paused.
    pub paused: bool,
    /// Entries ready or being run.
    pub depth: u64,
    /// Of these, being run.
    pub running: u64,
    /// Tasks waiting for a delay or a backoff.
    pub scheduled: u64,
    /// How long the oldest entry has been in it, in milliseconds.
    pub oldest_age_ms: Option<u64>,
    /// Tasks that succeeded since the counters began.
    pub succeeded: u64,
    /// Tasks that ended dead-lettered or failed since the counters began.
    pub failed: u64,
}

/// A registered worker.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// Its id.
    pub id: String,
    /// This run of it.
    pub incarnation: String,
    /// What it fetches from.
    pub queues: Vec<String>,
    /// How many tasks it runs at once.
    pub concurrency: u64,
    /// How many it runs now.
    pub in_flight: u64,
    /// Its heartbeat interval, in milliseconds.
    pub interval_ms: u64,
    /// How long ago its last heartbeat was, by the store's clock.
    pub last_seen_ago_ms: u64,
    /// No heartbeat for three intervals.
    pub stale: bool,
    /// Its process id.
    pub pid: u32,
    /// Its host's name.
    pub host: String,
}

/// A line of the audit trail.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct AuditEntry {
    /// When, by the store's clock.
    pub at_ms: u64,
    /// Who.
    pub actor: String,
    /// What.
    pub action: String,
    /// A queue, a task, or `dead-letter`.
    pub target: String,
    /// How many tasks.
    pub count: u64,
}

/// Selects tasks for a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskFilter {
    /// Only those with this status.
    pub status: Option<Status>,
    /// Only those of this queue.
    pub queue: Option<String>,
    /// Only those of this task type.
    pub name: Option<String>,
}

impl TaskFilter {
    /// Only tasks with this status.
    #[must_use]
    pub fn status(mut self, status: Status) -> Self {
        self.status = Some(status);
        self
    }

    /// Only tasks of this queue.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Only tasks of this type, by its wire name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }
}

impl DeadLetterFilter {
    /// Only dead letters of this queue.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Only dead letters of this task type, by its wire name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Only dead letters of this error class.
    #[must_use]
    pub fn class(mut self, class: impl Into<String>) -> Self {
        self.class = Some(class.into());
        self
    }
}
