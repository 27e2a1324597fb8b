//! The transitions: what each operation of the store does to its rows, by the store's clock.

use std::collections::HashSet;

use bytes::Bytes;
use rusqlite::params;

use super::records::{Ending, Record, Tx, error_json};
use crate::id::TaskId;
use crate::status::{RESURRECTABLE, Status};
use crate::store::{
    Accepted, Cancelled, Claim, Due, ErrorInfo, FetchRequest, Fetched, Finish, Finished, Heartbeat,
    KeptResult, Lease, Leased, Millis, NewTask, Outcome, Reaped, Refusal, Registered, Renewed,
    Resurrection, Settings, StoreResult,
};

/// How long a full queue asks its producers to wait.
const RETRY_AFTER: Millis = 1000;

/// Bytes that a row keeps free, where its result will be, until it has a holder: a row that grows in a full
/// page splits it, and half-full pages make the file half as large again.
const ROOM: u32 = 51;

/// What is known of a key's record.
struct Key {
    task_id: TaskId,
    processing: bool,
    fingerprint: String,
}

impl Tx<'_> {
    /// Accepts a unit, or refuses it before anything of it is written.
    pub(super) fn enqueue_unit(
        &self,
        unit: &[NewTask],
        settings: &Settings,
    ) -> StoreResult<Result<Vec<Accepted>, Refusal>> {
        let mut answers: Vec<Option<Accepted>> = Vec::with_capacity(unit.len());
        let mut adds: Vec<(&str, u64)> = Vec::new();
        let (mut delayed, mut keys) = (0u64, std::collections::HashMap::new());
        for task in unit {
            if self.record(&task.id.to_string())?.is_some() {
                answers.push(Some(Accepted::New));
                continue;
            }
            if let Some(wanted) = &task.idempotency {
                let place = (task.queue.as_str(), wanted.key.as_str());
                let earlier = keys.get(&place).map(|(id, fingerprint): &(TaskId, &String)| Key {
                    task_id: *id,
                    processing: true,
                    fingerprint: (*fingerprint).clone(),
                });
                let found = match earlier {
                    Some(key) => Some(key),
                    None => self.key(&task.queue, &wanted.key)?,
                };
                if let Some(key) = found {
                    let task_id = key.task_id;
                    if key.fingerprint != wanted.fingerprint {
                        return Ok(Err(Refusal::IdempotencyMismatch { task_id }));
                    }
                    if key.processing {
                        return Ok(Err(Refusal::IdempotencyInProgress { task_id }));
                    }
                    answers.push(Some(Accepted::Duplicate(task_id)));
                    continue;
                }
                keys.insert(place, (task.id, &wanted.fingerprint));
            }
            answers.push(None);
            match self.due(task) {
                Some(_) => delayed += 1,
                None => match adds.iter_mut().find(|(queue, _)| *queue == task.queue) {
                    Some((_, n)) => *n += 1,
                    None => adds.push((&task.queue, 1)),
                },
            }
        }
        for (queue, n) in adds {
            let depth = self.counter("depth", queue)?;
            if depth + n > settings.max_queue_depth {
                let (queue, limit) = (queue.to_owned(), settings.max_queue_depth);
                return Ok(Err(Refusal::QueueFull {
                    queue,
                    depth,
                    limit,
                    retry_after: RETRY_AFTER,
                }));
            }
        }
        if delayed > 0 {
            let scheduled =
                self.one("SELECT COALESCE(SUM(scheduled), 0) FROM queue", [], |row| row.get(0))?;
            let (scheduled, limit): (u64, u64) = (scheduled.unwrap_or(0), settings.max_scheduled);
            if scheduled + delayed > limit {
                return Ok(Err(Refusal::ScheduleFull { scheduled, limit }));
            }
        }
        for (task, answer) in unit.iter().zip(&mut answers) {
            if answer.is_none() {
                self.accept(task)?;
            }
            answer.get_or_insert(Accepted::New);
        }
        Ok(Ok(answers.into_iter().flatten().collect()))
    }

    /// When a delayed task is due; `None`: now.
    fn due(&self, task: &NewTask) -> Option<Millis> {
        let due = match task.due {
            Due::Now => return None,
            Due::After(span) => self.now.saturating_add(span),
            Due::At(moment) => moment,
        };
        (due > self.now).then_some(due)
    }

    fn counter(&self, column: &str, queue: &str) -> StoreResult<u64> {
        let sql = format!("SELECT {column} FROM queue WHERE name = ?1");
        Ok(self
            .one(&sql, [queue], |row| row.get::<_, i64>(0))?
            .map_or(0, |n| n.max(0).unsigned_abs()))
    }

    /// The key's record, unless it has left or its live task is gone.
    fn key(&self, queue: &str, key: &str) -> StoreResult<Option<Key>> {
        let found = self.one(
            "SELECT task_id, state, fingerprint, leaves FROM idempotency WHERE queue = ?1 AND key = ?2",
            [queue, key],
            |row| {
                Ok((
                    row.get::<_, String>(0)?,
                    row.get::<_, String>(1)?,
                    row.get::<_, String>(2)?,
                    row.get::<_, Option<Millis>>(3)?,
                ))
            },
        )?;
        let Some((id, state, fingerprint, leaves)) = found else { return Ok(None) };
        let processing = state == "processing";
        if leaves.is_some_and(|leaves| leaves <= self.now)
            || (processing && self.record(&id)?.is_none())
        {
            return Ok(None);
        }
        let Ok(task_id) = id.parse() else { return Ok(None) };
        Ok(Some(Key { task_id, processing, fingerprint }))
    }

    fn accept(&self, task: &NewTask) -> StoreResult<()> {
        let (id, due) = (task.id.to_string(), self.due(task));
        let status = if due.is_some() { Status::Pending } else { Status::Queued };
        let entry = if due.is_some() { None } else { Some(self.next_entry()?) };
        let key = task.idempotency.as_ref();
        self.run(
            "INSERT INTO task (id, status, attempt, name, queue, priority, max_attempts, timeout, payload,
             entry, due, expires, ttl, idempotency_key, fingerprint, retention, result_retention,
             result_max_bytes, metadata, result)
             VALUES (?1, ?2, 1, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
             zeroblob(?19))",
            params![
                id,
                status.code(),
                task.name,
                task.queue,
                task.priority,
                task.max_attempts,
                task.timeout,
                &task.payload[..],
                entry,
                due,
                task.ttl.map(|ttl| self.now + ttl),
                task.ttl,
                key.map(|key| &key.key),
                key.map(|key| &key.fingerprint),
                task.retention,
                task.result_retention,
                task.result_max_bytes,
                task.metadata,
                ROOM,
            ],
        )?;
        if let Some(key) = key {
            self.run(
                "INSERT OR REPLACE INTO idempotency (queue, key, task_id, state, fingerprint)
                 VALUES (?1, ?2, ?3, 'processing', ?4)",
                params![task.queue, key.key, id, key.fingerprint],
            )?;
        }
        let waits = i64::from(due.is_some());
        self.run(
            "INSERT INTO queue (name, depth, scheduled) VALUES (?1, ?2, ?3) ON CONFLICT (name)
             DO UPDATE SET depth = depth + excluded.depth, scheduled = scheduled + excluded.scheduled",
            params![task.queue, 1 - waits, waits],
        )?;
        if let Some(record) = self.record(&id)? {
            match due {
                Some(due) => {
                    let metadata = format!("{{\"due_ms\":{due}}}");
                    self.emit("TASK_SCHEDULED", &record, None, Some(&metadata))?;
                }
                None => self.emit("TASK_QUEUED", &record, None, None)?,
            }
        }
        Ok(())
    }

    /// Whether a fetch from these queues would find something.
    pub(super) fn has_ready(&self, queues: &[String]) -> StoreResult<bool> {
        for queue in self.in_question(queues)? {
            let ready = self.one(
                "SELECT 1 FROM task WHERE queue = ?1 AND status = 1
                 AND NOT EXISTS (SELECT 1 FROM queue WHERE name = ?1 AND paused) LIMIT 1",
                [queue],
                |_| Ok(()),
            )?;
            if ready.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether this very fetch has been answered before.
    pub(super) fn has_receipt(&self, request: &FetchRequest) -> StoreResult<bool> {
        let found = self.one(
            "SELECT 1 FROM receipt WHERE incarnation = ?1 AND nonce = ?2",
            params![request.holder.incarnation, request.nonce.cast_signed()],
            |_| Ok(()),
        )?;
        Ok(found.is_some())
    }

    pub(super) fn fetch(&self, request: &FetchRequest) -> StoreResult<Fetched> {
        let (holder, nonce) = (&request.holder, request.nonce.cast_signed());
        let mut fetched = Fetched::default();
        let deadline = self.now + request.visibility;
        let before: Option<String> = self.one(
            "SELECT ids FROM receipt WHERE incarnation = ?1 AND nonce = ?2",
            params![holder.incarnation, nonce],
            |row| row.get(0),
        )?;
        if let Some(before) = before {
            for id in before.split(' ') {
                // Some may have been lost or finished meanwhile.
                let held = self.run(
                    "UPDATE task SET deadline = ?4
                     WHERE id = ?1 AND status = 2 AND incarnation = ?2 AND nonce = ?3",
                    params![id, holder.incarnation, nonce, deadline],
                )?;
                if held == 1
                    && let Some(record) = self.record(id)?
                {
                    fetched.leased.extend(self.leased(&record)?);
                }
            }
            return Ok(fetched);
        }
        for queue in self.in_question(&request.queues)? {
            let paused =
                self.one("SELECT 1 FROM queue WHERE name = ?1 AND paused", [queue], |_| Ok(()))?;
            while paused.is_none() && fetched.leased.len() < request.max {
                let want = request.max - fetched.leased.len();
                let ids: Vec<String> = self.all(
                    "SELECT id FROM task WHERE queue = ?1 AND status = 1 ORDER BY priority DESC, entry LIMIT ?2",
                    params![queue, want as u64],
                    |row| row.get(0),
                )?;
                if ids.is_empty() {
                    break;
                }
                for id in ids {
                    let Some(mut record) = self.record(&id)? else { continue };
                    if record.expires.is_some_and(|expires| expires <= self.now) {
                        self.end(&mut record, Status::Expired, &Ending::default())?;
                        continue;
                    }
                    self.set_status(&mut record, Status::Running)?;
                    record.lease += 1;
                    self.run(
                        "UPDATE task SET lease = ?2, deadline = ?3, worker_id = ?4, incarnation = ?5,
                         nonce = ?6, started = ?7, result = NULL WHERE id = ?1",
                        params![id, record.lease, deadline, holder.worker_id, holder.incarnation, nonce, self.now],
                    )?;
                    self.emit("TASK_STARTED", &record, Some(&holder.worker_id), None)?;
                    fetched.leased.extend(self.leased(&record)?);
                }
            }
        }
        if !fetched.leased.is_empty() {
            let ids: Vec<_> = fetched.leased.iter().map(|l| l.lease.id.to_string()).collect();
            self.run(
                "INSERT OR REPLACE INTO receipt (incarnation, nonce, deadline, ids) VALUES (?1, ?2, ?3, ?4)",
                params![holder.incarnation, nonce, deadline, ids.join(" ")],
            )?;
        }
        Ok(fetched)
    }

    /// The queues that may hold ready tasks, in the order of preference. Of many queues most are empty: then
    /// it is asked which ones are not, a jump through the index for each.
    fn in_question<'a>(&self, queues: &'a [String]) -> StoreResult<Vec<&'a String>> {
        let limit = 2 * queues.len() as u64;
        if queues.len() <= 16 {
            return Ok(queues.iter().collect());
        }
        let filled: HashSet<String> = self
            .all(
                "WITH RECURSIVE filled (of) AS (
                     SELECT min(queue) FROM task WHERE status = 1
                     UNION ALL
                     SELECT (SELECT min(queue) FROM task WHERE status = 1 AND queue > of) FROM filled
                     WHERE of IS NOT NULL
                 ) SELECT of FROM filled WHERE of IS NOT NULL LIMIT ?1",
                [limit],
                |row| row.get(0),
            )?
            .into_iter()
            .collect();
        // Others hold more than is wanted here.
        let all = filled.len() as u64 == limit;
        Ok(queues.iter().filter(|queue| all || filled.contains(*queue)).collect())
    }

    fn leased(&self, record: &Record) -> StoreResult<Option<Leased>> {
        let Ok(id) = record.id.parse() else { return Ok(None) };
        Ok(Some(Leased {
            lease: Lease {
                id,
                queue: record.queue.clone(),
                priority: record.priority,
                attempt: record.attempt,
                number: record.lease,
                entry: String::new(),
            },
            name: record.name.clone(),
            payload: Bytes::from(self.payload(&record.id)?),
            max_attempts: record.max_attempts,
            timeout: record.timeout,
            idempotency_key: record.idempotency_key.clone(),
            metadata: record.metadata.clone(),
            result_max_bytes: record.result_max_bytes,
            unknown_since: record.unknown_since,
            now: self.now,
        }))
    }

    pub(super) fn renew(&self, lease: &Lease, visibility: Millis) -> StoreResult<Renewed> {
        let found = self.one(
            "UPDATE task SET deadline = ?3 WHERE id = ?1 AND lease = ?2 AND status = 2 RETURNING cancel_requested",
            params![lease.id.to_string(), lease.number, self.now + visibility],
            |row| row.get::<_, bool>(0),
        )?;
        Ok(match found {
            None => Renewed::Lost,
            Some(false) => Renewed::Held,
            Some(true) => Renewed::CancelRequested,
        })
    }

    pub(super) fn finish(&self, item: &Finish, settings: &Settings) -> StoreResult<Finished> {
        let Some(mut record) = self.record(&item.lease.id.to_string())? else {
            return Ok(Finished::Lost);
        };
        if record.lease != item.lease.number {
            return Ok(Finished::Lost);
        }
        if record.status != Status::Running {
            return Ok(Finished::Already);
        }
        let succeeded = matches!(item.outcome, Outcome::Succeeded { .. });
        let cancelled = Outcome::Cancelled;
        let outcome =
            if record.cancel_requested && !succeeded { &cancelled } else { &item.outcome };
        self.apply(&mut record, outcome, settings)?;
        Ok(Finished::Applied(record.status))
    }

    fn apply(
        &self,
        record: &mut Record,
        outcome: &Outcome,
        settings: &Settings,
    ) -> StoreResult<()> {
        let worker = record.worker_id.clone();
        match outcome {
            Outcome::Succeeded { result } => {
                let (kind, json, bytes) = match result {
                    // What is not told is `null`.
                    KeptResult::Json(json) if json[..] == b"null"[..] => {
                        return self.end(record, Status::Succeeded, &Ending::default());
                    }
                    KeptResult::Json(json) => ("json", Some(&json[..]), None),
                    KeptResult::TooLarge { bytes } => ("large", None, Some(*bytes)),
                };
                let keep = record
                    .result_retention
                    .or(record.retention)
                    .unwrap_or(settings.result_retention);
                self.run(
                    "UPDATE task SET result_kind = ?2, result = ?3, result_bytes = ?4, result_leaves = ?5 WHERE id = ?1",
                    params![record.id, kind, json, bytes, self.now + keep],
                )?;
                self.end(record, Status::Succeeded, &Ending::default())
            }
            Outcome::Retry { delay, error } => {
                self.remember(record, "retrying", Some(error))?;
                self.wait(record, Status::Retrying, *delay)?;
                self.run(
                    "UPDATE task SET error = ?2, error_delay = ?3 WHERE id = ?1",
                    params![record.id, error_json(error), delay],
                )?;
                let metadata = format!("{{\"delay_ms\":{delay},\"error\":{}}}", error_json(error));
                self.emit("TASK_RETRY_SCHEDULED", record, worker.as_deref(), Some(&metadata))
            }
            Outcome::Dead { error } => {
                let ends = if settings.dlq_enabled { "dead_lettered" } else { "failed" };
                self.remember(record, ends, Some(error))?;
                self.die(record, error)
            }
            Outcome::Cancelled => {
                self.remember(record, "cancelled", None)?;
                self.end(record, Status::Cancelled, &Ending::default())
            }
            Outcome::Released => {
                self.remember(record, "released", None)?;
                self.enter(record)?;
                self.emit("TASK_RELEASED", record, worker.as_deref(), None)
            }
            Outcome::Snoozed { delay, unknown_type } => {
                self.remember(record, "snoozed", None)?;
                self.wait(record, Status::Pending, *delay)?;
                if *unknown_type {
                    self.run(
                        "UPDATE task SET unknown_since = COALESCE(unknown_since, ?2) WHERE id = ?1",
                        params![record.id, self.now],
                    )?;
                }
                let metadata = format!("{{\"delay_ms\":{delay}}}");
                self.emit("TASK_SNOOZED", record, worker.as_deref(), Some(&metadata))
            }
        }
    }

    /// Out of its queue and into the schedule.
    fn wait(&self, record: &mut Record, to: Status, delay: Millis) -> StoreResult<()> {
        self.set_status(record, to)?;
        self.run(
            "UPDATE task SET due = ?2, claimed_at = NULL, entry = NULL, deadline = NULL,
             cancel_requested = 0 WHERE id = ?1",
            params![record.id, self.now.saturating_add(delay)],
        )
        .map(|_| ())
    }

    pub(super) fn claim_due(
        &self,
        worker_id: &str,
        limit: usize,
        lock: Millis,
    ) -> StoreResult<Claim> {
        let leader = self.one("SELECT worker_id, until FROM leader", [], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, Millis>(1)?))
        })?;
        if let Some((other, until)) = leader
            && other != worker_id
            && until > self.now
        {
            return Ok(Claim::Follower { retry_after: until - self.now });
        }
        self.run(
            "INSERT OR REPLACE INTO leader (one, worker_id, until) VALUES (1, ?1, ?2)",
            params![worker_id, self.now + lock],
        )?;
        let ids: Vec<String> = self.all(
            "SELECT id FROM task WHERE status IN (0, 3) AND claimed_at IS NULL AND due <= ?1 ORDER BY due LIMIT ?2",
            params![self.now, limit as u64],
            |row| row.get(0),
        )?;
        for id in &ids {
            self.run("UPDATE task SET claimed_at = ?2 WHERE id = ?1", params![id, self.now])?;
        }
        let next: Option<Millis> = self
            .one(
                "SELECT MIN(due) FROM task WHERE status IN (0, 3) AND claimed_at IS NULL",
                [],
                |row| row.get::<_, Option<Millis>>(0),
            )?
            .flatten();
        let next_due = next.map(|due| due.saturating_sub(self.now));
        let claimed = ids.iter().filter_map(|id| id.parse().ok()).collect();
        Ok(Claim::Leader { claimed, full: next_due == Some(0), next_due })
    }

    /// A claimed task into its queue, or to its end; whether it was queued.
    pub(super) fn requeue(&self, id: &str) -> StoreResult<bool> {
        let claimed =
            self.one("SELECT 1 FROM task WHERE id = ?1 AND claimed_at IS NOT NULL", [id], |_| {
                Ok(())
            })?;
        let (Some(()), Some(mut record)) = (claimed, self.record(id)?) else { return Ok(false) };
        let retrying = record.status == Status::Retrying;
        if !retrying && record.status != Status::Pending {
            self.run("UPDATE task SET claimed_at = NULL WHERE id = ?1", [id])?;
            return Ok(false);
        }
        if record.cancel_requested {
            self.end(&mut record, Status::Cancelled, &Ending::default())?;
            return Ok(false);
        }
        if record.expires.is_some_and(|expires| expires <= self.now) {
            self.end(&mut record, Status::Expired, &Ending::default())?;
            return Ok(false);
        }
        if retrying {
            record.attempt += 1;
        }
        self.enter(&mut record)?;
        self.emit(if retrying { "TASK_RETRIED" } else { "TASK_QUEUED" }, &record, None, None)?;
        Ok(true)
    }

    /// How long until the next lease lapses.
    pub(super) fn next_deadline(&self) -> StoreResult<Option<Millis>> {
        let next: Option<Millis> = self
            .one("SELECT MIN(deadline) FROM task WHERE status = 2", [], |row| {
                row.get::<_, Option<Millis>>(0)
            })?
            .flatten();
        Ok(next.map(|deadline| deadline.saturating_sub(self.now)))
    }

    pub(super) fn reap(&self, limit: usize) -> StoreResult<Reaped> {
        let lost = ErrorInfo {
            class: "worker_lost".to_owned(),
            message: "the lease lapsed: its worker stopped, stalled or was cut off".to_owned(),
            retryable: true,
        };
        let ids: Vec<String> = self.all(
            "SELECT id FROM task WHERE status = 2 AND deadline <= ?1 ORDER BY deadline LIMIT ?2",
            params![self.now, limit as u64],
            |row| row.get(0),
        )?;
        let mut reaped = Reaped::default();
        for id in ids {
            let Some(mut record) = self.record(&id)? else { continue };
            self.remember(&mut record, "lost", Some(&lost))?;
            // The number grows, so that the lost holder's writes can never match again.
            record.lease += 1;
            self.run("UPDATE task SET lease = ?2 WHERE id = ?1", params![id, record.lease])?;
            let parsed: Option<TaskId> = id.parse().ok();
            if record.cancel_requested {
                self.end(&mut record, Status::Cancelled, &Ending::default())?;
            } else if record.attempt >= record.max_attempts {
                self.die(&mut record, &lost)?;
                reaped.dead.extend(parsed);
            } else {
                record.attempt += 1;
                self.enter(&mut record)?;
                self.run(
                    "UPDATE task SET error = ?2, error_delay = NULL WHERE id = ?1",
                    params![id, error_json(&lost)],
                )?;
                self.emit("TASK_REDELIVERED", &record, record.worker_id.as_deref(), None)?;
                reaped.redelivered.extend(parsed);
            }
        }
        reaped.next_deadline = self.next_deadline()?;
        reaped.full = reaped.next_deadline == Some(0);
        Ok(reaped)
    }

    pub(super) fn cancel(&self, id: &str) -> StoreResult<Cancelled> {
        let Some(mut record) = self.record(id)? else { return Ok(Cancelled::NotFound) };
        if record.left_at_once {
            return Ok(Cancelled::NotFound);
        }
        if record.status.is_terminal() {
            return Ok(Cancelled::Ended(record.status));
        }
        if record.status == Status::Running {
            self.run("UPDATE task SET cancel_requested = 1 WHERE id = ?1", [id])?;
            return Ok(Cancelled::Requested);
        }
        self.end(&mut record, Status::Cancelled, &Ending::default())?;
        Ok(Cancelled::Done)
    }

    pub(super) fn register(
        &self,
        beat: &Heartbeat,
        take_over: bool,
        start: bool,
    ) -> StoreResult<Registered> {
        let other = self.one(
            "SELECT incarnation, beat, interval FROM worker WHERE id = ?1",
            [&beat.holder.worker_id],
            |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, Millis>(1)?, row.get::<_, Millis>(2)?))
            },
        )?;
        if let Some((incarnation, seen, interval)) = other {
            let lives = self.now.saturating_sub(seen) <= 3 * interval;
            if incarnation != beat.holder.incarnation && lives && !take_over {
                let last_seen_ago = self.now.saturating_sub(seen);
                return Ok(Registered::Taken { incarnation, last_seen_ago });
            }
        }
        self.run(
            "INSERT OR REPLACE INTO worker (id, incarnation, queues, concurrency, in_flight, interval, pid, host, beat)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                beat.holder.worker_id,
                beat.holder.incarnation,
                beat.queues.join(","),
                beat.concurrency as u64,
                beat.in_flight as u64,
                beat.interval,
                beat.pid,
                beat.host,
                self.now,
            ],
        )?;
        if start {
            self.emit_about("WORKER_STARTED", None, Some(&beat.holder.worker_id), None)?;
        }
        Ok(Registered::Done)
    }

    pub(super) fn purge_chunk(
        &self,
        queue: &str,
        actor: &str,
        limit: u64,
    ) -> StoreResult<(u64, bool)> {
        let ids: Vec<String> = self.all(
            "SELECT id FROM task WHERE queue = ?1 AND status = 1 ORDER BY priority DESC, entry LIMIT ?2",
            params![queue, limit],
            |row| row.get(0),
        )?;
        for id in &ids {
            if let Some(mut record) = self.record(id)? {
                self.end(&mut record, Status::Cancelled, &Ending::default())?;
            }
        }
        let count = ids.len() as u64;
        if count > 0 {
            self.audit(actor, "purge", queue, count)?;
        }
        Ok((count, count >= limit))
    }

    pub(super) fn resurrect(&self, id: &str, actor: &str) -> StoreResult<Result<(), Resurrection>> {
        let found = self.record(id)?.filter(|record| !record.left_at_once);
        let Some(mut record) = found else { return Ok(Err(Resurrection::NotFound)) };
        if !RESURRECTABLE.contains(&record.status) {
            return Ok(Err(Resurrection::Not(record.status)));
        }
        if let Some(key) = &record.idempotency_key {
            let held = self.key(&record.queue, key)?;
            let other =
                held.as_ref().map(|held| held.task_id.to_string()).filter(|other| other != id);
            match held {
                Some(held) if held.processing && other.is_some() => {
                    return Ok(Err(Resurrection::KeyTaken(held.task_id)));
                }
                _ if other.is_none() => {
                    self.run(
                        "INSERT OR REPLACE INTO idempotency (queue, key, task_id, state, fingerprint)
                         VALUES (?1, ?2, ?3, 'processing', ?4)",
                        params![record.queue, key, id, record.fingerprint],
                    )?;
                }
                _ => {}
            }
        }
        if let Some(letter) = record.dead_letter {
            self.run("DELETE FROM dead_letter WHERE seq = ?1", [letter])?;
        }
        let earlier = record.previous_attempts.take().map(|list| list + ",").unwrap_or_default();
        self.run(
            "UPDATE task SET status = 1, attempt = 1, entry = ?2, expires = ?3, previous_attempts = ?4,
             finished = NULL, leaves = NULL, result_kind = NULL, result = NULL, dead_letter = NULL,
             discarded = 0, cancel_requested = 0, unknown_since = NULL, error_delay = NULL WHERE id = ?1",
            params![
                id,
                self.next_entry()?,
                record.ttl.map(|ttl| self.now + ttl),
                format!("{earlier}{}", record.attempt),
            ],
        )?;
        self.count_resurrection(&record)?;
        record.attempt = 1;
        self.emit("TASK_QUEUED", &record, None, Some("{\"requeued\":true}"))?;
        self.audit(actor, "requeue", id, 1)?;
        Ok(Ok(()))
    }

    pub(super) fn discard(&self, id: &str, keep_record: bool, actor: &str) -> StoreResult<bool> {
        let Some(record) = self.record(id)? else { return Ok(false) };
        let Some(letter) = record.dead_letter else { return Ok(false) };
        if self.run("DELETE FROM dead_letter WHERE seq = ?1", [letter])? == 0 {
            return Ok(false);
        }
        if keep_record {
            self.run("UPDATE task SET dead_letter = NULL, discarded = 1 WHERE id = ?1", [id])?;
        } else {
            self.run(
                "DELETE FROM idempotency WHERE task_id = ?1 AND queue = ?2 AND key = ?3",
                params![id, record.queue, record.idempotency_key],
            )?;
            self.run("DELETE FROM task WHERE id = ?1", [id])?;
        }
        self.audit(actor, if keep_record { "discard" } else { "purge" }, id, 1)?;
        Ok(true)
    }
}
