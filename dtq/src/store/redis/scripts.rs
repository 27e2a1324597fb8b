//! The scripts: their texts with what is generated above them, and typed calls with typed replies.

use std::fmt::Write as _;

use redis::Value;

use super::keys::Keys;
use super::reply::{Reply, malformed};
use crate::id::TaskId;
use crate::status::{MOVES, RESURRECTABLE, Status};
use crate::store::{
    Accepted, Cancelled, Claim, Due, FetchRequest, Fetched, Finish, Finished, Holder, KeptResult,
    Lease, Leased, Millis, NewTask, Note, Outcome, Reaped, Refusal, Renewed, Requeued,
    Resurrection, Settings, StoreResult,
};

/// The version that this code writes into records and entries (SPEC 5.8).
pub(crate) const RECORD_VERSION: u32 = 1;

/// How long a full queue asks its producers to wait: a second is what a worker needs to make room.
const RETRY_AFTER: Millis = 1000;

/// A script, ready to be called by its digest.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) text: String,
    pub(crate) sha: String,
}

/// Every script of a deployment; keys and settings are written into their texts.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) enqueue: Script,
    pub(crate) fetch: Script,
    pub(crate) renew: Script,
    pub(crate) finish: Script,
    pub(crate) claim: Script,
    pub(crate) requeue: Script,
    pub(crate) stale: Script,
    pub(crate) reap: Script,
    pub(crate) cancel: Script,
    pub(crate) register: Script,
    pub(crate) step_down: Script,
    pub(crate) watch: Script,
    pub(crate) admin: Script,
    pub(crate) maintain: Script,
    pub(crate) migrate: Script,
}

const BASE: &str = include_str!("lua/base.lua");
const EVENTS: &str = include_str!("lua/events.lua");
const RECORD: &str = include_str!("lua/record.lua");

/// Whether a script may write while the server is over its memory limit.
#[derive(Clone, Copy, PartialEq)]
enum UnderPressure {
    /// It takes memory: refused with OOM.
    Refused,
    /// It frees memory or finishes work.
    Allowed,
}

impl Scripts {
    pub(crate) fn new(keys: &Keys, settings: &Settings) -> Self {
        use UnderPressure::{Allowed, Refused};
        let generated = format!("{}{}{}", keys.to_lua(), settings_lua(settings), statuses_lua());
        let script = |name: &'static str, pressure, parts: &[&str]| {
            // The scripts are read one by one by the server: a shebang chooses the rules of Redis 7.
            let mut text = "#!lua".to_owned();
            if pressure == Allowed {
                text.push_str(" flags=allow-oom");
            }
            text.push('\n');
            text.push_str(&generated);
            for part in parts {
                text.push_str(part);
            }
            #[cfg(feature = "__planted_bugs")]
            let text = crate::planted::plant(name, text);
            let sha = sha1_smol::Sha1::from(&text).digest().to_string();
            Script { name, text, sha }
        };
        let full = |name, pressure, body| script(name, pressure, &[BASE, EVENTS, RECORD, body]);
        Self {
            enqueue: full("enqueue", Refused, include_str!("lua/enqueue.lua")),
            fetch: full("fetch", Allowed, include_str!("lua/fetch.lua")),
            renew: script("renew", Allowed, &[BASE, include_str!("lua/renew.lua")]),
            finish: full("finish", Allowed, include_str!("lua/finish.lua")),
            claim: script("claim", Allowed, &[BASE, include_str!("lua/claim.lua")]),
            requeue: full("requeue", Allowed, include_str!("lua/requeue.lua")),
            stale: script("stale", Allowed, &[BASE, include_str!("lua/stale.lua")]),
            reap: full("reap", Allowed, include_str!("lua/reap.lua")),
            cancel: full("cancel", Allowed, include_str!("lua/cancel.lua")),
            register: script(
                "register",
                Allowed,
                &[BASE, EVENTS, include_str!("lua/register.lua")],
            ),
            step_down: script("step_down", Allowed, &[BASE, include_str!("lua/step_down.lua")]),
            watch: full("watch", Allowed, include_str!("lua/watch.lua")),
            admin: full("admin", Allowed, include_str!("lua/admin.lua")),
            maintain: full("maintain", Allowed, include_str!("lua/maintain.lua")),
            migrate: full("migrate", Refused, include_str!("lua/migrate.lua")),
        }
    }
}

#[cfg(all(test, feature = "__planted_bugs"))]
impl Scripts {
    pub(crate) fn into_all(self) -> [Script; 15] {
        let Self { enqueue, fetch, renew, finish, claim, requeue, stale, reap, .. } = self;
        let Self { cancel, register, step_down, watch, admin, maintain, migrate, .. } = self;
        [
            enqueue, fetch, renew, finish, claim, requeue, stale, reap, cancel, register,
            step_down, watch, admin, maintain, migrate,
        ]
    }
}

/// `text` as a Lua string literal.
pub(super) fn lua_string(text: &str) -> String {
    let mut lua = "'".to_owned();
    for c in text.chars() {
        match c {
            '\'' | '\\' => lua.extend(['\\', c]),
            '\n' => lua.push_str("\\n"),
            '\r' => lua.push_str("\\r"),
            '\0' => lua.push_str("\\000"),
            c => lua.push(c),
        }
    }
    lua.push('\'');
    lua
}

fn settings_lua(settings: &Settings) -> String {
    format!(
        "local S = {{version={RECORD_VERSION},max_queue_depth={},max_scheduled={},idempotency_ttl={},\
         dlq_enabled={},dlq_maxlen={},result_retention={},task_retention={},events={}}}\n",
        settings.max_queue_depth,
        settings.max_scheduled,
        settings.idempotency_ttl.max(1),
        settings.dlq_enabled,
        settings.dlq_maxlen,
        settings.result_retention,
        settings.task_retention,
        settings.events,
    )
}

/// The codes, the names and the one table of moves, printed from `status.rs`.
fn statuses_lua() -> String {
    let mut lua = String::new();
    for status in Status::ALL {
        let _ = writeln!(lua, "local {} = {}", status.as_str().to_uppercase(), status.code());
    }
    let table = |statuses: &[Status], value: &dyn Fn(Status) -> String| {
        let cells: Vec<_> = statuses
            .iter()
            .map(|status| format!("[{}]={}", status.code(), value(*status)))
            .collect();
        format!("{{{}}}", cells.join(","))
    };
    let names = table(&Status::ALL, &|status| lua_string(status.as_str()));
    let moves: Vec<_> = MOVES
        .iter()
        .map(|(from, tos)| format!("[{}]={}", from.code(), table(tos, &|_| "true".to_owned())))
        .collect();
    let resurrectable = table(RESURRECTABLE, &|_| "true".to_owned());
    let codes = table(&Status::ALL, &|status| format!("'{}'", status.code()));
    let moves = moves.join(",");
    let _ = writeln!(
        lua,
        "local STATUS, CODES, MOVES, RESURRECTABLE\nlocal function tables()\nSTATUS = {names}\n\
         CODES = {codes}\nMOVES = {{{moves}}}\nRESURRECTABLE = {resurrectable}\nend"
    );
    lua
}

/// Arguments of a script, in the order in which its header lists them: one text after another, and where
/// each ends.
#[derive(Debug, Default)]
pub(crate) struct Args {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Args {
    pub(super) fn text(&mut self, value: impl AsRef<[u8]>) -> &mut Self {
        self.bytes.extend_from_slice(value.as_ref());
        self.ends.push(self.bytes.len());
        self
    }

    pub(super) fn show(&mut self, value: impl std::fmt::Display) -> &mut Self {
        // Writing to a vector cannot fail.
        let _ = std::io::Write::write_fmt(&mut self.bytes, format_args!("{value}"));
        self.ends.push(self.bytes.len());
        self
    }

    /// Any list of texts.
    pub(crate) fn of(values: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let mut args = Self::default();
        for value in values {
            args.text(value);
        }
        args
    }

    /// The call of a script by `name`, which is `EVALSHA` with a digest or `EVAL` with a text.
    pub(super) fn call(&self, name: &str, script: &str, anchor: &str) -> redis::Cmd {
        let mut command = redis::Cmd::with_capacity(self.ends.len() + 4, self.bytes.len() + 128);
        command.arg(name).arg(script).arg(1).arg(anchor);
        let mut from = 0;
        for &end in &self.ends {
            command.arg(&self.bytes[from..end]);
            from = end;
        }
        command
    }
}

pub(crate) fn enqueue_args(units: &[Vec<NewTask>]) -> Args {
    let mut args = Args::default();
    args.show(units.len());
    for unit in units {
        args.show(unit.len());
        for task in unit {
            args.show(task.id).text(&task.name).text(&task.queue).text(&task.payload);
            let differs = |value: u64, default: u64| (value != default).then(|| value.to_string());
            let span = |value: Option<Millis>| value.map(|value| value.to_string());
            let key = task.idempotency.as_ref();
            let (after, at) = match task.due {
                Due::Now | Due::After(0) => (None, None),
                Due::After(span) => (Some(span.to_string()), None),
                Due::At(moment) => (None, Some(moment.to_string())),
            };
            let pairs = [
                ("y", differs(task.priority.into(), 5)),
                ("m", differs(task.max_attempts.into(), 5)),
                ("t", differs(task.timeout, 30_000)),
                ("X", span(task.ttl)),
                ("i", key.map(|key| key.key.clone())),
                ("g", key.map(|key| key.fingerprint.clone())),
                ("r", span(task.retention)),
                ("R", span(task.result_retention)),
                ("b", span(task.result_max_bytes)),
                ("M", task.metadata.clone()),
                ("after", after),
                ("at", at),
            ];
            args.show(pairs.iter().filter(|(_, value)| value.is_some()).count());
            for (name, value) in pairs {
                if let Some(value) = value {
                    args.text(name).text(value);
                }
            }
        }
    }
    args
}

pub(crate) fn enqueue_reply(
    value: Value,
    units: &[Vec<NewTask>],
    settings: &Settings,
) -> StoreResult<Vec<Result<Vec<Accepted>, Refusal>>> {
    let answers = Reply(value).list()?;
    if answers.len() != units.len() {
        return Err(malformed("enqueue", "as many answers as units"));
    }
    answers.into_iter().map(|answer| unit_reply(answer.list()?, settings)).collect()
}

fn unit_reply(
    answer: Vec<Reply>,
    settings: &Settings,
) -> StoreResult<Result<Vec<Accepted>, Refusal>> {
    let texts: Vec<String> =
        answer.into_iter().map(Reply::text).collect::<StoreResult<Vec<String>>>()?;
    let id = |text: &str| text.parse::<TaskId>().map_err(|_| malformed("enqueue", "a task id"));
    let number = |text: Option<&String>| text.and_then(|t| t.parse().ok()).unwrap_or(0);
    let refusal = match texts.first().map(String::as_str) {
        Some("!queue_full") => Refusal::QueueFull {
            queue: texts.get(1).cloned().unwrap_or_default(),
            depth: number(texts.get(2)),
            limit: settings.max_queue_depth,
            retry_after: RETRY_AFTER,
        },
        Some("!schedule_full") => {
            Refusal::ScheduleFull { scheduled: number(texts.get(1)), limit: settings.max_scheduled }
        }
        Some("!in_progress") => {
            Refusal::IdempotencyInProgress { task_id: id(texts.get(1).map_or("", |t| t))? }
        }
        Some("!mismatch") => {
            Refusal::IdempotencyMismatch { task_id: id(texts.get(1).map_or("", |t| t))? }
        }
        Some("!damaged") => {
            let text = texts.get(1).cloned().unwrap_or_default();
            Refusal::Damaged(text)
        }
        _ => {
            return texts
                .iter()
                .map(|text| match text.strip_prefix("duplicate:") {
                    Some(other) => Ok(Accepted::Duplicate(id(other)?)),
                    None => Ok(Accepted::New),
                })
                .collect::<StoreResult<Vec<_>>>()
                .map(Ok);
        }
    };
    Ok(Err(refusal))
}

pub(crate) fn fetch_args(request: &FetchRequest) -> Args {
    let mut args = Args::default();
    args.text(&request.holder.worker_id).text(&request.holder.incarnation).show(request.nonce);
    args.show(request.visibility).show(request.max);
    // No name of a queue holds a line feed.
    args.show(request.queues.len()).text(format!("\n{}\n", request.queues.join("\n")));
    args
}

pub(crate) fn fetch_reply(value: Value) -> StoreResult<Fetched> {
    let [now, groups, notes] = Reply(value).tuple("fetch")?;
    let now = now.number()?;
    let mut leased = Vec::new();
    for group in groups.list()? {
        let mut parts = group.list()?.into_iter();
        let (Some(queue), Some(priority)) = (parts.next(), parts.next()) else {
            return Err(malformed("fetch", "a queue and a priority"));
        };
        let (queue, priority) = (queue.text()?, priority.number()? as u8);
        while let Some(id) = parts.next() {
            let mut next = || parts.next().ok_or_else(|| malformed("fetch", "seven parts a task"));
            let entry = next()?.text()?;
            let lease = Lease {
                id: id.id()?,
                queue: queue.clone(),
                priority,
                attempt: next()?.number()? as u32,
                number: next()?.number()?,
                entry,
            };
            let (name, payload) = (next()?.text()?, next()?.bytes()?);
            let mut task = Leased {
                lease,
                name,
                payload: payload.into(),
                max_attempts: 5,
                timeout: 30_000,
                idempotency_key: None,
                metadata: None,
                result_max_bytes: None,
                unknown_since: None,
                now,
            };
            options(next()?, &mut task)?;
            leased.push(task);
        }
    }
    Ok(Fetched { leased, notes: self::notes(notes)? })
}

/// What differs from the defaults: nothing, or fields of the record and their values.
fn options(reply: Reply, task: &mut Leased) -> StoreResult<()> {
    if !reply.is_list() {
        return Ok(());
    }
    let mut parts = reply.list()?.into_iter();
    while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
        match name.text()?.as_str() {
            "m" => task.max_attempts = value.number()? as u32,
            "t" => task.timeout = value.number()?,
            "i" => task.idempotency_key = value.some_text()?,
            "M" => task.metadata = value.some_text()?,
            "b" => task.result_max_bytes = value.some_text()?.and_then(|text| text.parse().ok()),
            "u" => task.unknown_since = value.some_text()?.and_then(|text| text.parse().ok()),
            _ => {}
        }
    }
    Ok(())
}

fn notes(reply: Reply) -> StoreResult<Vec<Note>> {
    let texts = reply.list()?.into_iter().map(Reply::text).collect::<StoreResult<Vec<_>>>()?;
    Ok(texts
        .chunks_exact(2)
        .map(|pair| Note {
            task_id: (!pair[0].is_empty()).then(|| pair[0].clone()),
            text: pair[1].clone(),
        })
        .collect())
}

pub(crate) fn notes_reply(value: Value) -> StoreResult<Vec<Note>> {
    notes(Reply(value))
}

pub(crate) fn scan_reply(value: Value) -> StoreResult<(String, Vec<Note>)> {
    let [cursor, notes] = Reply(value).tuple("maintain")?;
    Ok((cursor.text()?, self::notes(notes)?))
}

pub(crate) fn renew_args(visibility: Millis, leases: &[Lease]) -> Args {
    let mut args = Args::default();
    args.show(visibility);
    for lease in leases {
        args.show(lease.id).show(fence(lease));
    }
    args
}

/// What the record's field `s` says of the lease behind its status.
fn fence(lease: &Lease) -> impl std::fmt::Display {
    std::fmt::from_fn(|f| write!(f, "{}:{}", lease.attempt, lease.number))
}

pub(crate) fn renew_reply(value: Value) -> StoreResult<Vec<Renewed>> {
    let answers = Reply(value).list()?;
    answers
        .into_iter()
        .map(|answer| match answer.number()? {
            0 => Ok(Renewed::Lost),
            1 => Ok(Renewed::Held),
            2 => Ok(Renewed::CancelRequested),
            _ => Err(malformed("renew", "0, 1 or 2")),
        })
        .collect()
}

/// Of one holder, and grouped by queue and priority as far as they stand together.
pub(crate) fn finish_args(holder: &Holder, batch: &[Finish]) -> Args {
    let mut args = Args::default();
    args.text(&holder.worker_id).text(&holder.incarnation);
    let same = |a: &Finish, b: &Finish| {
        (&a.lease.queue, a.lease.priority) == (&b.lease.queue, b.lease.priority)
    };
    for group in batch.chunk_by(same) {
        args.text(&group[0].lease.queue).show(group[0].lease.priority).show(group.len());
        for Finish { lease, outcome } in group {
            args.show(lease.id).text(&lease.entry).show(fence(lease));
            match outcome {
                Outcome::Succeeded { result: KeptResult::Json(json) }
                    if json[..] == b"null"[..] =>
                {
                    args.text("null")
                }
                Outcome::Succeeded { result: KeptResult::Json(json) } => {
                    args.text("json").text(json)
                }
                Outcome::Succeeded { result: KeptResult::TooLarge { bytes } } => {
                    args.text("large").show(bytes)
                }
                Outcome::Retry { delay, error } => args.text("retry").show(delay).text(json(error)),
                Outcome::Dead { error } => args.text("dead").text(json(error)),
                Outcome::Cancelled => args.text("cancelled"),
                Outcome::Released => args.text("released"),
                Outcome::Snoozed { delay, unknown_type } => {
                    args.text("snoozed").show(delay).text(if *unknown_type { "1" } else { "" })
                }
            };
        }
    }
    args
}

/// Strings and a boolean: it cannot fail.
fn json(error: &crate::store::ErrorInfo) -> String {
    serde_json::to_string(error).unwrap_or_else(|_| "null".to_owned())
}

pub(crate) fn finish_reply(value: Value) -> StoreResult<(Vec<Finished>, Vec<Note>)> {
    let [answers, notes] = Reply(value).tuple("finish")?;
    let answers = answers
        .list()?
        .into_iter()
        .map(|answer| match answer.signed()? {
            -2 => Ok(Finished::Lost),
            -1 => Ok(Finished::Already),
            code => status(code).map(Finished::Applied),
        })
        .collect::<StoreResult<_>>()?;
    Ok((answers, self::notes(notes)?))
}

pub(super) fn status(code: i64) -> StoreResult<Status> {
    let status = u8::try_from(code).ok().and_then(Status::from_code);
    status.ok_or_else(|| malformed("a script", "a status code"))
}

pub(crate) fn claim_reply(value: Value) -> StoreResult<Claim> {
    let mut parts = Reply(value).list()?.into_iter();
    let mut next = || parts.next().ok_or_else(|| malformed("claim", "four parts"));
    if next()?.number()? == 0 {
        return Ok(Claim::Follower { retry_after: next()?.number()? });
    }
    let claimed = next()?.ids()?;
    let full = next()?.number()? == 1;
    let next_due = u64::try_from(next()?.signed()?).ok();
    Ok(Claim::Leader { claimed, full, next_due })
}

pub(crate) fn requeue_reply(value: Value) -> StoreResult<Requeued> {
    let [queued, notes] = Reply(value).tuple("requeue")?;
    Ok(Requeued { queued: queued.number()? as usize, notes: self::notes(notes)? })
}

pub(crate) fn reap_reply(value: Value) -> StoreResult<Reaped> {
    let [redelivered, dead, full, wait, notes] = Reply(value).tuple("reap")?;
    Ok(Reaped {
        redelivered: redelivered.ids()?,
        dead: dead.ids()?,
        full: full.number()? == 1,
        next_deadline: u64::try_from(wait.signed()?).ok(),
        notes: self::notes(notes)?,
    })
}

pub(crate) fn cancel_reply(value: Value) -> StoreResult<Cancelled> {
    let mut parts = Reply(value).list()?.into_iter();
    let word = parts.next().ok_or_else(|| malformed("cancel", "a word"))?.text()?;
    match word.as_str() {
        "not_found" => Ok(Cancelled::NotFound),
        "requested" => Ok(Cancelled::Requested),
        "done" => Ok(Cancelled::Done),
        _ => {
            let code =
                parts.next().ok_or_else(|| malformed("cancel", "a status code"))?.signed()?;
            Ok(Cancelled::Ended(status(code)?))
        }
    }
}

pub(crate) fn resurrect_reply(value: Value) -> StoreResult<Vec<Result<(), Resurrection>>> {
    let answers = Reply(value).list()?;
    answers
        .into_iter()
        .map(|answer| {
            let text = answer.text()?;
            Ok(match text.split_once(':') {
                None if text == "ok" => Ok(()),
                Some(("status", code)) => match code.parse() {
                    Ok(code) => Err(Resurrection::Not(status(code)?)),
                    Err(_) => Err(Resurrection::NotFound),
                },
                Some(("key", id)) => Err(Resurrection::KeyTaken(
                    id.parse().map_err(|_| malformed("requeue", "a task id"))?,
                )),
                _ => Err(Resurrection::NotFound),
            })
        })
        .collect()
}
