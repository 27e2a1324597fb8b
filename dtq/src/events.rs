//! Lifecycle events (SPEC 10): what happens to tasks and workers, as it happens.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use serde::{Deserialize, Deserializer, Serialize};
use tokio::sync::mpsc;

use crate::enqueue::Json;
use crate::id::TaskId;
use crate::io::Io;
use crate::store::Store;

/// Events that wait for a subscriber who is slow. What does not fit is counted and dropped.
const WAITING: usize = 8192;

/// Something that happened to a task or a worker. Published by the very transition that makes it
/// true.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// Unique.
    pub event_id: String,
    /// When, by the store's clock: milliseconds since the Unix epoch.
    pub ts: u64,
    /// What.
    #[serde(rename = "type")]
    pub kind: EventKind,
    /// The task; none for a worker's events.
    #[serde(default, deserialize_with = "id_or_none")]
    pub task_id: Option<TaskId>,
    /// The task's queue.
    #[serde(default)]
    pub queue: String,
    /// The task type's wire name.
    #[serde(default)]
    pub task_type: String,
    /// The attempt that it is about.
    #[serde(default)]
    pub attempt: u32,
    /// The worker, if one had to do with it.
    #[serde(default)]
    pub worker_id: Option<String>,
    /// More about it: a JSON object.
    #[serde(default)]
    pub metadata: Option<Json>,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum EventKind {
    /// Accepted, with a delay.
    TaskScheduled,
    /// Ready to be fetched; for a delayed task when it became due.
    TaskQueued,
    /// A worker leased it.
    TaskStarted,
    /// Ended well.
    TaskSucceeded,
    /// Ended badly while the dead-letter queue is disabled.
    TaskFailed,
    /// Failed retryably: it waits for its backoff.
    TaskRetryScheduled,
    /// Its backoff is over: it is ready for the next attempt.
    TaskRetried,
    /// Ended badly, with a dead letter.
    TaskDeadLettered,
    /// Ended by a cancel.
    TaskCancelled,
    /// Ended by its time to live.
    TaskExpired,
    /// Handed back unfinished, attempt unchanged.
    TaskReleased,
    /// Put off by its own function.
    TaskSnoozed,
    /// Its worker's lease lapsed: it is queued again with the next attempt.
    TaskRedelivered,
    /// A second entry of one attempt was dropped.
    TaskDuplicateAbsorbed,
    /// A worker registered.
    WorkerStarted,
    /// A worker left.
    WorkerStopped,
    /// Of a newer version of dtq.
    #[serde(other)]
    Other,
}

impl EventKind {
    /// The name that events carry, such as `TASK_QUEUED`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TaskScheduled => "TASK_SCHEDULED",
            Self::TaskQueued => "TASK_QUEUED",
            Self::TaskStarted => "TASK_STARTED",
            Self::TaskSucceeded => "TASK_SUCCEEDED",
            Self::TaskFailed => "TASK_FAILED",
            Self::TaskRetryScheduled => "TASK_RETRY_SCHEDULED",
            Self::TaskRetried => "TASK_RETRIED",
            Self::TaskDeadLettered => "TASK_DEAD_LETTERED",
            Self::TaskCancelled => "TASK_CANCELLED",
            Self::TaskExpired => "TASK_EXPIRED",
            Self::TaskReleased => "TASK_RELEASED",
            Self::TaskSnoozed => "TASK_SNOOZED",
            Self::TaskRedelivered => "TASK_REDELIVERED",
            Self::TaskDuplicateAbsorbed => "TASK_DUPLICATE_ABSORBED",
            Self::WorkerStarted => "WORKER_STARTED",
            Self::WorkerStopped => "WORKER_STOPPED",
            Self::Other => "OTHER",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A damaged task's events may carry a broken id.
fn id_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<TaskId>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.and_then(|text| text.parse().ok()))
}

/// A subscription to events: [`next`](Self::next), or a [`Stream`](futures_util::Stream).
///
/// Connections that are lost are renewed; what is published meanwhile is missed, and so is what a
/// slow subscriber does not read in time. For what must not be missed ask for the task.
///
/// ```no_run
/// # async fn f(client: dtq::Client) {
/// let mut events = client.events();
/// while let Some(event) = events.next().await {
///     println!("{} {} attempt {}", event.kind, event.task_type, event.attempt);
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Events {
    receiver: mpsc::Receiver<Event>,
    missed: Arc<AtomicU64>,
}

impl Events {
    pub(crate) fn subscribe(store: &Arc<dyn Store>, io: &Io) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        let missed = Arc::new(AtomicU64::new(0));
        let passing = pass(Arc::clone(store), sender, Arc::clone(&missed));
        io.spawn(passing);
        Self { receiver, missed }
    }

    /// The next event. `None` only if dtq's own thread has ended.
    pub async fn next(&mut self) -> Option<Event> {
        self.receiver.recv().await
    }

    /// How many events were dropped because they were not read in time.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

impl futures_util::Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.receiver.poll_recv(context)
    }
}

/// Decodes and passes on until nobody listens.
async fn pass(store: Arc<dyn Store>, sender: mpsc::Sender<Event>, missed: Arc<AtomicU64>) {
    let mut texts = store.events();
    loop {
        let text = tokio::select! {
            text = texts.recv() => text,
            () = sender.closed() => return,
        };
        let Some(text) = text else { return };
        match serde_json::from_str::<Event>(&text) {
            Ok(event) => {
                if sender.try_send(event).is_err() {
                    missed.fetch_add(1, Ordering::Relaxed);
                }
            }
            // H29: it is not ours, or published by hand.
            Err(error) => tracing::debug!(%error, "a malformed event was skipped"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_10_an_event_is_read_and_written_as_the_contract_says() {
        let text = r#"{"event_id":"1-2","ts":5,"type":"TASK_RETRY_SCHEDULED","task_id":"0198f3d2-6a3e-7cc1-9f0a-52c5a1b2c300","queue":"q","task_type":"t","attempt":2,"worker_id":"w","metadata":{"delay_ms":9007199254740993}}"#;
        let event: Event = serde_json::from_str(text).unwrap();
        assert_eq!((event.kind, event.attempt), (EventKind::TaskRetryScheduled, 2));
        let written = serde_json::to_string(&event).unwrap();
        assert!(
            written.contains(r#""type":"TASK_RETRY_SCHEDULED""#)
                && written.contains("9007199254740993")
        );

        let worker =
            r#"{"event_id":"1","ts":5,"type":"WORKER_STARTED","task_id":"","worker_id":"w"}"#;
        let event: Event = serde_json::from_str(worker).unwrap();
        assert_eq!((event.kind, event.task_id), (EventKind::WorkerStarted, None));
    }

    #[test]
    fn spec_10_names_are_those_that_serde_uses() {
        for kind in
            [EventKind::TaskQueued, EventKind::TaskDuplicateAbsorbed, EventKind::WorkerStopped]
        {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
    }
}
