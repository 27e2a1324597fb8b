//! stub
/// stub
#[derive(Debug)]
pub struct TaskError(());
