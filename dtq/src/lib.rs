//! dtq
pub mod inspect;
mod context;
mod id;
mod status;
mod store;
mod task;
mod task_error;
mod config;
mod retry;
pub use id::{InvalidTaskId, TaskId};
pub use status::{IllegalMove, Status, UnknownStatus};
pub use task::Task;
