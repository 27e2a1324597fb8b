//! Replies of scripts, taken apart with an error instead of a panic.

use redis::Value;

use crate::id::TaskId;
use crate::store::{StoreError, StoreResult};

/// A part of a script's reply.
#[derive(Debug)]
pub(crate) struct Reply(pub(crate) Value);

/// A reply that is not what the script's header promises: a bug, or a proxy that rewrites.
pub(super) fn malformed(who: &str, wanted: &str) -> StoreError {
    StoreError::Failed(format!("the reply of {who} is malformed: expected {wanted}"))
}

impl Reply {
    pub(super) fn is_list(&self) -> bool {
        matches!(self.0, Value::Array(_))
    }

    pub(super) fn list(self) -> StoreResult<Vec<Self>> {
        match self.0 {
            Value::Array(items) | Value::Set(items) => Ok(items.into_iter().map(Reply).collect()),
            Value::Nil => Ok(Vec::new()),
            _ => Err(malformed("a script", "a list")),
        }
    }

    pub(super) fn tuple<const N: usize>(self, who: &str) -> StoreResult<[Self; N]> {
        self.list()?.try_into().map_err(|_| malformed(who, &format!("{N} parts")))
    }

    pub(super) fn bytes(self) -> StoreResult<Vec<u8>> {
        match self.0 {
            Value::BulkString(bytes) => Ok(bytes),
            Value::SimpleString(text) => Ok(text.into_bytes()),
            Value::Okay => Ok(b"OK".to_vec()),
            Value::Int(number) => Ok(number.to_string().into_bytes()),
            Value::Nil => Ok(Vec::new()),
            _ => Err(malformed("a script", "a text")),
        }
    }

    pub(super) fn text(self) -> StoreResult<String> {
        String::from_utf8(self.bytes()?)
            .or_else(|broken| Ok(String::from_utf8_lossy(broken.as_bytes()).into_owned()))
    }

    /// A text, `None` if it is empty.
    pub(super) fn some_text(self) -> StoreResult<Option<String>> {
        let text = self.text()?;
        Ok((!text.is_empty()).then_some(text))
    }

    pub(super) fn signed(self) -> StoreResult<i64> {
        match self.0 {
            Value::Int(number) => Ok(number),
            _ => self.text()?.parse().map_err(|_| malformed("a script", "a number")),
        }
    }

    pub(super) fn number(self) -> StoreResult<u64> {
        u64::try_from(self.signed()?).map_err(|_| malformed("a script", "a number from 0"))
    }

    pub(super) fn id(self) -> StoreResult<TaskId> {
        self.text()?.parse().map_err(|_| malformed("a script", "a task id"))
    }

    /// Ids; what is none (put there by hand) is passed over.
    pub(super) fn ids(self) -> StoreResult<Vec<TaskId>> {
        let texts = self.list()?.into_iter().map(Self::text).collect::<StoreResult<Vec<_>>>()?;
        Ok(texts.iter().filter_map(|text| text.parse().ok()).collect())
    }
}
