//! The builder: it writes into the same table as the environment does, so that both are checked by
//! the same rules.

use std::fmt;
use std::time::Duration;

use super::{Config, ConfigError, StoreUrl, UnknownTask, dtq_variables};

/// Builds a [`Config`]: what is not set is the default. Values are checked by [`build`](Self::build),
/// exactly as the variables of the same meaning are.
///
/// ```
/// use std::time::Duration;
/// let error = dtq::Config::builder()
///     .concurrency(0)
///     .visibility_timeout(Duration::MAX)
///     .build()
///     .unwrap_err();
/// assert_eq!(error.problems.len(), 2, "both at once: {error}");
/// ```
#[derive(Clone, Default)]
pub struct ConfigBuilder {
    variables: Vec<(String, String)>,
}

/// A setter for each variable.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($value:ident: $type:ty) -> $variable:literal $(= $text:expr)?;)*) => {
        impl ConfigBuilder {
            $($(#[$doc])* #[must_use] pub fn $name(self, $value: $type) -> Self {
                let text = setters!(@text $value $(, $text)?);
                self.set($variable, text)
            })*
        }
    };
    (@text $value:ident) => { $value.to_string() };
    (@text $value:ident, $text:expr) => { $text };
}

setters! {
    /// `DTQ_KEY_PREFIX`: the namespace of the deployment; `dtq`.
    key_prefix(prefix: impl Into<String>) -> "DTQ_KEY_PREFIX" = prefix.into();
    /// `DTQ_RETRY_BASE_DELAY`: the first backoff; 1 s.
    retry_base_delay(delay: Duration) -> "DTQ_RETRY_BASE_DELAY" = delay.as_secs_f64().to_string();
    /// `DTQ_RETRY_MAX_DELAY`: the longest backoff before jitter; 60 s.
    retry_max_delay(delay: Duration) -> "DTQ_RETRY_MAX_DELAY" = delay.as_secs_f64().to_string();
    /// `DTQ_RETRY_JITTER`: 0 to 1; 0.2.
    retry_jitter(jitter: f64) -> "DTQ_RETRY_JITTER";
    /// `DTQ_MAX_ATTEMPTS`: what a task may ask for at most; 10.
    max_attempts(cap: u32) -> "DTQ_MAX_ATTEMPTS";
    /// `DTQ_MAX_PAYLOAD_BYTES`: of the encoded payload; 262144.
    max_payload_bytes(bytes: u64) -> "DTQ_MAX_PAYLOAD_BYTES";
    /// `DTQ_MAX_QUEUE_DEPTH`: entries of a queue that are not finished; 10000.
    max_queue_depth(depth: u64) -> "DTQ_MAX_QUEUE_DEPTH";
    /// `DTQ_MAX_SCHEDULED`: tasks that wait for a delay; 1000000.
    max_scheduled(tasks: u64) -> "DTQ_MAX_SCHEDULED";
    /// `DTQ_IDEM_TTL_S`: how long an idempotency key outlives its task; 24 h.
    idempotency_ttl(span: Duration) -> "DTQ_IDEM_TTL_S" = span.as_secs_f64().to_string();
    /// `DTQ_RESULT_RETENTION_S`: how long a succeeded task and its result stay; 1 h.
    result_retention(span: Duration) -> "DTQ_RESULT_RETENTION_S" = span.as_secs_f64().to_string();
    /// `DTQ_TASK_RETENTION_S`: how long any other ended task stays; 7 days.
    task_retention(span: Duration) -> "DTQ_TASK_RETENTION_S" = span.as_secs_f64().to_string();
    /// `DTQ_RESULT_MAX_BYTES`: the largest result that is kept; 8192.
    result_max_bytes(bytes: u64) -> "DTQ_RESULT_MAX_BYTES";
    /// `DTQ_EVENTS`: whether lifecycle events are published; on.
    events(on: bool) -> "DTQ_EVENTS";
    /// `DTQ_DLQ_ENABLED`: whether failed tasks become dead letters; true.
    dlq_enabled(on: bool) -> "DTQ_DLQ_ENABLED";
    /// `DTQ_DLQ_MAXLEN`: dead letters that are kept; 10000.
    dlq_maxlen(letters: u64) -> "DTQ_DLQ_MAXLEN";
    /// `DTQ_TASK_TIMEOUT_MS`: for tasks whose attribute sets none; 30 s.
    task_timeout(span: Duration) -> "DTQ_TASK_TIMEOUT_MS" = span.as_millis().to_string();
    /// `DTQ_WORKER_CONCURRENCY`: tasks that a worker runs at once; four for each core.
    concurrency(tasks: usize) -> "DTQ_WORKER_CONCURRENCY";
    /// `DTQ_WORKER_ID`: `worker-` and eight hex digits.
    worker_id(id: impl Into<String>) -> "DTQ_WORKER_ID" = id.into();
    /// `DTQ_QUEUES`: what a worker fetches from: `["critical", "default"]` in this order,
    /// `["critical=3", "default=1"]` by weight, `["*"]` every known queue. Without it: `default` and
    /// the queues that the worker's own tasks name.
    queues(queues: impl IntoIterator<Item = impl AsRef<str>>) -> "DTQ_QUEUES" = {
        let queues: Vec<_> = queues.into_iter().map(|queue| queue.as_ref().to_owned()).collect();
        queues.join(",")
    };
    /// `DTQ_VISIBILITY_TIMEOUT_S`: how long a lease lasts unless it is renewed; 30 s.
    visibility_timeout(span: Duration) -> "DTQ_VISIBILITY_TIMEOUT_S" = span.as_secs_f64().to_string();
    /// `DTQ_HEARTBEAT_INTERVAL_S`: a worker's sign of life; 5 s, at most a third of the visibility timeout.
    heartbeat_interval(span: Duration) -> "DTQ_HEARTBEAT_INTERVAL_S" = span.as_secs_f64().to_string();
    /// `DTQ_DRAIN_TIMEOUT_S`: how long a worker that shuts down waits for what it runs; 30 s.
    drain_timeout(span: Duration) -> "DTQ_DRAIN_TIMEOUT_S" = span.as_secs_f64().to_string();
    /// `DTQ_UNKNOWN_TASK`: what becomes of tasks whose type a worker does not know; dead letters.
    unknown_task(what: UnknownTask) -> "DTQ_UNKNOWN_TASK" = match what {
        UnknownTask::DeadLetter => "dead_letter".to_owned(),
        UnknownTask::Snooze => "snooze".to_owned(),
    };
}

impl ConfigBuilder {
    pub(super) fn set(mut self, variable: &str, text: String) -> Self {
        self.variables.push((variable.to_owned(), text));
        self
    }

    /// `DTQ_URL`: where tasks live; see [`Client::connect`](crate::Client::connect).
    #[must_use]
    pub fn url(mut self, url: impl Into<String>) -> Self {
        // The alias is not to contradict what is said here.
        self.variables.retain(|(name, _)| name != "DTQ_REDIS_URL");
        self.set("DTQ_URL", url.into())
    }

    /// Takes the environment's `DTQ_` variables over what was set so far; what is set afterwards
    /// wins over them.
    #[must_use]
    pub fn env(mut self) -> Self {
        self.variables.extend(dtq_variables());
        self
    }

    /// Checks everything.
    ///
    /// # Errors
    ///
    /// All problems together, under the names of the variables that mean the same.
    pub fn build(self) -> Result<Config, ConfigError> {
        Config::from_variables(&self.variables)
    }
}

impl fmt::Debug for ConfigBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each value is shown as a URL is: without its password, if it has one.
        let shown = self.variables.iter().map(|(name, value)| (name, StoreUrl(value.clone())));
        f.debug_map().entries(shown).finish()
    }
}
