//! A task before it is checked, the checks of SPEC 6.1, and tasks known by name alone.

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use super::EnqueueError;
use crate::config::{Config, QUEUE_NAME, TEN_YEARS, is_queue_name, millis};
use crate::id::TaskId;
use crate::store::{Due, Idempotency, Millis, NewTask};
use crate::task::{Backoff, Definition, EncodeError, Options, Run, Task};

/// Executions at most where nobody says how many (SPEC 4.5).
const MAX_ATTEMPTS: u32 = 5;
const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);
/// A time to live must outlast a delay, which may be ten years.
const LONGEST_TTL: Duration = Duration::from_secs(2 * TEN_YEARS.as_secs());
const METADATA_BYTES: usize = 4096;
const KEY_BYTES: usize = 512;

/// When the task becomes due, as it was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) enum When {
    Now,
    After(Duration),
    At(SystemTime),
}

/// What was asked for, unchecked.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) name: Cow<'static, str>,
    payload: Result<Vec<u8>, EncodeError>,
    pub(super) queue: Cow<'static, str>,
    pub(super) priority: u8,
    pub(super) max_attempts: Option<u32>,
    /// `Some`: it was asked for and must not exceed the cap. The attribute's are checked likewise.
    pub(super) timeout: Option<Duration>,
    pub(super) when: When,
    pub(super) ttl: Option<Duration>,
    /// Of the record and the result alike; the attribute may tell them apart.
    pub(super) retention: Option<Duration>,
    attribute_retention: Option<Millis>,
    attribute_result_retention: Option<Millis>,
    result_max_bytes: Option<u64>,
    pub(super) idempotency_key: Option<String>,
    /// Values are JSON texts, or why they are none.
    metadata: Vec<(String, Result<String, String>)>,
}

impl Draft {
    pub(super) fn new(
        name: Cow<'static, str>,
        payload: Result<Vec<u8>, EncodeError>,
        options: &Options,
    ) -> Self {
        Self {
            name,
            payload,
            queue: Cow::Borrowed(options.queue),
            priority: options.priority,
            max_attempts: options.max_attempts,
            timeout: options.timeout_ms.map(Duration::from_millis),
            when: When::Now,
            ttl: options.ttl_ms.map(Duration::from_millis),
            retention: None,
            attribute_retention: options.retention_ms,
            attribute_result_retention: options.result_retention_ms,
            result_max_bytes: options.result_max_bytes,
            idempotency_key: None,
            metadata: Vec::new(),
        }
    }

    pub(super) fn add_metadata(&mut self, key: String, value: &impl Serialize) {
        let json = crate::finite::to_vec(value);
        let value = json.and_then(|json| String::from_utf8(json).map_err(|e| e.to_string()));
        self.metadata.retain(|(other, _)| *other != key);
        self.metadata.push((key, value));
    }

    /// Everything that SPEC 6.1 asks for; `now` is this machine's clock.
    pub(super) fn check(self, config: &Config, now: SystemTime) -> Result<NewTask, EnqueueError> {
        let payload = self.payload.map_err(EnqueueError::Serialize)?;
        let (bytes, limit) = (payload.len() as u64, config.max_payload_bytes);
        if bytes > limit {
            return Err(EnqueueError::PayloadTooLarge { bytes, limit });
        }
        if !is_task_name(&self.name) {
            let allowed = "1 to 128 of letters, digits, _ . : and -";
            return Err(invalid("name", &format_args!("`{}`", brief(&self.name)), allowed));
        }
        if !is_queue_name(&self.queue) {
            return Err(invalid("queue", &format_args!("`{}`", brief(&self.queue)), QUEUE_NAME));
        }
        if self.priority > 9 {
            return Err(invalid("priority", &self.priority, "0 to 9"));
        }
        let cap = config.max_attempts_cap;
        let max_attempts = match self.max_attempts {
            Some(attempts) if attempts == 0 || attempts > cap => {
                let allowed = format!("1 to {cap} (DTQ_MAX_ATTEMPTS)");
                return Err(invalid("max_attempts", &attempts, &allowed));
            }
            Some(attempts) => attempts,
            None => MAX_ATTEMPTS.min(cap),
        };
        let timeout = self.timeout.unwrap_or(config.task_timeout);
        if timeout < Duration::from_millis(1) || timeout > LONGEST_TIMEOUT {
            return Err(invalid("timeout", &format_args!("{timeout:?}"), "1 ms to 1 h"));
        }
        let (due, delay) = due(self.when, now)?;
        if let Some(ttl) = self.ttl {
            let shown = format_args!("{ttl:?}");
            if ttl > LONGEST_TTL {
                return Err(invalid("ttl", &shown, "at most twenty years"));
            }
            if ttl <= delay || millis(ttl) == 0 {
                let allowed = format!("more than the delay, which is {delay:?}, and at least 1 ms");
                return Err(invalid("ttl", &shown, &allowed));
            }
        }
        if let Some(retention) = self.retention.filter(|retention| *retention > TEN_YEARS) {
            let shown = format_args!("{retention:?}");
            return Err(invalid("retention", &shown, "at most ten years"));
        }
        let idempotency = match self.idempotency_key {
            Some(key) if key.is_empty() || key.len() > KEY_BYTES => {
                let shown = format!("{} bytes", key.len());
                return Err(invalid("idempotency_key", &shown, "1 to 512 bytes"));
            }
            Some(key) => {
                let fingerprint = fingerprint(&self.name, &payload);
                Some(Idempotency { key, fingerprint })
            }
            None => None,
        };
        let retention = self.retention.map(millis);
        Ok(NewTask {
            id: TaskId::new(0),
            name: self.name.into_owned(),
            queue: self.queue.into_owned(),
            priority: self.priority,
            max_attempts,
            timeout: millis(timeout),
            payload: Bytes::from(payload),
            due,
            ttl: self.ttl.map(millis),
            retention: retention.or(self.attribute_retention),
            result_retention: retention.or(self.attribute_result_retention),
            result_max_bytes: self.result_max_bytes,
            idempotency,
            metadata: metadata(self.metadata)?,
        })
    }
}

/// Says what a value is and what it may be.
fn invalid(field: &'static str, value: &dyn fmt::Display, allowed: &str) -> EnqueueError {
    EnqueueError::Invalid { field, reason: format!("is {value}; allowed is {allowed}") }
}

/// A text for a message: not longer than a line, and without control characters.
fn brief(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}

/// `[A-Za-z0-9_.:-]{1,128}`, the whole text.
fn is_task_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
    (1..=128).contains(&name.len()) && name.bytes().all(fits)
}

/// When it becomes due, and how far that is from `now`. Moments are rounded up to milliseconds, so
/// that nothing starts early.
fn due(when: When, now: SystemTime) -> Result<(Due, Duration), EnqueueError> {
    let (field, delay) = match when {
        When::Now => return Ok((Due::Now, Duration::ZERO)),
        When::After(delay) => ("delay", delay),
        // In the past means now.
        When::At(moment) => ("at", moment.duration_since(now).unwrap_or_default()),
    };
    if delay > TEN_YEARS {
        let shown = format_args!("{delay:?} from now");
        return Err(invalid(field, &shown, "at most ten years"));
    }
    let due = match when {
        _ if delay.is_zero() => Due::Now,
        When::At(moment) => {
            Due::At(ceil_millis(moment.duration_since(UNIX_EPOCH).unwrap_or_default()))
        }
        _ => Due::After(ceil_millis(delay)),
    };
    Ok((due, delay))
}

fn ceil_millis(span: Duration) -> Millis {
    millis(span.saturating_add(Duration::from_nanos(999_999)))
}

/// The metadata as one JSON object.
fn metadata(
    entries: Vec<(String, Result<String, String>)>,
) -> Result<Option<String>, EnqueueError> {
    if entries.is_empty() {
        return Ok(None);
    }
    let mut object = String::from("{");
    for (key, value) in entries {
        let value = value.map_err(|why| {
            let reason = format!("the value of `{}` cannot be written as JSON: {why}", brief(&key));
            EnqueueError::Invalid { field: "metadata", reason }
        })?;
        if object.len() > 1 {
            object.push(',');
        }
        object.push_str(&serde_json::Value::String(key).to_string());
        object.push(':');
        object.push_str(&value);
    }
    object.push('}');
    if object.len() > METADATA_BYTES {
        let shown = format!("{} bytes of JSON", object.len());
        return Err(invalid("metadata", &shown, "at most 4096 bytes"));
    }
    Ok(Some(object))
}

/// Of the task type and the payload's meaning: maps that were written in another order are equal,
/// since a `HashMap` in a payload is written in a different order each time.
pub(super) fn fingerprint(name: &str, payload: &[u8]) -> String {
    let mut bytes = name.as_bytes().to_vec();
    // Cannot stand in a name, so name and payload cannot shift into each other.
    bytes.push(0);
    match serde_json::from_slice::<serde_json::Value>(payload) {
        Ok(value) => canonical(&value, &mut bytes),
        Err(_) => bytes.extend_from_slice(payload),
    }
    // FNV-1a on 128 bits: the same in every process and version, which the standard library's
    // hashers are not; nothing depends on its being hard to forge.
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in bytes {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    format!("{hash:032x}")
}

/// Writes JSON with the keys of objects in order. Written out because the order in which
/// `serde_json` keeps them depends on what other crates ask of it.
fn canonical(value: &serde_json::Value, out: &mut Vec<u8>) {
    match value {
        serde_json::Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by(|a, b| a.0.cmp(b.0));
            out.push(b'{');
            for (key, value) in entries {
                out.extend_from_slice(serde_json::Value::from(key.as_str()).to_string().as_bytes());
                out.push(b':');
                canonical(value, out);
                out.push(b',');
            }
            out.push(b'}');
        }
        serde_json::Value::Array(items) => {
            out.push(b'[');
            for item in items {
                canonical(item, out);
                out.push(b',');
            }
            out.push(b']');
        }
        plain => out.extend_from_slice(plain.to_string().as_bytes()),
    }
}

/// The type of tasks that are known by their wire name alone
/// ([`Client::enqueue_raw`](crate::Client::enqueue_raw)). Never made.
#[derive(Debug)]
pub enum RawTask {}

impl Task for RawTask {
    const NAME: &'static str = "";
    type Output = Json;

    fn definition() -> &'static Definition {
        static DEFINITION: Definition = Definition {
            name: "",
            aliases: &[],
            params: &[],
            options: Options {
                queue: "default",
                priority: 5,
                max_attempts: None,
                timeout_ms: None,
                backoff: Backoff { base_ms: None, max_ms: None, jitter: None },
                ttl_ms: None,
                retention_ms: None,
                result_retention_ms: None,
                result_max_bytes: None,
            },
            states: &[],
            retry_on: &[],
            file: file!(),
            line: line!(),
            module: module_path!(),
            run: Run::Blocking(|_| {
                unreachable!("a task known by name alone is run by its own type")
            }),
        };
        &DEFINITION
    }

    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        match *self {}
    }
}

/// JSON, exactly as it was written: the result of a task that is known by name alone.
#[derive(Clone)]
pub struct Json(Box<RawValue>);

impl Json {
    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Decodes it.
    ///
    /// # Errors
    ///
    /// What does not fit, and where.
    pub fn parse<'a, T: serde::Deserialize<'a>>(&'a self) -> std::io::Result<T> {
        Ok(serde_json::from_str(self.as_str())?)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> serde::Deserialize<'de> for Json {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self)
    }
}
