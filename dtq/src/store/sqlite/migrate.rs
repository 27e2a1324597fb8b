//! Moving to another store and back: rows become [`Moved`]s, and these rows.

use std::collections::BTreeMap;

use rusqlite::types::Value;
use rusqlite::{Row, params, params_from_iter};

use super::records::Tx;
use crate::status::Status;
use crate::store::moved::{self, Key, Letter, Moved, TakenOut, What};
use crate::store::{Millis, StoreError, StoreResult};

/// Letters of a record's fields (the table in `redis/records.rs`) and the columns of the same meaning.
const COLUMNS: [(&str, &str); 19] = [
    ("y", "priority"),
    ("m", "max_attempts"),
    ("t", "timeout"),
    ("x", "expires"),
    ("X", "ttl"),
    ("d", "due"),
    ("i", "idempotency_key"),
    ("g", "fingerprint"),
    ("r", "retention"),
    ("R", "result_retention"),
    ("b", "result_max_bytes"),
    ("M", "metadata"),
    ("w", "worker_id"),
    ("o", "started"),
    ("f", "finished"),
    ("E", "error"),
    ("D", "error_delay"),
    ("u", "unknown_since"),
    ("A", "previous_attempts"),
];

/// A value of any column as text; `None` for NULL.
fn text(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<String>> {
    Ok(match row.get::<_, Value>(at)? {
        Value::Null => None,
        Value::Integer(n) => Some(n.to_string()),
        Value::Real(n) => Some(n.to_string()),
        Value::Text(text) => Some(text),
        Value::Blob(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
    })
}

fn letter(row: &Row<'_>, at: usize) -> rusqlite::Result<Letter> {
    Ok(Letter {
        task_id: row.get(at)?,
        name: row.get(at + 1)?,
        queue: row.get(at + 2)?,
        error: row.get(at + 3)?,
        attempts: row.get(at + 4)?,
        worker_id: row.get(at + 5)?,
        at: row.get(at + 6)?,
    })
}

fn unreadable(error: serde_json::Error) -> StoreError {
    StoreError::Failed(format!("what stands aside to be moved cannot be read or written: {error}"))
}

impl Tx<'_> {
    pub(super) fn take_out(&self, limit: usize) -> StoreResult<TakenOut> {
        let running =
            self.one("SELECT COUNT(*) FROM task WHERE status = 2", [], |row| row.get(0))?;
        let running: u64 = running.unwrap_or(0);
        let before: Vec<(String, Vec<u8>)> = self.all(
            "SELECT item, payload FROM moving ORDER BY mark LIMIT ?1",
            [limit as u64],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        if !before.is_empty() {
            let read = |(item, payload): (String, Vec<u8>)| {
                let item: Moved = serde_json::from_str(&item).map_err(unreadable)?;
                Ok(Moved { payload, ..item })
            };
            let moved = before.into_iter().map(read).collect::<StoreResult<_>>()?;
            return Ok(TakenOut { moved, running });
        }
        let mut moved = Vec::new();
        // Each by an index of its own, so that a batch costs the same however many wait.
        for (which, order) in [
            ("status = 1", "queue, priority DESC, entry"),
            ("status IN (0, 3) AND claimed_at IS NULL", "due"),
            ("claimed_at IS NOT NULL AND status IN (0, 3)", "claimed_at"),
        ] {
            if moved.is_empty() {
                moved = self.take_tasks(&format!("{which} ORDER BY {order} LIMIT {limit}"))?;
            }
        }
        if moved.is_empty() {
            moved = self.take_letters(limit)?;
        }
        if moved.is_empty() {
            moved = self.take_keys(limit)?;
        }
        let nonce = moved::nonce();
        for item in &mut moved {
            item.mark = format!("{}:{nonce}", item.mark);
        }
        for item in &moved {
            let json = serde_json::to_string(item).map_err(unreadable)?;
            self.run(
                "INSERT INTO moving (mark, item, payload) VALUES (?1, ?2, ?3)",
                params![item.mark, json, item.payload],
            )?;
        }
        Ok(TakenOut { moved, running })
    }

    /// The tasks of which `which` is true, with their keys and dead letters.
    fn take_tasks(&self, which: &str) -> StoreResult<Vec<Moved>> {
        let columns = COLUMNS.map(|(_, column)| column).join(", ");
        let sql = format!(
            "SELECT id, name, queue, status, attempt, lease, payload, leaves, history, discarded, dead_letter, {columns}
             FROM task WHERE {which}"
        );
        type Found = (Moved, Option<i64>);
        let found: Vec<Found> = self.all(&sql, [], |row| {
            let mut fields = BTreeMap::new();
            for (at, (name, _)) in COLUMNS.iter().enumerate() {
                if let Some(value) = text(row, 11 + at)? {
                    fields.insert((*name).to_owned(), value);
                }
            }
            let history: String = row.get(8)?;
            if !history.is_empty() {
                fields.insert("h".to_owned(), history + "\n");
            }
            let id: String = row.get(0)?;
            let moved = Moved {
                mark: format!("t:{id}"),
                what: What::Task {
                    id,
                    name: row.get(1)?,
                    queue: row.get(2)?,
                    status: row.get(3)?,
                    attempt: row.get(4)?,
                    lease: row.get(5)?,
                    fields,
                },
                leaves: row.get(7)?,
                key: None,
                letter: None,
                payload: row.get(6)?,
            };
            Ok((moved, row.get(10)?))
        })?;
        let mut all = Vec::with_capacity(found.len());
        for (mut item, dead) in found {
            let What::Task { id, queue, status, fields, .. } = &item.what else { continue };
            if let Some(key) = fields.get("i") {
                item.key = self.take_key(queue, key, Some(id))?;
            }
            if let Some(seq) = dead {
                item.letter = self.take_letter(seq)?.map(|(letter, _)| letter);
            }
            self.run("DELETE FROM task WHERE id = ?1", [id])?;
            let column = match Status::from_code(*status) {
                Some(Status::Queued) => "depth",
                Some(Status::Pending | Status::Retrying) => "scheduled",
                _ => {
                    all.push(item);
                    continue;
                }
            };
            self.run(
                &format!("UPDATE queue SET {column} = {column} - 1 WHERE name = ?1"),
                [queue],
            )?;
            all.push(item);
        }
        Ok(all)
    }

    fn take_letters(&self, limit: usize) -> StoreResult<Vec<Moved>> {
        let found: Vec<(i64, bool)> = self.all(
            "SELECT seq, EXISTS (SELECT 1 FROM task WHERE id = task_id AND dead_letter = seq AND NOT left_at_once)
             FROM dead_letter ORDER BY seq LIMIT ?1",
            [limit as u64],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let mut all = Vec::new();
        for (seq, has_record) in found {
            if has_record {
                let which = format!("id = (SELECT task_id FROM dead_letter WHERE seq = {seq})");
                all.extend(self.take_tasks(&which)?);
            } else if let Some((letter, payload)) = self.take_letter(seq)? {
                let mark = format!("l:{seq}");
                let what = What::Letter;
                all.push(Moved {
                    mark,
                    what,
                    leaves: None,
                    key: None,
                    letter: Some(letter),
                    payload,
                });
            }
        }
        Ok(all)
    }

    fn take_letter(&self, seq: i64) -> StoreResult<Option<(Letter, Vec<u8>)>> {
        self.one(
            "DELETE FROM dead_letter WHERE seq = ?1
             RETURNING task_id, name, queue, error, attempts, worker_id, at, payload",
            [seq],
            |row| Ok((letter(row, 0)?, row.get(7)?)),
        )
    }

    fn take_keys(&self, limit: usize) -> StoreResult<Vec<Moved>> {
        let names: Vec<(String, String)> = self.all(
            "SELECT queue, key FROM idempotency WHERE state <> 'processing' LIMIT ?1",
            [limit as u64],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let mut all = Vec::new();
        for (queue, name) in names {
            let key = self.take_key(&queue, &name, None)?;
            let mark = format!("k:{queue}:{name}");
            let what = What::Key;
            all.push(Moved { mark, what, leaves: None, key, letter: None, payload: Vec::new() });
        }
        Ok(all)
    }

    /// The key, if it belongs to the task (`None`: to anybody).
    fn take_key(&self, queue: &str, key: &str, id: Option<&str>) -> StoreResult<Option<Key>> {
        self.one(
            "DELETE FROM idempotency WHERE queue = ?1 AND key = ?2 AND (?3 IS NULL OR task_id = ?3)
             RETURNING queue, key, task_id, state, fingerprint, leaves",
            params![queue, key, id],
            |row| {
                Ok(Key {
                    queue: row.get(0)?,
                    key: row.get(1)?,
                    task_id: row.get(2)?,
                    state: row.get(3)?,
                    fingerprint: row.get(4)?,
                    leaves: row.get(5)?,
                })
            },
        )
    }

    pub(super) fn put_in(&self, item: &Moved) -> StoreResult<()> {
        if self.run("INSERT OR IGNORE INTO moved (mark) VALUES (?1)", [&item.mark])? == 0 {
            return Ok(());
        }
        if let What::Task { id, .. } = &item.what
            && self.record(id)?.is_some()
        {
            return Ok(());
        }
        if let Some(key) = &item.key {
            // One that a task of this store holds stays that task's.
            self.run(
                "INSERT INTO idempotency (queue, key, task_id, state, fingerprint, leaves)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT (queue, key) DO UPDATE SET task_id = excluded.task_id, state = excluded.state,
                 fingerprint = excluded.fingerprint, leaves = excluded.leaves WHERE leaves <= ?7",
                params![key.queue, key.key, key.task_id, key.state, key.fingerprint, key.leaves, self.now],
            )?;
        }
        let mut seq = None;
        if let Some(letter) = &item.letter {
            seq = self.one(
                "INSERT INTO dead_letter (task_id, name, queue, payload, error, attempts, worker_id, at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) RETURNING seq",
                params![
                    letter.task_id,
                    letter.name,
                    letter.queue,
                    item.payload,
                    letter.error,
                    letter.attempts,
                    letter.worker_id,
                    letter.at
                ],
                |row| row.get::<_, i64>(0),
            )?;
        }
        if let What::Task { .. } = &item.what {
            self.put_task(item, seq)?;
        }
        Ok(())
    }

    fn put_task(&self, item: &Moved, letter: Option<i64>) -> StoreResult<()> {
        let What::Task { id, name, queue, status, attempt, lease, fields } = &item.what else {
            return Ok(());
        };
        let queued = *status == Status::Queued.code();
        let entry = if queued { Some(self.next_entry()?) } else { None };
        let history = fields.get("h").map_or("", |lines| lines.trim_end_matches('\n'));
        let mut values: Vec<Value> = vec![
            id.clone().into(),
            name.clone().into(),
            queue.clone().into(),
            i64::from(*status).into(),
            i64::from(*attempt).into(),
            lease.cast_signed().into(),
            item.payload.clone().into(),
            item.leaves.map(Millis::cast_signed).into(),
            history.to_owned().into(),
            i64::from(fields.contains_key("K")).into(),
            letter.into(),
            entry.into(),
        ];
        let defaults = [("y", "5"), ("m", "5"), ("t", "30000")];
        for (name, _) in COLUMNS {
            let default =
                || defaults.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            // Columns of whole numbers turn such a text into one.
            let value = fields.get(name).cloned().or_else(default);
            values.push(value.map_or(Value::Null, Value::Text));
        }
        let columns = COLUMNS.map(|(_, column)| column).join(", ");
        let places = (1..=values.len()).map(|n| format!("?{n}")).collect::<Vec<_>>().join(", ");
        self.run(
            &format!(
                "INSERT INTO task (id, name, queue, status, attempt, lease, payload, leaves, history, discarded,
                 dead_letter, entry, {columns}) VALUES ({places})"
            ),
            params_from_iter(values),
        )?;
        let waits = matches!(item.status(), Some(Status::Pending | Status::Retrying));
        self.run(
            "INSERT INTO queue (name, depth, scheduled) VALUES (?1, ?2, ?3) ON CONFLICT (name)
             DO UPDATE SET depth = depth + excluded.depth, scheduled = scheduled + excluded.scheduled",
            params![queue, i64::from(queued), i64::from(waits)],
        )
        .map(|_| ())
    }
}
