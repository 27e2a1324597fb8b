//! Many tasks: chunks of one round trip each (SPEC 6.3).

use std::time::SystemTime;

use super::{Answer, Enqueue, EnqueueError, settle, weigh, weight};
use crate::client::{Client, LIMIT};
use crate::handle::Handle;
use crate::id::TaskId;
use crate::store::{Accepted, NewTask};
use crate::task::Task;

/// Not all tasks were accepted. The chunk that failed was not written, nor was anything after it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{} tasks were accepted, then: {error}", accepted.len())]
#[non_exhaustive]
pub struct EnqueueAllError {
    /// The ids of those that were, in the iterator's order: so the rest begins where this ends.
    pub accepted: Vec<TaskId>,
    /// Why the next chunk was not.
    #[source]
    pub error: EnqueueError,
}

/// A chunk under way.
struct Flying {
    ids: Vec<TaskId>,
    answer: Answer,
}

pub(crate) async fn all<T: Task>(
    client: &Client,
    mut tasks: impl Iterator<Item = Enqueue<T>>,
) -> Result<Vec<Handle<T>>, EnqueueAllError> {
    let mut handles = Vec::new();
    let mut flying: Option<Flying> = None;
    let mut carried = None;
    let _call = client.io().call();
    loop {
        // Encoded while the chunk before is under way.
        let chunk = next_chunk(client, &mut tasks, &mut carried);
        if let Some(Flying { ids, answer }) = flying.take() {
            match settle(answer.await) {
                Ok(accepted) => handles.extend(ids.into_iter().zip(accepted).map(
                    |(id, accepted)| match accepted {
                        Accepted::New => Handle::new(client.clone(), id, false),
                        Accepted::Duplicate(id) => Handle::new(client.clone(), id, true),
                    },
                )),
                Err(error) => return Err(failed(&handles, error)),
            }
        }
        match chunk {
            Ok(chunk) if chunk.is_empty() => return Ok(handles),
            Ok(chunk) => {
                let ids = chunk.iter().map(|task| task.id).collect();
                flying = Some(Flying { ids, answer: client.enqueues().submit(chunk) });
            }
            Err(error) => return Err(failed(&handles, error)),
        }
    }
}

fn failed<T>(handles: &[Handle<T>], error: EnqueueError) -> EnqueueAllError {
    EnqueueAllError { accepted: handles.iter().map(Handle::id).collect(), error }
}

/// As many tasks as fit into one call, checked; none at the end. One that is refused refuses the
/// chunk.
fn next_chunk<T: Task>(
    client: &Client,
    tasks: &mut impl Iterator<Item = Enqueue<T>>,
    carried: &mut Option<NewTask>,
) -> Result<Vec<NewTask>, EnqueueError> {
    let mut chunk: Vec<NewTask> = carried.take().into_iter().collect();
    let mut bytes = weigh(&chunk).1;
    let now = SystemTime::now();
    while chunk.len() < LIMIT.count
        && let Some(enqueue) = tasks.next()
    {
        let task = enqueue.draft.check(client.config(), now)?;
        let more = weight(&task);
        if bytes + more > LIMIT.bytes && !chunk.is_empty() {
            *carried = Some(task);
            break;
        }
        bytes += more;
        chunk.push(task);
    }
    Ok(chunk)
}
