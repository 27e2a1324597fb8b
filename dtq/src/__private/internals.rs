//! Doors for dtq's own benches, counts and fuzz targets (feature `__internals`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::client::Client;
use crate::context::{CancelFlag, Context, Inner};
use crate::id::TaskId;
use crate::task::{Execution, States};

/// What stays the same from one execution to the next.
pub struct Bench {
    client: Client,
    states: Arc<States>,
    id: TaskId,
    cancelled: Arc<CancelFlag>,
}

impl Bench {
    /// The client is only handed on.
    pub fn new(client: Client) -> Self {
        let (states, cancelled) = Default::default();
        Self { client, states, id: TaskId::new(0), cancelled }
    }

    /// What the executor makes for one attempt.
    pub fn execution(&self, payload: &Bytes) -> Execution {
        let context = Inner {
            task_id: self.id,
            attempt: 1,
            max_attempts: 5,
            queue: "default".to_owned(),
            worker_id: "worker-01234567".to_owned(),
            deadline: Instant::now() + Duration::from_secs(30),
            idempotency_key: None,
            metadata: None,
            cancelled: Arc::clone(&self.cancelled),
            client: self.client.clone(),
        };
        Execution {
            payload: payload.clone(),
            context: Context(Arc::new(context)),
            states: Arc::clone(&self.states),
        }
    }
}
