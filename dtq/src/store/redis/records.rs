//! Records and dead letters as the server holds them, decoded with suspicion.
//!
//! Fields of `dtq:task:<id>`; what equals its default is absent:
//!
//! | field | meaning | | field | meaning |
//! | --- | --- | --- | --- | --- |
//! | `s` | `status code:attempt:lease number`, then `+` if it has options | | `w` | holder: `worker id/incarnation` |
//! | `n` | task type, with `queue/` before it unless `default` | | `o` | when the latest attempt started |
//! | `p` | payload | | `f` | when the task ended |
//! | `e` | id of its current entry | | `c` | a cancel was requested |
//! | `v` | version (1) | | `E` | latest error (JSON) |
//! | `y` | priority (5) | | `D` | delay chosen after it |
//! | `m` | max attempts (5) | | `h` | earlier attempts (JSON lines) |
//! | `t` | timeout ms (30000) | | `u` | since when of an unknown type |
//! | `x`, `X` | when it expires; its ttl | | `W` | somebody waits for its end |
//! | `d` | when it is due | | `z` | result: `j` in a key of its own, else its size; absent: `null` |
//! | `i`, `g` | idempotency key, fingerprint | | `k` | id of its dead letter |
//! | `r`, `R` | retention of record, result | | `K` | its dead letter was discarded |
//! | `b` | result limit | | `A` | attempts before admin requeues |
//! | `M` | metadata (JSON) | | `T` | left at once; a mark for repeats |

use std::collections::HashMap;

use redis::Value;

use super::reply::Reply;
use super::scripts::RECORD_VERSION;
use crate::id::TaskId;
use crate::inspect::{AttemptInfo, DeadLetter, LastError, ResultInfo, TaskInfo};
use crate::status::Status;
use crate::store::{ErrorInfo, StoreResult};

/// Fields of a hash or of a stream entry.
pub(super) type Fields = HashMap<String, Vec<u8>>;

pub(super) fn fields(value: Value) -> StoreResult<Fields> {
    let pairs = match value {
        Value::Map(pairs) => pairs.into_iter().flat_map(|(k, v)| [Reply(k), Reply(v)]).collect(),
        other => Reply(other).list()?,
    };
    let mut fields = Fields::new();
    let mut pairs = pairs.into_iter();
    while let (Some(name), Some(value)) = (pairs.next(), pairs.next()) {
        fields.insert(name.text()?, value.bytes()?);
    }
    Ok(fields)
}

fn text(fields: &Fields, name: &str) -> Option<String> {
    fields.get(name).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

fn number<T: std::str::FromStr>(fields: &Fields, name: &str) -> Option<T> {
    text(fields, name)?.parse().ok()
}

/// The record; `None` if there is none, or one that has left with its retention, or a newer one.
pub(super) fn task(id: TaskId, fields: &Fields, result: Option<Vec<u8>>) -> Option<TaskInfo> {
    if fields.is_empty() || fields.contains_key("T") {
        return None;
    }
    if number::<u32>(fields, "v").is_some_and(|version| version > RECORD_VERSION) {
        return None;
    }
    let state = text(fields, "s")?;
    let mut state = state.split(':');
    let status = state.next().and_then(|code| code.parse().ok()).and_then(Status::from_code)?;
    let attempt = state.next().and_then(|attempt| attempt.parse().ok()).unwrap_or(0);
    let packed = text(fields, "n").unwrap_or_default();
    let (queue, name) = packed.split_once('/').unwrap_or(("default", &packed));
    let error: Option<ErrorInfo> =
        fields.get("E").and_then(|json| serde_json::from_slice(json).ok());
    let worker_id =
        text(fields, "w").map(|holder| holder.split('/').next().unwrap_or_default().to_owned());
    let mut info = TaskInfo {
        id,
        name: name.to_owned(),
        queue: queue.to_owned(),
        priority: number(fields, "y").unwrap_or(5),
        status,
        attempt,
        max_attempts: number(fields, "m").unwrap_or(5),
        timeout_ms: number(fields, "t").unwrap_or(30000),
        payload: fields.get("p").cloned().unwrap_or_default(),
        created_ms: id.created_ms(),
        due_ms: matches!(status, Status::Pending | Status::Retrying)
            .then(|| number(fields, "d"))
            .flatten(),
        expires_ms: number(fields, "x"),
        started_ms: number(fields, "o"),
        finished_ms: number(fields, "f"),
        worker_id,
        idempotency_key: text(fields, "i"),
        metadata: crate::store::with_admin_metadata(
            text(fields, "M"),
            text(fields, "A").as_deref(),
            fields.contains_key("K"),
        ),
        last_error: error.map(|info| LastError { info, delay_ms: number(fields, "D") }),
        history: history(fields),
        cancel_requested: fields.contains_key("c"),
        result: result_info(status, fields, result),
    };
    // The attempt that runs, and the one that succeeded, are told by the record itself.
    let outcome = match status {
        Status::Running => Some("running"),
        Status::Succeeded => Some("succeeded"),
        _ => None,
    };
    if let (Some(outcome), Some(started_ms)) = (outcome, info.started_ms) {
        info.history.push(AttemptInfo {
            attempt,
            started_ms,
            ended_ms: info.finished_ms,
            worker_id: info.worker_id.clone().unwrap_or_default(),
            outcome: outcome.to_owned(),
            error: None,
        });
        let surplus = info.history.len().saturating_sub(20);
        info.history.drain(..surplus);
    }
    Some(info)
}

fn history(fields: &Fields) -> Vec<AttemptInfo> {
    #[derive(serde::Deserialize)]
    struct Line {
        attempt: u32,
        started_ms: u64,
        ended_ms: u64,
        worker_id: String,
        outcome: String,
        error: Option<ErrorInfo>,
    }
    let lines = text(fields, "h").unwrap_or_default();
    let lines = lines.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    lines
        .map(|line| AttemptInfo {
            attempt: line.attempt,
            started_ms: line.started_ms,
            ended_ms: Some(line.ended_ms),
            worker_id: line.worker_id,
            outcome: line.outcome,
            error: line.error,
        })
        .collect()
}

fn result_info(status: Status, fields: &Fields, result: Option<Vec<u8>>) -> ResultInfo {
    if status != Status::Succeeded {
        return ResultInfo::None;
    }
    match (text(fields, "z").as_deref(), result) {
        (None, _) => ResultInfo::Json("null".to_owned()),
        (Some("j"), Some(json)) => ResultInfo::Json(String::from_utf8_lossy(&json).into_owned()),
        (Some("j"), None) => ResultInfo::None,
        (Some(size), _) => ResultInfo::TooLarge { bytes: size.parse().unwrap_or(0) },
    }
}

/// A dead letter: entry `entry` of the stream.
pub(super) fn dead_letter(entry: &str, fields: &Fields) -> DeadLetter {
    let error = fields.get("E").and_then(|json| serde_json::from_slice(json).ok());
    DeadLetter {
        task_id: text(fields, "i").unwrap_or_default(),
        name: text(fields, "n").unwrap_or_default(),
        queue: text(fields, "q").unwrap_or_default(),
        payload: fields.get("p").cloned().unwrap_or_default(),
        error: error.unwrap_or_else(|| ErrorInfo {
            class: "Unknown".to_owned(),
            message: "the dead letter does not tell".to_owned(),
            retryable: false,
        }),
        attempts: number(fields, "a").unwrap_or(0),
        worker_id: text(fields, "w").filter(|worker| !worker.is_empty()),
        dead_ms: entry.split('-').next().and_then(|ms| ms.parse().ok()).unwrap_or(0),
    }
}
