//! Tasks in an SQLite file: nothing to install. Each transition is one transaction, written by one
//! thread; the contract is that of the Redis store, word for word.

mod db;
mod listing;
mod migrate;
mod news;
mod records;
mod subscribe;
#[cfg(feature = "testing")]
mod test_view;
mod transitions;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::params;
use tokio::sync::mpsc;

use self::db::{Db, Place};
use self::records::Tx;
#[cfg(feature = "testing")]
pub(crate) use self::{db::TestClock, test_view::TestView};
use crate::id::TaskId;
use crate::inspect::{AuditEntry, DeadLetter, QueueInfo, TaskFilter, TaskInfo, WorkerInfo};
use crate::status::Status;
use crate::store::{
    Accepted, Actor, Cancelled, Claim, DeadLetterFilter, FetchRequest, Fetched, Finish, Finished,
    Heartbeat, Holder, Lease, Millis, Moved, NewTask, Note, Notice, Page, Reaped, Refusal,
    Registered, Renewed, Requeued, Resurrection, Settings, Store, StoreError, StoreResult,
    TakenOut,
};

/// How long the scheduler's lock lasts unless it is refreshed (SPEC 8.1).
const LOCK_MS: Millis = 10_000;

/// A deployment in a file.
#[derive(Debug)]
pub(crate) struct SqliteStore {
    db: Arc<Db>,
    settings: Arc<Settings>,
}

impl SqliteStore {
    /// Reads the address; the file is opened, or made, by the first call.
    pub(crate) fn open(url: &str, settings: &Settings) -> StoreResult<Self> {
        let place = Place::parse(url, &settings.key_prefix)?;
        Ok(Self { db: Arc::new(Db::start(place)?), settings: Arc::new(settings.clone()) })
    }

    /// Runs a transition in a transaction of its own.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tx<'_>) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let settings = Arc::clone(&self.settings);
        self.db.write(move |tx, now| work(&Tx::new(tx, now, &settings))).await
    }

    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tx<'_>) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let settings = Arc::clone(&self.settings);
        self.db.read(move |tx, now| work(&Tx::new(tx, now, &settings))).await
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn enqueue(
        &self,
        units: &[Vec<NewTask>],
    ) -> StoreResult<Vec<Result<Vec<Accepted>, Refusal>>> {
        let (units, settings) = (units.to_vec(), Arc::clone(&self.settings));
        self.write(move |tx| units.iter().map(|unit| tx.enqueue_unit(unit, &settings)).collect())
            .await
    }

    async fn fetch(&self, request: &FetchRequest) -> StoreResult<Fetched> {
        if request.max == 0 || request.queues.is_empty() {
            return Ok(Fetched::default());
        }
        // A look first: an idle worker's poll takes no write lock.
        let asked = request.clone();
        let any = self.read(move |tx| Ok(tx.has_ready(&asked.queues)? || tx.has_receipt(&asked)?));
        if !any.await? {
            return Ok(Fetched::default());
        }
        let request = request.clone();
        self.write(move |tx| tx.fetch(&request)).await
    }

    async fn wait_for_work(&self, queues: &[String], timeout: Duration) -> StoreResult<()> {
        let mut changed = self.db.changed.subscribe();
        let deadline = tokio::time::Instant::now() + timeout;
        loop {
            changed.mark_unchanged();
            let names = queues.to_vec();
            if self.read(move |tx| tx.has_ready(&names)).await? {
                return Ok(());
            }
            match tokio::time::timeout_at(deadline, changed.changed()).await {
                Ok(Ok(())) => {}
                _ => return Ok(()),
            }
        }
    }

    async fn renew(
        &self,
        _holder: &Holder,
        visibility: Millis,
        leases: &[Lease],
    ) -> StoreResult<Vec<Renewed>> {
        let leases = leases.to_vec();
        self.write(move |tx| leases.iter().map(|lease| tx.renew(lease, visibility)).collect()).await
    }

    async fn finish(&self, _holder: &Holder, batch: &[Finish]) -> StoreResult<Vec<Finished>> {
        let (batch, settings) = (batch.to_vec(), Arc::clone(&self.settings));
        self.write(move |tx| {
            let answers = batch.iter().map(|item| tx.finish(item, &settings)).collect();
            tx.prune(100)?;
            answers
        })
        .await
    }

    async fn claim_due(&self, worker_id: &str, limit: usize) -> StoreResult<Claim> {
        let worker_id = worker_id.to_owned();
        self.write(move |tx| tx.claim_due(&worker_id, limit, LOCK_MS)).await
    }

    async fn requeue_claimed(&self, ids: &[TaskId]) -> StoreResult<Requeued> {
        if ids.is_empty() {
            return Ok(Requeued::default());
        }
        let ids = ids.to_vec();
        self.write(move |tx| {
            let mut requeued = Requeued::default();
            for id in &ids {
                requeued.queued += usize::from(tx.requeue(&id.to_string())?);
            }
            Ok(requeued)
        })
        .await
    }

    async fn requeue_stale_claims(&self, older_than: Millis) -> StoreResult<usize> {
        self.write(move |tx| {
            tx.run(
                "UPDATE task SET claimed_at = NULL, due = ?1 WHERE claimed_at <= ?2 AND status IN (0, 3)",
                params![tx.now, tx.now.saturating_sub(older_than)],
            )
        })
        .await
    }

    async fn step_down(&self, worker_id: &str) -> StoreResult<()> {
        let worker_id = worker_id.to_owned();
        self.write(move |tx| {
            tx.run("DELETE FROM leader WHERE worker_id = ?1", [&worker_id]).map(|_| ())
        })
        .await
    }

    async fn reap(&self, limit: usize) -> StoreResult<Reaped> {
        // A look first: a quiet store is not written to.
        let next = self.read(|tx| tx.next_deadline()).await?;
        if next.is_none_or(|wait| wait > 0) {
            return Ok(Reaped { next_deadline: next, ..Reaped::default() });
        }
        self.write(move |tx| tx.reap(limit)).await
    }

    async fn maintain(&self) -> StoreResult<Vec<Note>> {
        self.write(|tx| {
            tx.prune(5000)?;
            let long_ago = tx.now.saturating_sub(60_000);
            tx.run("DELETE FROM worker WHERE beat + 3 * interval < ?1", [long_ago])?;
            tx.run("DELETE FROM listener WHERE seen < ?1", [long_ago])?;
            tx.run("DELETE FROM receipt WHERE deadline < ?1", [tx.now])?;
            Ok(Vec::new())
        })
        .await
    }

    async fn register(&self, beat: &Heartbeat, take_over: bool) -> StoreResult<Registered> {
        let beat = beat.clone();
        self.write(move |tx| tx.register(&beat, take_over, true)).await
    }

    async fn heartbeat(&self, beat: &Heartbeat) -> StoreResult<()> {
        let beat = beat.clone();
        self.write(move |tx| tx.register(&beat, false, false)).await.map(|_| ())
    }

    async fn deregister(&self, holder: &Holder) -> StoreResult<()> {
        let holder = holder.clone();
        self.write(move |tx| {
            let gone = tx.run(
                "DELETE FROM worker WHERE id = ?1 AND incarnation = ?2",
                [&holder.worker_id, &holder.incarnation],
            )?;
            tx.run("DELETE FROM receipt WHERE incarnation = ?1", [&holder.incarnation])?;
            if gone > 0 {
                tx.emit_about("WORKER_STOPPED", None, Some(&holder.worker_id), None)?;
            }
            Ok(())
        })
        .await
    }

    fn notices(&self, holder: Option<&Holder>) -> mpsc::UnboundedReceiver<Notice> {
        let (out, notices) = mpsc::unbounded_channel();
        let (db, settings) = (Arc::clone(&self.db), Arc::clone(&self.settings));
        tokio::spawn(subscribe::notices(db, settings, holder.cloned(), out));
        notices
    }

    async fn watch(&self, id: TaskId) -> StoreResult<Option<Status>> {
        Ok(self.task(id).await?.map(|info| info.status))
    }

    fn events(&self) -> mpsc::UnboundedReceiver<String> {
        let (out, events) = mpsc::unbounded_channel();
        tokio::spawn(subscribe::events(Arc::clone(&self.db), out));
        events
    }

    async fn task(&self, id: TaskId) -> StoreResult<Option<TaskInfo>> {
        self.read(move |tx| tx.info(&id.to_string())).await
    }

    async fn cancel(&self, id: TaskId) -> StoreResult<Cancelled> {
        self.write(move |tx| tx.cancel(&id.to_string())).await
    }

    async fn tasks(
        &self,
        filter: &TaskFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> StoreResult<Page<TaskInfo>> {
        let (filter, cursor) = (filter.clone(), cursor.map(str::to_owned));
        self.read(move |tx| tx.list_tasks(&filter, cursor.as_deref(), limit)).await
    }

    async fn queues(&self) -> StoreResult<Vec<QueueInfo>> {
        self.read(|tx| tx.list_queues()).await
    }

    async fn queue_names(&self) -> StoreResult<Vec<String>> {
        self.read(|tx| tx.all("SELECT name FROM queue ORDER BY name", [], |row| row.get(0))).await
    }

    async fn workers(&self) -> StoreResult<Vec<WorkerInfo>> {
        self.read(|tx| tx.list_workers()).await
    }

    async fn set_paused(&self, queue: &str, paused: bool, actor: &Actor) -> StoreResult<()> {
        let (queue, actor) = (queue.to_owned(), actor.0.clone());
        self.write(move |tx| {
            tx.run(
                "INSERT INTO queue (name, paused) VALUES (?1, ?2)
                 ON CONFLICT (name) DO UPDATE SET paused = excluded.paused",
                params![queue, paused],
            )?;
            tx.audit(&actor, if paused { "pause" } else { "resume" }, &queue, 1)
        })
        .await
    }

    async fn purge_chunk(&self, queue: &str, actor: &Actor) -> StoreResult<(u64, bool)> {
        let (queue, actor) = (queue.to_owned(), actor.0.clone());
        self.write(move |tx| tx.purge_chunk(&queue, &actor, 500)).await
    }

    async fn dead_letters(
        &self,
        filter: &DeadLetterFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> StoreResult<Page<DeadLetter>> {
        let (filter, cursor) = (filter.clone(), cursor.map(str::to_owned));
        self.read(move |tx| tx.list_dead_letters(&filter, cursor.as_deref(), limit)).await
    }

    async fn resurrect(
        &self,
        ids: &[TaskId],
        actor: &Actor,
    ) -> StoreResult<Vec<Result<(), Resurrection>>> {
        let (ids, actor) = (ids.to_vec(), actor.0.clone());
        self.write(move |tx| ids.iter().map(|id| tx.resurrect(&id.to_string(), &actor)).collect())
            .await
    }

    async fn discard(
        &self,
        ids: &[TaskId],
        keep_records: bool,
        actor: &Actor,
    ) -> StoreResult<Vec<bool>> {
        let (ids, actor) = (ids.to_vec(), actor.0.clone());
        self.write(move |tx| {
            ids.iter().map(|id| tx.discard(&id.to_string(), keep_records, &actor)).collect()
        })
        .await
    }

    async fn audit(
        &self,
        actor: &Actor,
        action: &str,
        target: &str,
        count: u64,
    ) -> StoreResult<()> {
        let (actor, action, target) = (actor.0.clone(), action.to_owned(), target.to_owned());
        self.write(move |tx| tx.audit(&actor, &action, &target, count)).await
    }

    async fn audit_trail(&self, limit: usize) -> StoreResult<Vec<AuditEntry>> {
        self.read(move |tx| tx.list_audit(limit)).await
    }

    async fn take_out(&self, limit: usize) -> StoreResult<TakenOut> {
        self.write(move |tx| tx.take_out(limit)).await
    }

    async fn put_in(&self, moved: &[Moved]) -> StoreResult<()> {
        let moved = moved.to_vec();
        self.write(move |tx| moved.iter().try_for_each(|item| tx.put_in(item))).await
    }

    async fn drop_taken(&self, marks: &[String]) -> StoreResult<()> {
        let marks = marks.to_vec();
        self.write(move |tx| {
            marks.iter().try_for_each(|mark| {
                tx.run("DELETE FROM moving WHERE mark = ?1", [mark]).map(|_| ())
            })
        })
        .await
    }

    async fn forget_marks(&self, marks: &[String]) -> StoreResult<()> {
        let marks = marks.to_vec();
        self.write(move |tx| {
            marks.iter().try_for_each(|mark| {
                tx.run("DELETE FROM moved WHERE mark = ?1", [mark]).map(|_| ())
            })
        })
        .await
    }

    async fn ping(&self) -> StoreResult<()> {
        self.read(|_| Ok(())).await
    }
}

/// A cursor that is not one.
fn bad_cursor() -> StoreError {
    StoreError::Failed("the cursor is not one that a page returned".to_owned())
}
