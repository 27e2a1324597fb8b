//! Task ids: made by the producer, so that a repeated enqueue names the same task (SPEC 4.7, 6.4).

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// ASCII order equals value order, so that ids sort as text in the order of their creation.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// 62^22 is the first power of 62 above 2^128.
const LEN: usize = 22;
/// An id is cut into parts of so many digits, each of which fits 64 bits: the divisions on 128 bits
/// are few.
const PARTS: [usize; 3] = [7, 7, 8];

/// The id of a task: a UUIDv7 made by the producer, written as 22 letters and digits.
///
/// Ids are unguessable and sort, also as text, by the time of their creation. The last byte of
/// the UUID carries the shard that the task lives on.
///
/// ```
/// let id: dtq::TaskId = "0198f3d2-6a3e-7cc1-9f0a-52c5a1b2c300".parse().unwrap();
/// assert_eq!(id.to_string().len(), 22);
/// assert_eq!(id.to_string().parse::<dtq::TaskId>().unwrap(), id);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(u128);

impl TaskId {
    /// A new id on `shard`; ids of one process are strictly increasing.
    pub(crate) fn new(shard: u8) -> Self {
        Self(Uuid::now_v7().as_u128() & !0xff | u128::from(shard))
    }

    /// The shard that the id names.
    #[allow(dead_code, reason = "read once a deployment has more than one shard")]
    pub(crate) fn shard(self) -> u8 {
        (self.0 & 0xff) as u8
    }

    /// The id as the UUID that it is, in the usual 36 characters.
    pub fn hyphenated(self) -> String {
        Uuid::from_u128(self.0).hyphenated().to_string()
    }

    /// The producer's clock when it made the id, in milliseconds since the Unix epoch.
    pub fn created_ms(self) -> u64 {
        (self.0 >> 80) as u64
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0u8; LEN];
        let (mut rest, mut end) = (self.0, LEN);
        for len in PARTS.into_iter().rev() {
            let base = 62u128.pow(len as u32);
            let mut part = (rest % base) as u64;
            rest /= base;
            for digit in text[end - len..end].iter_mut().rev() {
                *digit = DIGITS[(part % 62) as usize];
                part /= 62;
            }
            end -= len;
        }
        f.pad(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not a task id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a task id: write its 22 letters and digits, or the UUID in 36 characters")]
pub struct InvalidTaskId(String);

impl FromStr for TaskId {
    type Err = InvalidTaskId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidTaskId(text.chars().take(64).collect());
        if text.len() == 36 {
            return Uuid::try_parse(text).map(|uuid| Self(uuid.as_u128())).map_err(|_| invalid());
        }
        if text.len() != LEN {
            return Err(invalid());
        }
        text.bytes()
            .try_fold(0u128, |value, byte| {
                let digit = DIGITS.iter().position(|d| *d == byte)?;
                value.checked_mul(62)?.checked_add(digit as u128)
            })
            .map(Self)
            .ok_or_else(invalid)
    }
}

impl serde::Serialize for TaskId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for TaskId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn spec_6_4_ids_sort_as_text_and_round_trip(a: u128, b: u128) {
            let (x, y) = (TaskId(a), TaskId(b));
            prop_assert_eq!(a.cmp(&b), x.to_string().cmp(&y.to_string()));
            prop_assert_eq!(x.to_string().parse::<TaskId>().unwrap(), x);
            prop_assert_eq!(x.hyphenated().parse::<TaskId>().unwrap(), x);
        }

        #[test]
        fn garbage_is_refused_not_wrapped(text in "\\PC{0,40}") {
            if let Ok(id) = text.parse::<TaskId>() {
                prop_assert!(id.to_string() == text || id.hyphenated() == text.to_lowercase());
            }
        }
    }

    #[test]
    fn spec_6_4_ids_of_one_process_increase_and_carry_the_shard() {
        let ids: Vec<_> = (0..1000).map(|_| TaskId::new(7)).collect();
        assert!(ids.is_sorted_by(|a, b| a < b));
        assert!(ids.iter().all(|id| id.shard() == 7));
    }
}
