//! The configuration: one struct, read from `DTQ_` variables or built by hand, all of it checked at
//! start (SPEC 11).

use std::time::Duration;

/// Everything that can be configured.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// `DTQ_URL` (alias `DTQ_REDIS_URL`): where tasks live.
    pub(crate) url: Option<String>,
    /// `DTQ_KEY_PREFIX`, default `dtq`: the namespace of a deployment.
    pub(crate) key_prefix: String,
    /// `DTQ_RETRY_BASE_DELAY` seconds, `DTQ_RETRY_MAX_DELAY` seconds, `DTQ_RETRY_JITTER`.
    pub(crate) retry: crate::retry::Policy,
    /// `DTQ_MAX_ATTEMPTS`, default 10: caps what a task may ask for.
    pub(crate) max_attempts_cap: u32,
    /// `DTQ_MAX_PAYLOAD_BYTES`, default 262144.
    pub(crate) max_payload_bytes: u64,
    /// `DTQ_MAX_QUEUE_DEPTH`, default 10000.
    pub(crate) max_queue_depth: u64,
    /// `DTQ_MAX_SCHEDULED`, default 1000000.
    pub(crate) max_scheduled: u64,
    /// `DTQ_IDEM_TTL_S`, default 86400.
    pub(crate) idempotency_ttl: Duration,
    /// `DTQ_RESULT_RETENTION_S`, default 3600.
    pub(crate) result_retention: Duration,
    /// `DTQ_TASK_RETENTION_S`, default 604800.
    pub(crate) task_retention: Duration,
    /// `DTQ_RESULT_MAX_BYTES`, default 8192.
    pub(crate) result_max_bytes: u64,
    /// `DTQ_EVENTS`, `on` (default) or `off`.
    pub(crate) events: bool,
    /// `DTQ_DLQ_ENABLED`, default true.
    pub(crate) dlq_enabled: bool,
    /// `DTQ_DLQ_MAXLEN`, default 10000.
    pub(crate) dlq_maxlen: u64,
    /// `DTQ_TASK_TIMEOUT_MS`, default 30000: for tasks whose attribute sets none.
    pub(crate) task_timeout: Duration,
    /// `DTQ_WORKER_CONCURRENCY`, default 4 x cores.
    pub(crate) concurrency: usize,
    /// `DTQ_WORKER_ID`.
    pub(crate) worker_id: Option<String>,
    /// `DTQ_QUEUES`, comma separated, `name` or `name=weight`, or `*`.
    pub(crate) queues: Option<Vec<QueueChoice>>,
    /// `DTQ_VISIBILITY_TIMEOUT_S`, default 30.
    pub(crate) visibility_timeout: Duration,
    /// `DTQ_HEARTBEAT_INTERVAL_S`, default 5, at most a third of the visibility timeout.
    pub(crate) heartbeat_interval: Duration,
    /// `DTQ_DRAIN_TIMEOUT_S`, default 30.
    pub(crate) drain_timeout: Duration,
    /// `DTQ_UNKNOWN_TASK`: `dead_letter` (default) or `snooze`.
    pub(crate) unknown_task: UnknownTask,
}

/// A queue that a worker fetches from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueChoice {
    /// A name, or `*` for every known queue.
    pub(crate) name: String,
    /// `None`: strict order. With weights a worker draws the order of its queues for each fetch.
    pub(crate) weight: Option<u32>,
}

/// What to do with a task of an unknown type (SPEC 3.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownTask {
    /// Dead-letter it, never executed.
    DeadLetter,
    /// Put it off by 60 s, for at most 24 h: for rolling deploys.
    Snooze,
}
