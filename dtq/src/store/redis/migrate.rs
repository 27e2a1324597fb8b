//! Moving to another store and back: what `lua/migrate.lua` packs becomes [`Moved`]s, and these its
//! arguments.

use std::collections::BTreeMap;

use redis::Value;

use super::RedisStore;
use super::records::{self, Fields};
use super::reply::{Reply, malformed};
use super::scripts::Args;
use crate::status::Status;
use crate::store::moved::{self, Key, Letter, Moved, TakenOut, What};
use crate::store::{Store as _, StoreError, StoreResult};

/// Records or keys looked at in one round trip.
const CHUNK: usize = 200;

impl RedisStore {
    pub(super) async fn taken_out(&self, limit: usize) -> StoreResult<TakenOut> {
        let mut running = self.aside(limit).await?;
        if running.moved.is_empty() {
            self.take(limit).await?;
            running = self.aside(limit).await?;
        }
        Ok(running)
    }

    /// What stands aside.
    async fn aside(&self, limit: usize) -> StoreResult<TakenOut> {
        let mut ask = redis::pipe();
        ask.cmd("HRANDFIELD").arg(self.keys.of("moving")).arg(limit).arg("WITHVALUES");
        ask.cmd("ZCARD").arg(self.keys.of("leases"));
        let [found, running] =
            Reply(Value::Array(self.link.pipeline(&ask).await?)).tuple("moving")?;
        // By pairs, or flat, as the protocol has it.
        let mut parts = Vec::new();
        for part in found.list()? {
            if part.is_list() { parts.extend(part.list()?) } else { parts.push(part) }
        }
        let mut moved = Vec::new();
        let mut parts = parts.into_iter();
        while let (Some(mark), Some(packed)) = (parts.next(), parts.next()) {
            moved.push(unpacked(mark.text()?, &packed.bytes()?)?);
        }
        // Ids sort by the time of their creation.
        moved.sort_by(|a: &Moved, b| a.mark.cmp(&b.mark));
        Ok(TakenOut { moved, running: running.number()? })
    }

    /// Takes what is found first: tasks and their dead letters, then letters alone, then keys.
    async fn take(&self, limit: usize) -> StoreResult<()> {
        let mut cursor = None;
        loop {
            let page = self.list_tasks(&Default::default(), cursor.as_deref(), limit).await?;
            let wanted = page.items.iter().filter(|task| {
                matches!(
                    task.status,
                    Status::Queued | Status::Pending | Status::Retrying | Status::DeadLettered
                )
            });
            let items = wanted.map(|task| ["task".to_owned(), task.id.to_string()]).collect();
            if self.take_these(items).await? > 0 {
                return Ok(());
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        let mut ask = redis::cmd("XRANGE");
        ask.arg(self.keys.of("dead_letters")).arg("-").arg("+").arg("COUNT").arg(limit);
        let letters = Reply(self.link.command(&ask).await?).list()?;
        let mut items = Vec::new();
        for letter in letters {
            let [entry, fields] = letter.tuple("a stream")?;
            let fields = records::fields(fields.0)?;
            let id = fields.get("i").map(|id| String::from_utf8_lossy(id).into_owned());
            // With its record, which the listing of recent ends may not know any more.
            let record = match id.as_deref().map(str::parse) {
                Some(Ok(id)) => self.task(id).await?,
                _ => None,
            };
            match (record, id) {
                (Some(record), Some(id)) if record.status == Status::DeadLettered => {
                    items.push(["task".to_owned(), id]);
                }
                _ => items.push(["letter".to_owned(), entry.text()?]),
            }
        }
        if self.take_these(items).await? > 0 {
            return Ok(());
        }
        let prefix = self.keys.of("idempotency");
        let mut cursor = "0".to_owned();
        loop {
            let mut ask = redis::cmd("SCAN");
            ask.arg(&cursor)
                .arg("MATCH")
                .arg(format!("{}*", escaped(&prefix)))
                .arg("COUNT")
                .arg(CHUNK);
            let [next, names] = Reply(self.link.command(&ask).await?).tuple("SCAN")?;
            let names =
                names.list()?.into_iter().map(Reply::text).collect::<StoreResult<Vec<_>>>()?;
            let items = names
                .iter()
                .filter_map(|name| name.strip_prefix(&prefix))
                .map(|name| ["key".to_owned(), name.to_owned()]);
            if self.take_these(items.collect()).await? > 0 {
                return Ok(());
            }
            cursor = next.text()?;
            if cursor == "0" {
                return Ok(());
            }
        }
    }

    async fn take_these(&self, items: Vec<[String; 2]>) -> StoreResult<u64> {
        if items.is_empty() {
            return Ok(0);
        }
        let args =
            ["take".to_owned(), moved::nonce()].into_iter().chain(items.into_iter().flatten());
        Reply(self.run(&self.scripts.migrate, Args::of(args)).await?).number()
    }

    pub(super) async fn marks(&self, action: &str, marks: &[String]) -> StoreResult<()> {
        let args = std::iter::once(action.to_owned()).chain(marks.iter().cloned());
        self.run(&self.scripts.migrate, Args::of(args)).await.map(|_| ())
    }
}

/// A text that a pattern matches as it is.
fn escaped(text: &str) -> String {
    text.chars()
        .flat_map(|c| if "*?[]\\^-".contains(c) { vec!['\\', c] } else { vec![c] })
        .collect()
}

fn damaged() -> StoreError {
    malformed("migrate", "what it has packed")
}

/// `len:bytes`, again and again.
fn parts(mut packed: &[u8]) -> StoreResult<Vec<&[u8]>> {
    let mut parts = Vec::new();
    while !packed.is_empty() {
        let colon = packed.iter().position(|b| *b == b':').ok_or_else(damaged)?;
        let len =
            std::str::from_utf8(&packed[..colon]).ok().and_then(|len| len.parse::<usize>().ok());
        let end = len.and_then(|len| (colon + 1).checked_add(len)).ok_or_else(damaged)?;
        parts.push(packed.get(colon + 1..end).ok_or_else(damaged)?);
        packed = &packed[end..];
    }
    Ok(parts)
}

fn pairs(parts: &[&[u8]]) -> Fields {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    parts.chunks_exact(2).map(|pair| (text(pair[0]), pair[1].to_vec())).collect()
}

fn unpacked(mark: String, packed: &[u8]) -> StoreResult<Moved> {
    let parts = parts(packed)?;
    let text = |at: usize| -> StoreResult<String> {
        parts.get(at).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).ok_or_else(damaged)
    };
    match text(0)?.as_str() {
        "task" => {
            let fields_len: usize = text(5)?.parse().map_err(|_| damaged())?;
            let end = 6 + fields_len;
            let mut fields = pairs(parts.get(6..end).ok_or_else(damaged)?);
            let letter_fields = pairs(parts.get(end..).ok_or_else(damaged)?);
            let payload = fields.remove("p").unwrap_or_default();
            let mut fields: BTreeMap<String, String> = fields
                .into_iter()
                .map(|(name, value)| (name, String::from_utf8_lossy(&value).into_owned()))
                .collect();
            let state = fields.remove("s").unwrap_or_default();
            let mut state = state.trim_end_matches('+').split(':');
            let mut number =
                || state.next().and_then(|text| text.parse::<u64>().ok()).ok_or_else(damaged);
            let (status, attempt, lease) = (number()?, number()?, number()?);
            let packed_name = fields.remove("n").unwrap_or_default();
            let (queue, name) = packed_name.split_once('/').unwrap_or(("default", &packed_name));
            // What belongs to this deployment alone: entry, waiters, the dead letter's id, a claim.
            for own in ["e", "W", "k", "v", "z"] {
                fields.remove(own);
            }
            // The holder's incarnation is nobody's any more.
            if let Some(worker) = fields.get_mut("w") {
                worker.truncate(worker.find('/').unwrap_or(worker.len()));
            }
            let key = match fields.get("i") {
                Some(own) => key(queue, own, &text(3)?, &text(4)?),
                None => None,
            };
            let letter = (!letter_fields.is_empty()).then(|| letter(&letter_fields, 0));
            Ok(Moved {
                mark,
                leaves: text(2)?.parse().ok(),
                key,
                letter,
                payload,
                what: What::Task {
                    id: text(1)?,
                    name: name.to_owned(),
                    queue: queue.to_owned(),
                    status: u8::try_from(status).map_err(|_| damaged())?,
                    attempt: u32::try_from(attempt).map_err(|_| damaged())?,
                    lease,
                    fields,
                },
            })
        }
        "letter" => {
            let mut fields = pairs(&parts[1..]);
            let payload = fields.remove("p").unwrap_or_default();
            let at = mark.trim_start_matches("l:").split('-').next().and_then(|ms| ms.parse().ok());
            let letter = Some(letter(&fields, at.unwrap_or(0)));
            Ok(Moved { mark, what: What::Letter, leaves: None, key: None, letter, payload })
        }
        "key" => {
            let name = text(1)?;
            let (queue, own) = name.split_once(':').ok_or_else(damaged)?;
            let key = key(queue, own, &text(2)?, &text(3)?);
            Ok(Moved {
                mark,
                what: What::Key,
                leaves: None,
                key,
                letter: None,
                payload: Vec::new(),
            })
        }
        _ => Err(damaged()),
    }
}

/// The value of an idempotency key, as `record.lua` writes it.
#[derive(serde::Serialize, serde::Deserialize)]
struct KeyText {
    task_id: String,
    state: String,
    updated_at: u64,
    fingerprint: String,
}

fn key(queue: &str, key: &str, text: &str, leaves: &str) -> Option<Key> {
    let value: KeyText = serde_json::from_str(text).ok()?;
    Some(Key {
        queue: queue.to_owned(),
        key: key.to_owned(),
        task_id: value.task_id,
        state: value.state,
        fingerprint: value.fingerprint,
        leaves: leaves.parse().ok(),
    })
}

fn letter(fields: &Fields, at: u64) -> Letter {
    let text = |name: &str| {
        fields
            .get(name)
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .unwrap_or_default()
    };
    Letter {
        task_id: text("i"),
        name: text("n"),
        queue: text("q"),
        error: text("E"),
        attempts: text("a").parse().unwrap_or(0),
        worker_id: Some(text("w")).filter(|worker| !worker.is_empty()),
        at,
    }
}

pub(super) fn put_args(moved: &[Moved]) -> StoreResult<Args> {
    let mut args = Args::default();
    args.text("put").show(moved.len());
    for item in moved {
        args.text(&item.mark);
        match &item.what {
            What::Task { .. } => put_task(&mut args, item)?,
            What::Letter => {
                args.text("letter");
                put_letter(&mut args, item);
            }
            What::Key => {
                args.text("key");
                put_key(&mut args, item.key.as_ref());
            }
        }
    }
    Ok(args)
}

fn put_task(args: &mut Args, item: &Moved) -> StoreResult<()> {
    let What::Task { id, name, queue, status, attempt, lease, fields } = &item.what else {
        return Ok(());
    };
    let priority = fields.get("y").map_or("5", String::as_str);
    let stands = match item.status() {
        Some(Status::Queued) => "queued",
        Some(Status::Pending | Status::Retrying) => fields.get("d").map_or("0", String::as_str),
        _ => "",
    };
    args.text("task").text(id).text(name).text(queue).text(priority).show(attempt).text(stands);
    optional(args, item.leaves);
    put_key(args, item.key.as_ref());
    let more = ["i", "r", "R"].iter().any(|name| fields.contains_key(*name));
    let defaults = [("y", "5"), ("m", "5"), ("t", "30000")];
    let kept: Vec<_> = fields
        .iter()
        .filter(|(name, value)| {
            *name != "d" && !defaults.contains(&(name.as_str(), value.as_str()))
        })
        .collect();
    args.show(kept.len() + 3);
    args.text("s").text(format!("{status}:{attempt}:{lease}{}", if more { "+" } else { "" }));
    args.text("n");
    if queue == "default" {
        args.text(name)
    } else {
        args.text(format!("{queue}/{name}"))
    };
    args.text("p").text(&item.payload);
    for (name, value) in kept {
        args.text(name).text(value);
    }
    put_letter(args, item);
    Ok(())
}

fn put_letter(args: &mut Args, item: &Moved) {
    let Some(letter) = &item.letter else {
        args.show(0);
        return;
    };
    args.show(8).text("v").show(1).text("i").text(&letter.task_id).text("q").text(&letter.queue);
    args.text("n").text(&letter.name).text("a").show(letter.attempts);
    args.text("w").text(letter.worker_id.as_deref().unwrap_or_default());
    args.text("E").text(&letter.error).text("p").text(&item.payload);
}

fn put_key(args: &mut Args, key: Option<&Key>) {
    let Some(key) = key else {
        args.text("").text("").text("");
        return;
    };
    let value = KeyText {
        task_id: key.task_id.clone(),
        state: key.state.clone(),
        updated_at: key.leaves.unwrap_or(0),
        fingerprint: key.fingerprint.clone(),
    };
    args.text(format!("{}:{}", key.queue, key.key));
    args.text(serde_json::to_string(&value).unwrap_or_default());
    optional(args, key.leaves);
}

fn optional(args: &mut Args, moment: Option<u64>) {
    match moment {
        Some(moment) => args.show(moment),
        None => args.text(""),
    };
}
