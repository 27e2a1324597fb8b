//! dtq
mod config;
mod context;
mod id;
pub mod inspect;
mod retry;
mod status;
mod store;
mod task;
mod task_error;
pub use id::{InvalidTaskId, TaskId};
pub use status::{IllegalMove, Status, UnknownStatus};
pub use task::Task;
