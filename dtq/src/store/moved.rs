//! What goes from one store to another: a task, a dead letter whose record has left, or an idempotency
//! key whose task has ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Millis;
use crate::status::Status;

/// One thing that has been taken out of a store, with all that the other needs to go on with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moved {
    /// What it is and a nonce of its taking: by it a repeated put is known, and it is dropped. A thing that
    /// comes back and leaves again has another.
    pub(crate) mark: String,
    pub(crate) what: What,
    /// When it leaves by its retention.
    pub(crate) leaves: Option<Millis>,
    pub(crate) key: Option<Key>,
    pub(crate) letter: Option<Letter>,
    /// Of the task, or of a letter alone.
    #[serde(skip)]
    pub(crate) payload: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    Task {
        id: String,
        name: String,
        queue: String,
        status: u8,
        attempt: u32,
        lease: u64,
        /// The rest of the record, by the letters of the table in `redis/records.rs`.
        fields: BTreeMap<String, String>,
    },
    Letter,
    Key,
}

/// An idempotency record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) queue: String,
    pub(crate) key: String,
    pub(crate) task_id: String,
    /// `processing`, `completed` or `failed`.
    pub(crate) state: String,
    pub(crate) fingerprint: String,
    pub(crate) leaves: Option<Millis>,
}

/// A dead letter; its payload is beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Letter {
    pub(crate) task_id: String,
    pub(crate) name: String,
    pub(crate) queue: String,
    /// JSON.
    pub(crate) error: String,
    pub(crate) attempts: u32,
    pub(crate) worker_id: Option<String>,
    pub(crate) at: Millis,
}

/// What a store gave, and what it could not give yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct TakenOut {
    pub(crate) moved: Vec<Moved>,
    /// Tasks that a worker holds: they can be taken when they have ended or lapsed.
    pub(crate) running: u64,
}

impl Moved {
    pub(crate) fn is_task(&self) -> bool {
        matches!(self.what, What::Task { .. })
    }

    pub(crate) fn status(&self) -> Option<Status> {
        match &self.what {
            What::Task { status, .. } => Status::from_code(*status),
            What::Letter | What::Key => None,
        }
    }
}

/// What makes the marks of one taking its own.
pub(super) fn nonce() -> String {
    format!("{:016x}", fastrand::u64(..))
}
