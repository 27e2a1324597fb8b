//! The statuses of a task and the one table of moves between them (SPEC 1).

use std::fmt;
use std::str::FromStr;

/// Where a task stands.
///
/// ```
/// use dtq::Status;
/// assert!(Status::Retrying.is_live());
/// assert!(Status::DeadLettered.is_terminal());
/// assert_eq!(Status::DeadLettered.as_str(), "dead_lettered");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Status {
    /// Accepted, waiting for its delay.
    Pending,
    /// Ready to be fetched.
    Queued,
    /// A worker holds a lease on it.
    Running,
    /// Failed retryably, waiting for its backoff.
    Retrying,
    /// Ended well.
    Succeeded,
    /// Ended badly while the dead-letter queue is disabled.
    Failed,
    /// Ended badly; an entry in the dead-letter queue tells why.
    DeadLettered,
    /// Cancelled by request.
    Cancelled,
    /// Its time to live ran out before it could start.
    Expired,
}

use Status::{
    Cancelled, DeadLettered, Expired, Failed, Pending, Queued, Retrying, Running, Succeeded,
};

/// The one table of moves: SPEC 1 and 1.1. Redis scripts and SQL statements are checked against
/// it through [`Status::check_move`]; the scripts' own copy is printed from it.
pub(crate) const MOVES: &[(Status, &[Status])] = &[
    (Pending, &[Queued, Cancelled, Expired, DeadLettered, Failed]),
    (Queued, &[Running, Cancelled, Expired, DeadLettered, Failed]),
    (Running, &[Succeeded, Retrying, Failed, DeadLettered, Cancelled, Queued, Pending]),
    (Retrying, &[Queued, Cancelled, Expired, DeadLettered, Failed]),
];

/// What the admin requeue alone resurrects (SPEC 9.3).
pub(crate) const RESURRECTABLE: &[Status] = &[DeadLettered, Failed, Cancelled, Expired];

/// A move that the table does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a task cannot go from {from} to {to}")]
pub struct IllegalMove {
    /// Where the task stood.
    pub from: Status,
    /// Where it was to go.
    pub to: Status,
}

impl Status {
    /// Every status, in the order of their codes.
    pub const ALL: [Self; 9] =
        [Pending, Queued, Running, Retrying, Succeeded, Failed, DeadLettered, Cancelled, Expired];

    /// Whether the task may still run.
    pub const fn is_live(self) -> bool {
        matches!(self, Pending | Queued | Running | Retrying)
    }

    /// Whether the task has ended.
    pub const fn is_terminal(self) -> bool {
        !self.is_live()
    }

    /// The name used in events, logs and tools.
    pub const fn as_str(self) -> &'static str {
        match self {
            Pending => "pending",
            Queued => "queued",
            Running => "running",
            Retrying => "retrying",
            Succeeded => "succeeded",
            Failed => "failed",
            DeadLettered => "dead_lettered",
            Cancelled => "cancelled",
            Expired => "expired",
        }
    }

    /// The number that records hold: one character instead of up to thirteen.
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    #[cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "scripts hold a printed copy"))]
    /// `Ok` if the table allows the move, otherwise an error that names both ends.
    pub(crate) fn check_move(self, to: Self) -> Result<(), IllegalMove> {
        let allowed = MOVES.iter().any(|(from, tos)| *from == self && tos.contains(&to));
        if allowed { Ok(()) } else { Err(IllegalMove { from: self, to }) }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A text that names no status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a status: write pending, queued, running, retrying, succeeded, failed, \
     dead_lettered, cancelled or expired"
)]
pub struct UnknownStatus(String);

impl FromStr for Status {
    type Err = UnknownStatus;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|status| status.as_str() == text);
        found.ok_or_else(|| UnknownStatus(text.chars().take(64).collect()))
    }
}

impl serde::Serialize for Status {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> serde::Deserialize<'de> for Status {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_1_1_an_illegal_move_names_both_ends() {
        let error = Succeeded.check_move(Running).unwrap_err();
        assert_eq!(error.to_string(), "a task cannot go from succeeded to running");
    }

    #[test]
    fn spec_1_terminal_statuses_go_nowhere_and_live_ones_somewhere() {
        for from in Status::ALL {
            let leaves = Status::ALL.iter().any(|to| from.check_move(*to).is_ok());
            assert_eq!(leaves, from.is_live(), "{from}");
            assert_eq!(Status::from_code(from.code()), Some(from));
            assert_eq!(from.as_str().parse(), Ok(from));
        }
        assert!(RESURRECTABLE.iter().all(|status| status.is_terminal()));
        assert!(!RESURRECTABLE.contains(&Succeeded));
    }
}
