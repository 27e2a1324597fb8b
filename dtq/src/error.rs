//! What dtq itself fails with.

use std::fmt;

use crate::config::ConfigError;
use crate::enqueue::{EnqueueAllError, EnqueueError};
use crate::handle::{CancelError, TaskFailure};
use crate::id::InvalidTaskId;
use crate::migrate::MigrateError;
use crate::store::{Resurrection, StoreError};

/// `Result` with dtq's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Anything that dtq can fail with, for `main` and for callers that do not tell kinds apart: every
/// other error of dtq turns into it by `?`.
///
/// `Debug` prints the same text as `Display`, so that `fn main() -> dtq::Result<()>` ends readably.
///
/// ```
/// let error = dtq::Client::connect("gopher://localhost").unwrap_err();
/// assert!(matches!(error, dtq::Error::Config(_)));
/// assert_eq!(format!("{error:?}"), error.to_string());
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A task was not accepted.
    #[error(transparent)]
    Enqueue(#[from] EnqueueError),
    /// Of many tasks, not all were accepted.
    #[error(transparent)]
    EnqueueAll(#[from] EnqueueAllError),
    /// A task did not succeed, or its result could not be had.
    #[error(transparent)]
    Task(#[from] TaskFailure),
    /// A task could not be cancelled.
    #[error(transparent)]
    Cancel(#[from] CancelError),
    /// A task could not be requeued.
    #[error(transparent)]
    Requeue(#[from] Resurrection),
    /// A migration was not done to its end.
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    /// An argument is not what it may be.
    #[error("{field}: {reason}")]
    Invalid {
        /// Which.
        field: &'static str,
        /// What it is and what is allowed.
        reason: String,
    },
    /// A text is no task id.
    #[error(transparent)]
    InvalidId(#[from] InvalidTaskId),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A worker refuses to start.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl Error {
    /// Whether the store could not be reached: the same call may succeed later.
    pub fn is_store_unavailable(&self) -> bool {
        let store = match self {
            Self::Enqueue(EnqueueError::Store(error))
            | Self::EnqueueAll(EnqueueAllError { error: EnqueueError::Store(error), .. })
            | Self::Task(TaskFailure::Store(error))
            | Self::Cancel(CancelError::Store(error))
            | Self::Migrate(MigrateError::Store(error))
            | Self::Store(error) => error,
            _ => return false,
        };
        matches!(store, StoreError::Unavailable(_))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a worker refuses to start: everything that is wrong, together.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StartError {
    /// At least one.
    pub problems: Vec<String>,
}

impl StartError {
    pub(crate) fn new(problems: Vec<String>) -> Self {
        Self { problems }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the worker cannot start:")?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for StartError {}
