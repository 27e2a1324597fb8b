//! dtq
mod client;
mod config;
mod context;
mod enqueue;
mod error;
mod events;
mod finite;
mod handle;
mod id;
pub mod inspect;
mod io;
mod registry;
mod retry;
mod status;
mod store;
mod task;
mod task_error;
mod wire;

#[doc(hidden)]
pub mod __private;

pub use client::{Client, ClientBuilder, set_default_client};
pub use config::{Config, ConfigBuilder, ConfigError, ConfigProblem, UnknownTask};
pub use context::Context;
pub use dtq_macros::task;
pub use enqueue::{Enqueue, EnqueueAllError, EnqueueError, Json, RawTask, Sending};
pub use error::{Error, Result, StartError};
pub use events::{Event, EventKind, Events};
pub use handle::{CancelError, Cancelled, Handle, TaskFailure};
pub use id::{InvalidTaskId, TaskId};
pub use registry::registry;
pub use retry::{InvalidPolicy, RetryPolicy};
pub use status::{IllegalMove, Status, UnknownStatus};
pub use store::StoreError;
pub use task::{Backoff, Definition, EncodeError, Options, StateNeed, Task};
pub use task_error::{IntoTaskError, Mark, Marked, TaskError};
