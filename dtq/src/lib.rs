//! # dtq
//!
//! A task queue for Rust: write `#[dtq::task]` over a function, and its calls can be put off, retried,
//! and done by a fleet of workers.
//!
//! ```no_run
//! # mod dtq_docs {
//! use std::time::Duration;
//!
//! # #[derive(Debug, thiserror::Error)] #[error("no mail today")] pub struct MailError;
//! /// Sends the welcome mail.
//! #[dtq::task(max_attempts = 5, timeout_ms = 3000)]
//! async fn send_welcome(to: String, lang: Option<String>) -> Result<String, MailError> {
//!     Ok(format!("sent to {to}"))
//! }
//!
//! #[tokio::main]
//! async fn main() -> dtq::Result<()> {
//!     SendWelcome::enqueue("ada@example.com", None).await?;
//!     SendWelcome::enqueue("bob@example.com", Some("fr".into()))
//!         .priority(9)
//!         .delay(Duration::from_secs(60))
//!         .idempotency_key("welcome:42")
//!         .await?;
//!     dtq::run().await
//! }
//! # }
//! ```
//!
//! Where tasks live is said by a URL alone: `DTQ_URL=sqlite:dtq.db` needs nothing installed,
//! `DTQ_URL=redis://localhost:6379` serves a fleet.
//!
//! Where to start: [`task`](macro@task) for what the attribute takes, [`Enqueue`] for what a call
//! may say, [`Worker`] for running tasks, [`TaskError`] for which errors retry, and the [`guide`].

// A build without any store has nothing that would use most of the code.
#![cfg_attr(not(any(feature = "redis", feature = "sqlite")), allow(dead_code, unused_variables))]

mod blocking;
mod classify;
mod client;
mod config;
mod context;
mod enqueue;
mod error;
mod events;
mod executor;
mod fetch;
mod finite;
mod flight;
mod handle;
mod id;
pub mod inspect;
mod io;
mod loops;
mod migrate;
#[cfg(feature = "__planted_bugs")]
mod planted;
mod registry;
mod retry;
mod signals;
mod status;
mod store;
mod task;
mod task_error;
#[cfg(feature = "testing")]
pub mod testing;
mod wire;
mod worker;

pub mod guide;

#[doc(hidden)]
pub mod __private;

pub use client::{Client, ClientBuilder, set_default_client};
pub use config::{Config, ConfigBuilder, ConfigError, ConfigProblem, UnknownTask};
pub use context::Context;
pub use dtq_macros::{Retryable, task};
pub use enqueue::{Enqueue, EnqueueAllError, EnqueueError, Json, RawTask, Sending};
pub use error::{Error, Result, StartError};
pub use events::{Event, EventKind, Events};
pub use handle::{CancelError, Cancelled, Handle, TaskFailure};
pub use id::{InvalidTaskId, TaskId};
pub use migrate::{Deployment, Migrate, MigrateError, Migrated, migrate};
pub use registry::registry;
pub use retry::{InvalidPolicy, RetryPolicy};
pub use status::{IllegalMove, Status, UnknownStatus};
pub use store::StoreError;
pub use task::{Backoff, Definition, EncodeError, Options, StateNeed, Task};
pub use task_error::{IntoTaskError, Mark, Marked, TaskError};
pub use worker::{Worker, WorkerBuilder, WorkerHandle, run};
