//! What a task function may ask about its execution.
use std::sync::Arc;
/// The context of one execution.
#[derive(Debug, Clone)]
pub struct Context(Arc<()>);
