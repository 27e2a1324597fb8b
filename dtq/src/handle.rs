//! A task from its producer's side: where it stands, its result, cancelling it.

pub(crate) mod waits;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::id::TaskId;
use crate::inspect::{ErrorInfo, ResultInfo, TaskInfo};
use crate::status::Status;
use crate::store::{self, StoreError};
use crate::task::Task;

/// A task that was accepted.
///
/// Cheap to clone; dropping it does nothing to the task.
pub struct Handle<T> {
    client: Client,
    id: TaskId,
    duplicate: bool,
    task: PhantomData<fn() -> T>,
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        Self::new(self.client.clone(), self.id, self.duplicate)
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Handle");
        debug.field("id", &self.id).field("is_duplicate", &self.duplicate).finish_non_exhaustive()
    }
}

/// Why a task has no result.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TaskFailure {
    /// It failed: permanently, or as often as it might.
    #[error("the task failed at attempt {attempts}: {}: {}", error.class, error.message)]
    Failed {
        /// The last error.
        error: ErrorInfo,
        /// Attempts made.
        attempts: u32,
    },
    /// It was cancelled.
    #[error("the task was cancelled")]
    Cancelled,
    /// Its time to live ran out before it could start.
    #[error("the task expired before it could start")]
    Expired,
    /// There is no record of it, or no result any more: it has left with its retention.
    #[error("the task or its result is not kept any more")]
    Gone,
    /// It succeeded with a result that was too large to be kept.
    #[error("the task succeeded, its result of {bytes} bytes was too large to be kept")]
    TooLarge {
        /// The result's size.
        bytes: u64,
    },
    /// Its result is not what the handle's type says.
    #[error("the task succeeded, its result cannot be decoded: {0}")]
    Decode(String),
    /// It had not ended within the time given; it goes on.
    #[error("the task has not ended yet")]
    TimedOut,
    /// The store failed or is away.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a request to cancel a task came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cancelled {
    /// It is cancelled.
    Done,
    /// It is running: its worker was told and drops it. Should it succeed before that, it has
    /// succeeded.
    Requested,
}

/// Why a task was not cancelled.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CancelError {
    /// It has ended already.
    #[error("the task has ended already: it is {0}")]
    Ended(Status),
    /// There is no record of it.
    #[error("no such task")]
    NotFound,
    /// The store failed or is away.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<T> Handle<T> {
    pub(crate) fn new(client: Client, id: TaskId, duplicate: bool) -> Self {
        Self { client, id, duplicate, task: PhantomData }
    }

    /// The task's id.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Whether the enqueue was answered with an earlier task of the same idempotency key.
    pub fn is_duplicate(&self) -> bool {
        self.duplicate
    }

    /// Where the task stands.
    ///
    /// # Errors
    ///
    /// [`TaskFailure::Gone`] if there is no record of it, [`TaskFailure::Store`].
    pub async fn status(&self) -> Result<Status, TaskFailure> {
        let id = self.id;
        let task =
            self.client.call("status", move |store| async move { store.task(id).await }).await?;
        task.map(|task| task.status).ok_or(TaskFailure::Gone)
    }

    /// Cancels the task.
    ///
    /// # Errors
    ///
    /// It has ended already, there is no record of it, or the store failed.
    pub async fn cancel(&self) -> Result<Cancelled, CancelError> {
        cancel(&self.client, self.id).await
    }
}

impl<T: Task> Handle<T>
where
    T::Output: DeserializeOwned,
{
    /// Waits until the task has ended, and gives what its function returned.
    ///
    /// # Errors
    ///
    /// Why there is no result. [`TaskFailure::Store`] if the store has been away for 30 s; then it
    /// may be called again.
    pub async fn result(&self) -> Result<T::Output, TaskFailure> {
        decode(self.wait(None).await?)
    }

    /// As [`result`](Self::result), for at most this long.
    ///
    /// # Errors
    ///
    /// [`TaskFailure::TimedOut`] if the task has not ended by then; it goes on.
    pub async fn result_within(&self, limit: Duration) -> Result<T::Output, TaskFailure> {
        decode(self.wait(Some(limit)).await?)
    }
}

impl<T> Handle<T> {
    /// The record of the ended task.
    async fn wait(&self, limit: Option<Duration>) -> Result<TaskInfo, TaskFailure> {
        let waits = Arc::clone(self.client.waits());
        let id = self.id;
        // The clock is that of dtq's thread: the caller's runtime may have none.
        let waiting = async move {
            let ended = waits.ended(id);
            Ok(match limit {
                Some(limit) => tokio::time::timeout(limit, ended).await.ok().transpose()?,
                None => Some(ended.await?),
            })
        };
        let _wait = self.client.io().wait();
        let waiting = Abort(self.client.io().spawn(waiting));
        let ended = waiting.await.map_err(TaskFailure::Store)?;
        ended.ok_or(TaskFailure::TimedOut)?.ok_or(TaskFailure::Gone)
    }
}

/// A call on dtq's thread that ends when nobody waits for it any more.
struct Abort<T>(tokio::task::JoinHandle<store::StoreResult<T>>);

impl<T> Drop for Abort<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T> Future for Abort<T> {
    type Output = store::StoreResult<T>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        self.0.poll_unpin(context).map(|joined| match joined {
            Ok(result) => result,
            Err(error) => Err(StoreError::Failed(format!("a call did not end: {error}"))),
        })
    }
}

/// What an ended task's record says of its result.
fn decode<O: DeserializeOwned>(task: TaskInfo) -> Result<O, TaskFailure> {
    match (task.status, task.result) {
        (Status::Succeeded, ResultInfo::Json(json)) => {
            serde_json::from_str(&json).map_err(|error| TaskFailure::Decode(error.to_string()))
        }
        (Status::Succeeded, ResultInfo::TooLarge { bytes }) => Err(TaskFailure::TooLarge { bytes }),
        (Status::Cancelled, _) => Err(TaskFailure::Cancelled),
        (Status::Expired, _) => Err(TaskFailure::Expired),
        (Status::DeadLettered | Status::Failed, _) => {
            let unknown = || ErrorInfo {
                class: "Error".to_owned(),
                message: "the record does not say why".to_owned(),
                retryable: false,
            };
            let error = task.last_error.map_or_else(unknown, |last| last.info);
            Err(TaskFailure::Failed { error, attempts: task.attempt })
        }
        (_, _) => Err(TaskFailure::Gone),
    }
}

/// Cancels a task, by a handle or by an administrator.
pub(crate) async fn cancel(client: &Client, id: TaskId) -> Result<Cancelled, CancelError> {
    let tries = AtomicU32::new(0);
    let call = move |store: Arc<dyn store::Store>| {
        let again = tries.fetch_add(1, Ordering::Relaxed) > 0;
        async move { Ok((store.cancel(id).await?, again)) }
    };
    match client.call("cancel", call).await? {
        (store::Cancelled::Done, _) => Ok(Cancelled::Done),
        // A call before did it, and its reply was lost.
        (store::Cancelled::Ended(Status::Cancelled), true) => Ok(Cancelled::Done),
        (store::Cancelled::Requested, _) => Ok(Cancelled::Requested),
        (store::Cancelled::Ended(status), _) => Err(CancelError::Ended(status)),
        (store::Cancelled::NotFound, _) => Err(CancelError::NotFound),
    }
}
