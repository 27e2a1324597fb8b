//! Rows of the table `task`, and the transitions that end or move one: every write of a status goes
//! through [`Tx::set_status`].

use rusqlite::{OptionalExtension as _, Row, Transaction, params};

use super::db::to_store_error;
use crate::id::TaskId;
use crate::inspect::{AttemptInfo, LastError, ResultInfo, TaskInfo};
use crate::status::Status;
use crate::store::{ErrorInfo, Millis, Settings, StoreError, StoreResult};

/// Ended tasks that a listing finds (SPEC 5, `tasks:recent`).
const EVENT_KEPT: Millis = 60_000;
/// A listener that has not shown up for so long is gone.
const LISTENER_LIVES: Millis = 15_000;

/// A record, without its payload and result.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) id: String,
    pub(super) status: Status,
    pub(super) attempt: u32,
    pub(super) name: String,
    pub(super) queue: String,
    pub(super) priority: u8,
    pub(super) max_attempts: u32,
    pub(super) timeout: Millis,
    pub(super) expires: Option<Millis>,
    pub(super) ttl: Option<Millis>,
    pub(super) idempotency_key: Option<String>,
    pub(super) fingerprint: Option<String>,
    pub(super) retention: Option<Millis>,
    pub(super) result_retention: Option<Millis>,
    pub(super) result_max_bytes: Option<u64>,
    pub(super) metadata: Option<String>,
    pub(super) lease: u64,
    pub(super) worker_id: Option<String>,
    pub(super) started: Option<Millis>,
    pub(super) cancel_requested: bool,
    pub(super) history: String,
    pub(super) unknown_since: Option<Millis>,
    pub(super) dead_letter: Option<i64>,
    pub(super) previous_attempts: Option<String>,
    pub(super) left_at_once: bool,
}

/// The columns of a [`Record`], in its order.
const COLUMNS: &str = "id, status, attempt, name, queue, priority, max_attempts, timeout, expires, ttl, \
    idempotency_key, fingerprint, retention, result_retention, result_max_bytes, metadata, lease, worker_id, \
    started, cancel_requested, history, unknown_since, dead_letter, previous_attempts, left_at_once";

fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    let code: u8 = row.get(1)?;
    Ok(Record {
        id: row.get(0)?,
        status: Status::from_code(code)
            .ok_or(rusqlite::Error::IntegralValueOutOfRange(1, code.into()))?,
        attempt: row.get(2)?,
        name: row.get(3)?,
        queue: row.get(4)?,
        priority: row.get(5)?,
        max_attempts: row.get(6)?,
        timeout: row.get(7)?,
        expires: row.get(8)?,
        ttl: row.get(9)?,
        idempotency_key: row.get(10)?,
        fingerprint: row.get(11)?,
        retention: row.get(12)?,
        result_retention: row.get(13)?,
        result_max_bytes: row.get(14)?,
        metadata: row.get(15)?,
        lease: row.get(16)?,
        worker_id: row.get(17)?,
        started: row.get(18)?,
        cancel_requested: row.get(19)?,
        history: row.get(20)?,
        unknown_since: row.get(21)?,
        dead_letter: row.get(22)?,
        previous_attempts: row.get(23)?,
        left_at_once: row.get(24)?,
    })
}

/// One transaction at one moment.
pub(super) struct Tx<'a> {
    tx: &'a Transaction<'a>,
    pub(super) now: Millis,
    settings: &'a Settings,
    listening: std::cell::OnceCell<bool>,
}

/// In tests: no statement may read a whole table, which is cheap while it is small.
fn found_by_index(_sql: &str, _statement: &rusqlite::Statement<'_>) {
    #[cfg(test)]
    {
        let read = _statement.reset_status(rusqlite::StatementStatus::FullscanStep);
        assert!(read <= 5, "{read} rows were read one by one by: {_sql}");
    }
}

/// What a transition tells besides its status.
#[derive(Default)]
pub(super) struct Ending<'a> {
    pub(super) error: Option<&'a ErrorInfo>,
}

impl<'a> Tx<'a> {
    pub(super) fn new(tx: &'a Transaction<'a>, now: Millis, settings: &'a Settings) -> Self {
        Self { tx, now, settings, listening: std::cell::OnceCell::new() }
    }

    pub(super) fn run(&self, sql: &str, params: impl rusqlite::Params) -> StoreResult<usize> {
        let mut statement = self.tx.prepare_cached(sql).map_err(to_store_error)?;
        let done = statement.execute(params).map_err(to_store_error)?;
        found_by_index(sql, &statement);
        Ok(done)
    }

    pub(super) fn one<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> StoreResult<Option<T>> {
        let mut statement = self.tx.prepare_cached(sql).map_err(to_store_error)?;
        let found = statement.query_row(params, read).optional().map_err(to_store_error)?;
        found_by_index(sql, &statement);
        Ok(found)
    }

    pub(super) fn all<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> StoreResult<Vec<T>> {
        let mut statement = self.tx.prepare_cached(sql).map_err(to_store_error)?;
        let rows = statement.query_map(params, read).map_err(to_store_error)?;
        let rows = rows.collect::<rusqlite::Result<_>>().map_err(to_store_error)?;
        found_by_index(sql, &statement);
        Ok(rows)
    }

    pub(super) fn record(&self, id: &str) -> StoreResult<Option<Record>> {
        self.one(&format!("SELECT {COLUMNS} FROM task WHERE id = ?1"), [id], record)
    }

    pub(super) fn payload(&self, id: &str) -> StoreResult<Vec<u8>> {
        let found = self.one("SELECT payload FROM task WHERE id = ?1", [id], |row| row.get(0))?;
        Ok(found.unwrap_or_default())
    }

    /// Checks the move against the table, writes it, and keeps the queue's counters.
    pub(super) fn set_status(&self, record: &mut Record, to: Status) -> StoreResult<()> {
        record.status.check_move(to).map_err(|error| StoreError::Failed(error.to_string()))?;
        self.count_move(record, to)?;
        self.run("UPDATE task SET status = ?2 WHERE id = ?1", params![record.id, to.code()])?;
        record.status = to;
        Ok(())
    }

    /// Depth is what is queued or running, scheduled what is pending or retrying.
    fn count_move(&self, record: &Record, to: Status) -> StoreResult<()> {
        let in_queue = |status| i64::from(matches!(status, Status::Queued | Status::Running));
        let waits = |status| i64::from(matches!(status, Status::Pending | Status::Retrying));
        let (from, ended) = (record.status, to.is_terminal());
        self.run(
            "INSERT INTO queue (name, depth, scheduled, succeeded, failed) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (name) DO UPDATE SET depth = depth + excluded.depth,
             scheduled = scheduled + excluded.scheduled, succeeded = succeeded + excluded.succeeded,
             failed = failed + excluded.failed",
            params![
                record.queue,
                in_queue(to) - in_queue(from),
                waits(to) - waits(from),
                i64::from(to == Status::Succeeded),
                i64::from(ended && matches!(to, Status::DeadLettered | Status::Failed)),
            ],
        )
        .map(|_| ())
    }

    /// The admin requeue's own move, which the table does not hold.
    pub(super) fn count_resurrection(&self, record: &Record) -> StoreResult<()> {
        self.run(
            "INSERT INTO queue (name, depth) VALUES (?1, 1) ON CONFLICT (name) DO UPDATE SET depth = depth + 1",
            [&record.queue],
        )
        .map(|_| ())
    }

    /// The next place at the tail of a queue.
    pub(super) fn next_entry(&self) -> StoreResult<i64> {
        let next = self.one(
            "INSERT INTO meta (key, value) VALUES ('entry', 1)
             ON CONFLICT (key) DO UPDATE SET value = value + 1 RETURNING value",
            [],
            |row| row.get(0),
        )?;
        next.ok_or_else(|| StoreError::Failed("no entry number".to_owned()))
    }

    /// Puts the task at the tail of its queue.
    pub(super) fn enter(&self, record: &mut Record) -> StoreResult<()> {
        self.set_status(record, Status::Queued)?;
        self.run(
            "UPDATE task SET entry = ?2, attempt = ?3, due = NULL, claimed_at = NULL, deadline = NULL,
             cancel_requested = 0 WHERE id = ?1",
            params![record.id, self.next_entry()?, record.attempt],
        )
        .map(|_| ())
    }

    /// A terminal status with all that follows from it.
    pub(super) fn end(
        &self,
        record: &mut Record,
        to: Status,
        ending: &Ending<'_>,
    ) -> StoreResult<()> {
        self.set_status(record, to)?;
        let kept = record.retention.unwrap_or(if to == Status::Succeeded {
            self.settings.result_retention
        } else {
            self.settings.task_retention
        });
        let error = ending.error.map(error_json);
        self.run(
            "UPDATE task SET finished = ?2, leaves = ?3, left_at_once = ?4, error = COALESCE(?5, error),
             error_delay = CASE WHEN ?5 IS NULL THEN error_delay END, entry = NULL, due = NULL,
             claimed_at = NULL, deadline = NULL, incarnation = NULL, nonce = NULL, cancel_requested = 0
             WHERE id = ?1",
            params![record.id, self.now, self.now + if kept == 0 { 60_000 } else { kept }, kept == 0, error],
        )?;
        if let Some(key) = &record.idempotency_key {
            let state = if to == Status::Succeeded { "completed" } else { "failed" };
            self.run(
                "UPDATE idempotency SET state = ?4, leaves = ?5 WHERE queue = ?1 AND key = ?2 AND task_id = ?3",
                params![record.queue, key, record.id, state, self.now + self.settings.idempotency_ttl],
            )?;
        }
        let kind = match to {
            Status::Succeeded => "TASK_SUCCEEDED",
            Status::Failed => "TASK_FAILED",
            Status::DeadLettered => "TASK_DEAD_LETTERED",
            Status::Cancelled => "TASK_CANCELLED",
            _ => "TASK_EXPIRED",
        };
        let metadata = ending.error.map(|error| format!("{{\"error\":{}}}", error_json(error)));
        self.emit(kind, record, record.worker_id.as_deref(), metadata.as_deref())
    }

    /// The permanent path: dead_lettered with a dead letter, or failed while the DLQ is disabled.
    pub(super) fn die(&self, record: &mut Record, error: &ErrorInfo) -> StoreResult<()> {
        let ending = Ending { error: Some(error) };
        if !self.settings.dlq_enabled {
            return self.end(record, Status::Failed, &ending);
        }
        self.run(
            "INSERT INTO dead_letter (task_id, name, queue, payload, error, attempts, worker_id, at)
             SELECT id, name, queue, payload, ?2, attempt, worker_id, ?3 FROM task WHERE id = ?1",
            params![record.id, error_json(error), self.now],
        )?;
        let letter = self.tx.last_insert_rowid();
        self.run("UPDATE task SET dead_letter = ?2 WHERE id = ?1", params![record.id, letter])?;
        self.cut("dead_letter", letter, self.settings.dlq_maxlen)?;
        self.end(record, Status::DeadLettered, &ending)
    }

    /// Adds what the latest attempt came to; the last 20 are kept.
    pub(super) fn remember(
        &self,
        record: &mut Record,
        outcome: &str,
        error: Option<&ErrorInfo>,
    ) -> StoreResult<()> {
        let attempt = AttemptInfo {
            attempt: record.attempt,
            started_ms: record.started.unwrap_or(0),
            ended_ms: Some(self.now),
            worker_id: record.worker_id.clone().unwrap_or_default(),
            outcome: outcome.to_owned(),
            error: error.cloned(),
        };
        let line = serde_json::to_string(&attempt).unwrap_or_default();
        let mut lines: Vec<&str> = record.history.lines().collect();
        lines.push(&line);
        let kept = lines[lines.len().saturating_sub(20)..].join("\n");
        self.run("UPDATE task SET history = ?2 WHERE id = ?1", params![record.id, kept])?;
        record.history = kept;
        Ok(())
    }

    /// Publishes a lifecycle event if anybody listens.
    pub(super) fn emit(
        &self,
        kind: &str,
        record: &Record,
        worker: Option<&str>,
        metadata: Option<&str>,
    ) -> StoreResult<()> {
        self.emit_about(kind, Some(record), worker, metadata)
    }

    pub(super) fn emit_about(
        &self,
        kind: &str,
        record: Option<&Record>,
        worker: Option<&str>,
        metadata: Option<&str>,
    ) -> StoreResult<()> {
        if !self.settings.events || !self.listening()? {
            return Ok(());
        }
        let metadata =
            metadata.and_then(|json| serde_json::from_str::<serde_json::Value>(json).ok());
        let mut event = serde_json::json!({
            "event_id": uuid::Uuid::now_v7().simple().to_string(),
            "ts": self.now,
            "type": kind,
            "task_id": record.map_or("", |record| record.id.as_str()),
            "queue": record.map_or("", |record| record.queue.as_str()),
            "task_type": record.map_or("", |record| record.name.as_str()),
            "attempt": record.map_or(0, |record| record.attempt),
            "worker_id": worker,
        });
        if let (Some(metadata), Some(object)) = (metadata, event.as_object_mut()) {
            object.insert("metadata".to_owned(), metadata);
        }
        self.run(
            "INSERT INTO event (at, text) VALUES (?1, ?2)",
            params![self.now, event.to_string()],
        )?;
        // More than come in, so that they do not pile up.
        self.forget_events(2)
    }

    /// The oldest events have had their time. They are looked at in the order in which they came: a search by
    /// time would read all of them.
    fn forget_events(&self, limit: u32) -> StoreResult<()> {
        self.run(
            "DELETE FROM event WHERE at < ?1 AND seq IN (SELECT seq FROM event ORDER BY seq LIMIT ?2)",
            params![self.now.saturating_sub(EVENT_KEPT), limit],
        )
        .map(|_| ())
    }

    fn listening(&self) -> StoreResult<bool> {
        if let Some(listening) = self.listening.get() {
            return Ok(*listening);
        }
        let since = self.now.saturating_sub(LISTENER_LIVES);
        let any =
            self.one("SELECT 1 FROM listener WHERE seen >= ?1 LIMIT 1", [since], |_| Ok(()))?;
        Ok(*self.listening.get_or_init(|| any.is_some()))
    }

    pub(super) fn audit(
        &self,
        actor: &str,
        action: &str,
        target: &str,
        count: u64,
    ) -> StoreResult<()> {
        self.run(
            "INSERT INTO audit (at, actor, action, target, count) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![self.now, actor, action, target, count],
        )?;
        self.cut("audit", self.tx.last_insert_rowid(), 10_000)
    }

    /// Keeps the latest `most` rows of a table, and up to a hundredth more: to find the oldest that stays, as
    /// many are counted as stay.
    fn cut(&self, table: &str, latest: i64, most: u64) -> StoreResult<()> {
        if !latest.cast_unsigned().is_multiple_of((most / 100).max(1)) {
            return Ok(());
        }
        let sql = format!(
            "DELETE FROM {table} WHERE seq <= (SELECT seq FROM {table} ORDER BY seq DESC LIMIT 1 OFFSET ?1)"
        );
        self.tx
            .prepare_cached(&sql)
            .and_then(|mut cutting| cutting.execute([most]))
            .map(|_| ())
            .map_err(to_store_error)
    }

    /// Removes what is past its retention, a bounded number at a time.
    pub(super) fn prune(&self, limit: u32) -> StoreResult<()> {
        self.run(
            "DELETE FROM task WHERE id IN (SELECT id FROM task WHERE leaves <= ?1 LIMIT ?2)",
            params![self.now, limit],
        )?;
        self.run(
            "DELETE FROM idempotency WHERE (queue, key) IN
             (SELECT queue, key FROM idempotency WHERE leaves <= ?1 LIMIT ?2)",
            params![self.now, limit],
        )?;
        self.forget_events(limit)
    }

    /// The record for inspection; `None` if it has left.
    pub(super) fn info(&self, id: &str) -> StoreResult<Option<TaskInfo>> {
        let Some(record) = self.record(id)? else { return Ok(None) };
        let more = self.one(
            "SELECT payload, due, finished, error, error_delay, result_kind, result, result_bytes,
             result_leaves, discarded, leaves FROM task WHERE id = ?1",
            [id],
            |row| {
                Ok(More {
                    payload: row.get(0)?,
                    due: row.get(1)?,
                    finished: row.get(2)?,
                    error: row.get(3)?,
                    error_delay: row.get(4)?,
                    result_kind: row.get(5)?,
                    result: row.get(6)?,
                    result_bytes: row.get(7)?,
                    result_leaves: row.get(8)?,
                    discarded: row.get(9)?,
                    leaves: row.get(10)?,
                })
            },
        )?;
        let Some(more) = more else { return Ok(None) };
        if record.left_at_once || more.leaves.is_some_and(|leaves| leaves <= self.now) {
            return Ok(None);
        }
        let Ok(id) = record.id.parse::<TaskId>() else { return Ok(None) };
        Ok(Some(task_info(id, record, more, self.now)))
    }
}

/// What inspection shows besides a [`Record`].
struct More {
    payload: Vec<u8>,
    due: Option<Millis>,
    finished: Option<Millis>,
    error: Option<String>,
    error_delay: Option<Millis>,
    result_kind: Option<String>,
    result: Option<Vec<u8>>,
    result_bytes: Option<u64>,
    result_leaves: Option<Millis>,
    discarded: bool,
    leaves: Option<Millis>,
}

fn task_info(id: TaskId, record: Record, more: More, now: Millis) -> TaskInfo {
    let result = match more.result_kind.as_deref() {
        _ if record.status != Status::Succeeded => ResultInfo::None,
        None | Some("null") => ResultInfo::Json("null".to_owned()),
        Some("large") => ResultInfo::TooLarge { bytes: more.result_bytes.unwrap_or(0) },
        Some(_) if more.result_leaves.is_none_or(|leaves| leaves > now) => {
            let json = more.result.unwrap_or_default();
            ResultInfo::Json(String::from_utf8_lossy(&json).into_owned())
        }
        _ => ResultInfo::None,
    };
    let mut history: Vec<AttemptInfo> =
        record.history.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let outcome = match record.status {
        Status::Running => Some("running"),
        Status::Succeeded => Some("succeeded"),
        _ => None,
    };
    if let (Some(outcome), Some(started_ms)) = (outcome, record.started) {
        history.push(AttemptInfo {
            attempt: record.attempt,
            started_ms,
            ended_ms: more.finished,
            worker_id: record.worker_id.clone().unwrap_or_default(),
            outcome: outcome.to_owned(),
            error: None,
        });
        history.drain(..history.len().saturating_sub(20));
    }
    let error = more.error.and_then(|json| serde_json::from_str::<ErrorInfo>(&json).ok());
    TaskInfo {
        id,
        name: record.name,
        queue: record.queue,
        priority: record.priority,
        status: record.status,
        attempt: record.attempt,
        max_attempts: record.max_attempts,
        timeout_ms: record.timeout,
        payload: more.payload,
        created_ms: id.created_ms(),
        due_ms: more.due,
        expires_ms: record.expires,
        started_ms: record.started,
        finished_ms: more.finished,
        worker_id: record.worker_id,
        idempotency_key: record.idempotency_key,
        metadata: crate::store::with_admin_metadata(
            record.metadata,
            record.previous_attempts.as_deref(),
            more.discarded,
        ),
        last_error: error.map(|info| LastError { info, delay_ms: more.error_delay }),
        history,
        cancel_requested: record.cancel_requested,
        result,
    }
}

/// Strings and a boolean: it cannot fail.
pub(super) fn error_json(error: &ErrorInfo) -> String {
    serde_json::to_string(error).unwrap_or_else(|_| "null".to_owned())
}
