//! The table of settings: each variable, what is allowed, and how a text becomes its value.

use std::time::Duration;

use super::{Config, QueueChoice, StoreUrl, TEN_YEARS, UnknownTask};

/// One setting: its variable, what is allowed, and how a text becomes it (`None`: not allowed).
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) allowed: &'static str,
    pub(super) set: fn(&mut Config, &str) -> Option<()>,
}

/// Shortens the table: `setting!(NAME, "what is allowed", |config, text| ...)`.
macro_rules! settings {
    ($($name:literal, $allowed:literal, |$config:ident, $text:ident| $set:expr;)*) => {
        &[$(Setting { name: $name, allowed: $allowed, set: |$config, $text| { $set; Some(()) } }),*]
    };
}

pub(super) const SETTINGS: &[Setting] = settings! {
    "DTQ_URL", "redis://host:port/db, rediss://..., redis+unix:///path, sqlite:PATH or sqlite::memory:",
        |c, text| c.url = Some(url(text)?);
    "DTQ_REDIS_URL", "redis://host:port/db, rediss://... or redis+unix:///path",
        |c, text| c.url = Some(url(text)?);
    "DTQ_KEY_PREFIX", "1 to 64 letters, digits and any of _ . : { } -",
        |c, text| c.key_prefix = name(text, 64, "_.:{}-")?;
    "DTQ_RETRY_BASE_DELAY", "a number of seconds from 0 to 315360000", |c, text| c.retry.base = seconds_f64(text, 0.0)?;
    "DTQ_RETRY_MAX_DELAY", "a number of seconds from DTQ_RETRY_BASE_DELAY to 315360000",
        |c, text| c.retry.max = seconds_f64(text, 0.0)?;
    "DTQ_RETRY_JITTER", "a number from 0 to 1", |c, text| c.retry.jitter = between(text, 0.0, 1.0)?;
    "DTQ_MAX_ATTEMPTS", "a whole number from 1 to 255", |c, text| c.max_attempts_cap = whole(text, 1, 255)? as u32;
    "DTQ_MAX_PAYLOAD_BYTES", "a whole number from 1 to 67108864", |c, text| c.max_payload_bytes = whole(text, 1, 64 << 20)?;
    "DTQ_MAX_QUEUE_DEPTH", "a whole number from 1 to 1000000000", |c, text| c.max_queue_depth = whole(text, 1, 1_000_000_000)?;
    "DTQ_MAX_SCHEDULED", "a whole number from 1 to 1000000000", |c, text| c.max_scheduled = whole(text, 1, 1_000_000_000)?;
    "DTQ_IDEM_TTL_S", "a number of seconds from 0.001 to 315360000", |c, text| c.idempotency_ttl = seconds(text, 0.001)?;
    "DTQ_RESULT_RETENTION_S", "a number of seconds from 0 to 315360000", |c, text| c.result_retention = seconds(text, 0.0)?;
    "DTQ_TASK_RETENTION_S", "a number of seconds from 0 to 315360000", |c, text| c.task_retention = seconds(text, 0.0)?;
    "DTQ_RESULT_MAX_BYTES", "a whole number from 0 to 67108864", |c, text| c.result_max_bytes = whole(text, 0, 64 << 20)?;
    "DTQ_EVENTS", "on or off", |c, text| c.events = switch(text)?;
    "DTQ_DLQ_ENABLED", "true or false", |c, text| c.dlq_enabled = switch(text)?;
    "DTQ_DLQ_MAXLEN", "a whole number from 1 to 1000000000", |c, text| c.dlq_maxlen = whole(text, 1, 1_000_000_000)?;
    "DTQ_TASK_TIMEOUT_MS", "a whole number from 1 to 3600000",
        |c, text| c.task_timeout = Duration::from_millis(whole(text, 1, 3_600_000)?);
    "DTQ_WORKER_CONCURRENCY", "a whole number from 1 to 100000", |c, text| c.concurrency = whole(text, 1, 100_000)? as usize;
    "DTQ_WORKER_ID", "1 to 64 letters, digits and any of _ . : -",
        |c, text| c.worker_id = Some(name(text, 64, "_.:-")?);
    "DTQ_QUEUES", "names such as critical,default, with weights such as critical=3,default=1, or *",
        |c, text| c.queues = Some(queues(text)?);
    "DTQ_VISIBILITY_TIMEOUT_S", "a number of seconds from 0.1 to 86400",
        |c, text| c.visibility_timeout = Duration::try_from_secs_f64(between(text, 0.1, 86_400.0)?).ok()?;
    "DTQ_HEARTBEAT_INTERVAL_S", "a number of seconds from 0.01 to a third of DTQ_VISIBILITY_TIMEOUT_S",
        |c, text| c.heartbeat_interval = Some(Duration::try_from_secs_f64(between(text, 0.01, 28_800.0)?).ok()?);
    "DTQ_DRAIN_TIMEOUT_S", "a number of seconds from 0 to 315360000", |c, text| c.drain_timeout = seconds(text, 0.0)?;
    "DTQ_UNKNOWN_TASK", "dead_letter or snooze", |c, text| c.unknown_task = match text {
        "dead_letter" => UnknownTask::DeadLetter,
        "snooze" => UnknownTask::Snooze,
        _ => return None,
    };
};

pub(super) fn url(text: &str) -> Option<StoreUrl> {
    let scheme = text.split(':').next()?;
    let known = [
        "redis",
        "rediss",
        "redis+unix",
        "unix",
        "valkey",
        "valkeys",
        "redis-cluster",
        "redis-sentinel",
        "sqlite",
    ];
    (known.contains(&scheme) && text.len() > scheme.len() + 1).then(|| StoreUrl(text.to_owned()))
}

/// A text of letters, digits and some more, whole (`"abc\n"` is none).
fn name(text: &str, longest: usize, more: &str) -> Option<String> {
    let fits = (1..=longest).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c));
    fits.then(|| text.to_owned())
}

fn whole(text: &str, least: u64, most: u64) -> Option<u64> {
    // `parse` takes a leading plus, which nobody means.
    let plain = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|n| plain && (least..=most).contains(n))
}

fn between(text: &str, least: f64, most: f64) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.parse().ok().filter(|n: &f64| plain && n.is_finite() && (least..=most).contains(n))
}

fn seconds_f64(text: &str, least: f64) -> Option<f64> {
    between(text, least, TEN_YEARS.as_secs_f64())
}

fn seconds(text: &str, least: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds_f64(text, least)?).ok()
}

fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "on" | "true" | "1" | "yes" => Some(true),
        "off" | "false" | "0" | "no" => Some(false),
        _ => None,
    }
}

/// `^[a-z0-9][a-z0-9_-]{0,63}$`, the whole text (SPEC 6.1).
pub(crate) fn is_queue_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    (1..=64).contains(&bytes.len())
        && !matches!(bytes[0], b'_' | b'-')
        && bytes.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

/// What a queue's name may be, for messages.
pub(crate) const QUEUE_NAME: &str =
    "1 to 64 of a-z, 0-9, _ and -, beginning with a letter or a digit";

pub(crate) fn queues(text: &str) -> Option<Vec<QueueChoice>> {
    let choices: Option<Vec<_>> = text
        .split(',')
        .map(|part| {
            let (name, weight) = match part.trim_matches(' ').split_once('=') {
                Some((name, weight)) => (
                    name.trim_matches(' '),
                    Some(whole(weight.trim_matches(' '), 1, 1_000_000)? as u32),
                ),
                None => (part.trim_matches(' '), None),
            };
            (is_queue_name(name) || name == "*")
                .then(|| QueueChoice { name: name.to_owned(), weight })
        })
        .collect();
    let choices = choices?;
    let weighted = choices.iter().filter(|choice| choice.weight.is_some()).count();
    let mut names: Vec<_> = choices.iter().map(|choice| &choice.name).collect();
    names.sort_unstable();
    let unique = names.windows(2).all(|pair| pair[0] != pair[1]);
    (unique && (weighted == 0 || weighted == choices.len())).then_some(choices)
}
