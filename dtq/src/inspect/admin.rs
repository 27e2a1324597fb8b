//! The calls of `client.inspect()`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{
    AuditEntry, DeadLetter, DeadLetterFilter, Page, QueueInfo, Resurrection, TaskFilter, TaskInfo,
    WorkerInfo,
};
use crate::client::Client;
use crate::config::{QUEUE_NAME, is_queue_name};
use crate::error::{Error, Result};
use crate::handle::{self, CancelError, Cancelled};
use crate::id::TaskId;
use crate::store::Actor;

/// Tasks of one round trip of a bulk operation.
const CHUNK: usize = 500;
/// The target of bulk operations on dead letters, in the audit trail.
const DEAD_LETTERS: &str = "dead-letter";

/// Reads and administers what is in the store: [`Client::inspect`].
///
/// What destroys or resurrects is written to the audit trail, under the name that
/// [`as_actor`](Self::as_actor) gives.
///
/// ```no_run
/// # async fn f(client: dtq::Client) -> dtq::Result<()> {
/// let inspect = client.inspect().as_actor("ada");
/// for queue in inspect.queues().await? {
///     println!("{}: {} tasks, {} running", queue.name, queue.depth, queue.running);
/// }
/// inspect.pause("mail").await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Inspect {
    client: Client,
    actor: Actor,
}

/// What a bulk operation did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BulkReport {
    /// Tasks that it was done to.
    pub done: u64,
    /// Tasks that were refused, and why; the first 100.
    pub refused: Vec<(TaskId, Resurrection)>,
    /// How many were refused, the undecodable included.
    pub refused_count: u64,
}

impl Inspect {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, actor: Actor("library".to_owned()) }
    }

    /// Whom the audit trail names; at most 128 characters of it. Without it: `library`.
    #[must_use]
    pub fn as_actor(mut self, actor: &str) -> Self {
        let actor: String = actor.chars().filter(|c| !c.is_control()).take(128).collect();
        self.actor = Actor(if actor.is_empty() { "library".to_owned() } else { actor });
        self
    }

    /// A task's record with its attempts; `None` if there is none (any more).
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub async fn task(&self, id: TaskId) -> Result<Option<TaskInfo>> {
        Ok(self.client.call("task", move |store| async move { store.task(id).await }).await?)
    }

    /// A page of tasks: live ones from where they are, ended ones newest first. It examines at most
    /// 1000 records and may hold fewer than `limit`, also none; the listing ends with a page that has
    /// no `next`.
    ///
    /// # Errors
    ///
    /// [`Error::Store`]; also for an `after` that no page returned.
    pub async fn tasks(
        &self,
        filter: &TaskFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<TaskInfo>> {
        let (filter, after) = (filter.clone(), after.map(str::to_owned));
        let limit = limit.clamp(1, 1000);
        let call = self.client.call("tasks", move |store| {
            let (filter, after) = (filter.clone(), after.clone());
            async move { store.tasks(&filter, after.as_deref(), limit).await }
        });
        Ok(call.await?)
    }

    /// Cancels a task, as [`Handle::cancel`](crate::Handle::cancel) does.
    ///
    /// # Errors
    ///
    /// It has ended already, there is no record of it, or the store failed.
    pub async fn cancel(&self, id: TaskId) -> Result<Cancelled, CancelError> {
        handle::cancel(&self.client, id).await
    }

    /// Every known queue with its figures.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub async fn queues(&self) -> Result<Vec<QueueInfo>> {
        Ok(self.client.call("queues", |store| async move { store.queues().await }).await?)
    }

    /// Every registered worker.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub async fn workers(&self) -> Result<Vec<WorkerInfo>> {
        Ok(self.client.call("workers", |store| async move { store.workers().await }).await?)
    }

    /// Pauses a queue: nothing is fetched from it until it is [resumed](Self::resume). What runs goes
    /// on, and tasks are accepted as before.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it is no queue's name, [`Error::Store`].
    pub async fn pause(&self, queue: &str) -> Result<()> {
        self.set_paused(queue, true).await
    }

    /// Resumes a paused queue.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it is no queue's name, [`Error::Store`].
    pub async fn resume(&self, queue: &str) -> Result<()> {
        self.set_paused(queue, false).await
    }

    async fn set_paused(&self, queue: &str, paused: bool) -> Result<()> {
        let (queue, actor) = (queue_name(queue)?, self.actor.clone());
        let call = self.client.call("pause", move |store| {
            let (queue, actor) = (queue.clone(), actor.clone());
            async move { store.set_paused(&queue, paused, &actor).await }
        });
        Ok(call.await?)
    }

    /// Cancels every task that waits in the queue, and says how many. What runs, and what waits for
    /// a delay or a backoff, is left alone.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it is no queue's name; [`Error::Store`], with the audit trail telling
    /// how far it came: calling it again goes on.
    pub async fn purge(&self, queue: &str) -> Result<u64> {
        let queue = queue_name(queue)?;
        self.audit("purge begin", &queue, 0).await?;
        let mut purged = 0;
        loop {
            let (target, actor) = (queue.clone(), self.actor.clone());
            let call = self.client.call("purge", move |store| {
                let (target, actor) = (target.clone(), actor.clone());
                async move { store.purge_chunk(&target, &actor).await }
            });
            let (count, more) = call.await?;
            purged += count;
            if !more {
                break;
            }
        }
        self.audit("purge end", &queue, purged).await?;
        Ok(purged)
    }

    /// A page of dead letters, newest first. It examines at most 1000 and may hold fewer than
    /// `limit`; the listing ends with a page that has no `next`.
    ///
    /// # Errors
    ///
    /// [`Error::Store`]; also for an `after` that no page returned.
    pub async fn dead_letters(
        &self,
        filter: &DeadLetterFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<DeadLetter>> {
        let (filter, after) = (filter.clone(), after.map(str::to_owned));
        let limit = limit.clamp(1, 1000);
        let call = self.client.call("dead letters", move |store| {
            let (filter, after) = (filter.clone(), after.clone());
            async move { store.dead_letters(&filter, after.as_deref(), limit).await }
        });
        Ok(call.await?)
    }

    /// Gives a task that ended dead_lettered, failed, cancelled or expired a new life: attempt 1, a
    /// new time to live, the old count of attempts in `metadata.previous_attempts`.
    ///
    /// # Errors
    ///
    /// [`Error::Requeue`] says why not, [`Error::Store`].
    pub async fn requeue(&self, id: TaskId) -> Result<()> {
        let answer = self.resurrect(vec![id]).await?.into_iter().next();
        Ok(answer.unwrap_or(Err(Resurrection::NotFound))?)
    }

    /// [Requeues](Self::requeue) every dead letter that the filter selects and that is there when it
    /// begins.
    ///
    /// # Errors
    ///
    /// [`Error::Store`], with the audit trail telling how far it came: calling it again goes on.
    pub async fn requeue_all(&self, filter: &DeadLetterFilter) -> Result<BulkReport> {
        self.audit("requeue all begin", DEAD_LETTERS, 0).await?;
        let mut report = BulkReport::default();
        let mut after = None;
        loop {
            let (ids, unreadable, next) = self.letters(filter, after.as_deref()).await?;
            report.refused_count += unreadable;
            for (id, answer) in ids.iter().zip(self.resurrect(ids.clone()).await?) {
                match answer {
                    Ok(()) => report.done += 1,
                    Err(why) => {
                        report.refused_count += 1;
                        if report.refused.len() < 100 {
                            report.refused.push((*id, why));
                        }
                    }
                }
            }
            after = next;
            if after.is_none() {
                break;
            }
        }
        self.audit("requeue all end", DEAD_LETTERS, report.done).await?;
        Ok(report)
    }

    /// Removes a task's dead letter; its record stays, with `metadata.discarded = true`. `false` if
    /// there was none.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub async fn discard(&self, id: TaskId) -> Result<bool> {
        Ok(self.remove(vec![id], true).await?.into_iter().next().unwrap_or(false))
    }

    /// Removes every dead letter that the filter selects and that is there when it begins, with its
    /// record, and says how many.
    ///
    /// # Errors
    ///
    /// [`Error::Store`], with the audit trail telling how far it came: calling it again goes on.
    pub async fn purge_dead_letters(&self, filter: &DeadLetterFilter) -> Result<u64> {
        self.audit("purge dead letters begin", DEAD_LETTERS, 0).await?;
        let (mut purged, mut after) = (0, None);
        loop {
            let (ids, _, next) = self.letters(filter, after.as_deref()).await?;
            let removed = self.remove(ids, false).await?;
            purged += removed.into_iter().filter(|removed| *removed).count() as u64;
            after = next;
            if after.is_none() {
                break;
            }
        }
        self.audit("purge dead letters end", DEAD_LETTERS, purged).await?;
        Ok(purged)
    }

    /// The newest lines of the audit trail, newest first.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub async fn audit_trail(&self, limit: usize) -> Result<Vec<AuditEntry>> {
        let limit = limit.clamp(1, 10_000);
        Ok(self
            .client
            .call("audit trail", move |store| async move { store.audit_trail(limit).await })
            .await?)
    }

    /// Whether the store answers.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] if it does not.
    pub async fn ping(&self) -> Result<()> {
        Ok(self.client.call("ping", |store| async move { store.ping().await }).await?)
    }

    /// A chunk of dead letters: ids, how many have none that can be read, where to go on.
    async fn letters(
        &self,
        filter: &DeadLetterFilter,
        after: Option<&str>,
    ) -> Result<(Vec<TaskId>, u64, Option<String>)> {
        let page = self.dead_letters(filter, after, CHUNK).await?;
        let all = page.items.len();
        let ids: Vec<TaskId> =
            page.items.iter().filter_map(|letter| letter.task_id.parse().ok()).collect();
        let unreadable = (all - ids.len()) as u64;
        Ok((ids, unreadable, page.next))
    }

    async fn resurrect(&self, ids: Vec<TaskId>) -> Result<Vec<Result<(), Resurrection>>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let (ids, actor) = (Arc::new(ids), self.actor.clone());
        let tries = AtomicU32::new(0);
        let call = self.client.call("requeue", move |store| {
            let (ids, actor) = (Arc::clone(&ids), actor.clone());
            let again = tries.fetch_add(1, Ordering::Relaxed) > 0;
            async move { Ok((store.resurrect(&ids, &actor).await?, again)) }
        });
        let (mut answers, again) = call.await?;
        for answer in &mut answers {
            // A call before did it, and its reply was lost.
            if again && matches!(answer, Err(Resurrection::Not(status)) if status.is_live()) {
                *answer = Ok(());
            }
        }
        Ok(answers)
    }

    async fn remove(&self, ids: Vec<TaskId>, keep_records: bool) -> Result<Vec<bool>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let (ids, actor) = (Arc::new(ids), self.actor.clone());
        let call = self.client.call("discard", move |store| {
            let (ids, actor) = (Arc::clone(&ids), actor.clone());
            async move { store.discard(&ids, keep_records, &actor).await }
        });
        Ok(call.await?)
    }

    async fn audit(&self, action: &'static str, target: &str, count: u64) -> Result<()> {
        let (target, actor) = (target.to_owned(), self.actor.clone());
        let call = self.client.call("audit", move |store| {
            let (target, actor) = (target.clone(), actor.clone());
            async move { store.audit(&actor, action, &target, count).await }
        });
        Ok(call.await?)
    }
}

fn queue_name(queue: &str) -> Result<String> {
    if is_queue_name(queue) {
        return Ok(queue.to_owned());
    }
    let shown: String = queue.chars().take(80).flat_map(char::escape_debug).collect();
    Err(Error::Invalid { field: "queue", reason: format!("is `{shown}`; allowed is {QUEUE_NAME}") })
}
