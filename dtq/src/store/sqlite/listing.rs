//! Reading for inspection (SPEC 9.5): a bounded number of records a page.

use rusqlite::{Row, params};

use super::bad_cursor;
use super::records::Tx;
use crate::inspect::{AuditEntry, DeadLetter, QueueInfo, TaskFilter, TaskInfo, WorkerInfo};
use crate::store::{DeadLetterFilter, ErrorInfo, Millis, Page, StoreResult};

/// Records that one page examines at most.
const EXAMINED: u64 = 1000;

impl Tx<'_> {
    pub(super) fn list_tasks(
        &self,
        filter: &TaskFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> StoreResult<Page<TaskInfo>> {
        let after = match cursor {
            None => String::new(),
            Some(cursor) if cursor.len() == 22 => cursor.to_owned(),
            Some(_) => return Err(bad_cursor()),
        };
        let rows: Vec<String> = self.all(
            "SELECT id FROM task WHERE id > ?1 ORDER BY id LIMIT ?2",
            params![after, EXAMINED],
            |row| row.get(0),
        )?;
        let all_read = (rows.len() as u64) < EXAMINED;
        let mut items = Vec::new();
        for (i, id) in rows.iter().enumerate() {
            if let Some(task) = self.info(id)?
                && filter.status.is_none_or(|status| status == task.status)
                && filter.queue.as_ref().is_none_or(|queue| *queue == task.queue)
                && filter.name.as_ref().is_none_or(|name| *name == task.name)
            {
                items.push(task);
            }
            if items.len() >= limit && !(all_read && i + 1 == rows.len()) {
                return Ok(Page { items, next: Some(id.clone()) });
            }
        }
        let next = if all_read { None } else { rows.last().cloned() };
        Ok(Page { items, next })
    }

    pub(super) fn list_queues(&self) -> StoreResult<Vec<QueueInfo>> {
        let count = |row: &Row<'_>, at: usize| -> rusqlite::Result<u64> {
            Ok(row.get::<_, i64>(at)?.max(0).unsigned_abs())
        };
        let mut queues = self.all(
            "SELECT name, paused, depth, scheduled, succeeded, failed,
             (SELECT COUNT(*) FROM task WHERE status = 2 AND task.queue = queue.name) FROM queue ORDER BY name",
            [],
            |row| {
                Ok(QueueInfo {
                    name: row.get(0)?,
                    paused: row.get(1)?,
                    depth: count(row, 2)?,
                    scheduled: count(row, 3)?,
                    succeeded: count(row, 4)?,
                    failed: count(row, 5)?,
                    running: count(row, 6)?,
                    oldest_age_ms: None,
                })
            },
        )?;
        for queue in &mut queues {
            // Ids tell when their tasks were made; the first of the ready ones is the oldest.
            let oldest: Option<String> = self
                .one(
                    "SELECT MIN(id) FROM task WHERE queue = ?1 AND status IN (1, 2)",
                    [&queue.name],
                    |row| row.get(0),
                )?
                .flatten();
            let made = oldest.and_then(|id| id.parse::<crate::TaskId>().ok());
            queue.oldest_age_ms = made.map(|id| self.now.saturating_sub(id.created_ms()));
        }
        Ok(queues)
    }

    pub(super) fn list_workers(&self) -> StoreResult<Vec<WorkerInfo>> {
        self.all(
            "SELECT id, incarnation, queues, concurrency, in_flight, interval, pid, host, beat FROM worker ORDER BY id",
            [],
            |row| {
                let (interval, beat): (Millis, Millis) = (row.get(5)?, row.get(8)?);
                let queues: String = row.get(2)?;
                let last_seen_ago_ms = self.now.saturating_sub(beat);
                Ok(WorkerInfo {
                    id: row.get(0)?,
                    incarnation: row.get(1)?,
                    queues: queues.split(',').filter(|q| !q.is_empty()).map(str::to_owned).collect(),
                    concurrency: row.get(3)?,
                    in_flight: row.get(4)?,
                    interval_ms: interval,
                    last_seen_ago_ms,
                    stale: last_seen_ago_ms > 3 * interval,
                    pid: row.get(6)?,
                    host: row.get(7)?,
                })
            },
        )
    }

    pub(super) fn list_dead_letters(
        &self,
        filter: &DeadLetterFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> StoreResult<Page<DeadLetter>> {
        let before = match cursor {
            None => i64::MAX,
            Some(cursor) => cursor.parse().map_err(|_| bad_cursor())?,
        };
        let rows = self.all(
            "SELECT seq, task_id, name, queue, payload, error, attempts, worker_id, at FROM dead_letter
             WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2",
            params![before, EXAMINED],
            |row| {
                let error: String = row.get(5)?;
                let letter = DeadLetter {
                    task_id: row.get(1)?,
                    name: row.get(2)?,
                    queue: row.get(3)?,
                    payload: row.get(4)?,
                    error: serde_json::from_str(&error).unwrap_or_else(|_| ErrorInfo {
                        class: "Unknown".to_owned(),
                        message: "the dead letter does not tell".to_owned(),
                        retryable: false,
                    }),
                    attempts: row.get(6)?,
                    worker_id: row.get(7)?,
                    dead_ms: row.get(8)?,
                };
                Ok((row.get::<_, i64>(0)?, letter))
            },
        )?;
        let full = rows.len() as u64 >= EXAMINED;
        let (mut items, mut last) = (Vec::new(), None);
        for (seq, letter) in rows {
            last = Some(seq.to_string());
            if filter.matches(&letter) {
                items.push(letter);
            }
            if items.len() >= limit {
                return Ok(Page { items, next: last });
            }
        }
        Ok(Page { items, next: last.filter(|_| full) })
    }

    pub(super) fn list_audit(&self, limit: usize) -> StoreResult<Vec<AuditEntry>> {
        self.all(
            "SELECT at, actor, action, target, count FROM audit ORDER BY seq DESC LIMIT ?1",
            [limit as u64],
            |row| {
                Ok(AuditEntry {
                    at_ms: row.get(0)?,
                    actor: row.get(1)?,
                    action: row.get(2)?,
                    target: row.get(3)?,
                    count: row.get(4)?,
                })
            },
        )
    }
}
