//! What the loops and the attempts of one worker share.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle as Runtime;
use tokio::sync::Notify;

use super::shutdown::Stopper;
use crate::blocking::Pool;
use crate::client::Client;
use crate::config::{Config, QueueChoice, millis};
use crate::executor;
use crate::flight::{Flight, Flights, Stop};
use crate::id::TaskId;
use crate::io::{BatchLimit, Batcher, Batching, Io};
use crate::registry::Lookup;
use crate::store::{
    Finish, Finished, Heartbeat, Holder, KeptResult, Leased, Millis, Outcome, Store,
};
use crate::task::States;

/// What one finishing call carries.
const FINISH_LIMIT: BatchLimit = BatchLimit { count: 256, bytes: 4 << 20 };

/// How far a notice may be ahead of the reply that it is about.
const OVERTAKEN: Duration = Duration::from_millis(30);

/// Everything that the loops and the attempts of one worker share.
pub(crate) struct Crew {
    pub(crate) config: Config,
    pub(crate) client: Client,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) holder: Holder,
    pub(crate) lookup: Lookup,
    pub(crate) states: Arc<States>,
    /// Where async task functions run.
    pub(crate) runtime: Runtime,
    pub(crate) pool: Pool,
    pub(crate) flights: Flights,
    pub(crate) choices: Vec<QueueChoice>,
    pub(crate) concurrency: usize,
    pub(crate) stop: Stopper,
    pub(super) finishes: Batcher<Finish, Finished>,
    /// Leases are to be looked at before their time: a notice may have been missed.
    pub(crate) renew_now: Notify,
}

/// Writes outcomes in batches, repeated for ever while the store is away: the leases that they name
/// are renewed until they are confirmed.
pub(super) fn finisher(
    io: &Io,
    store: Arc<dyn Store>,
    holder: Holder,
) -> Batcher<Finish, Finished> {
    let batching = Batching {
        what: "writing outcomes",
        limit: FINISH_LIMIT,
        weigh: |finish: &Finish| {
            let bytes = match &finish.outcome {
                Outcome::Succeeded { result: KeptResult::Json(json) } => json.len(),
                _ => 0,
            };
            (1, 256 + bytes)
        },
        patience: None,
    };
    Batcher::new(io, batching, move |batch| {
        let (store, holder) = (Arc::clone(&store), holder.clone());
        Box::pin(async move { store.finish(&holder, batch).await })
    })
}

impl Crew {
    pub(crate) fn visibility(&self) -> Millis {
        millis(self.config.visibility_timeout)
    }

    pub(crate) fn heartbeat(&self) -> Heartbeat {
        Heartbeat {
            holder: self.holder.clone(),
            queues: self.choices.iter().map(|choice| choice.name.clone()).collect(),
            concurrency: self.concurrency,
            in_flight: self.flights.in_flight(),
            interval: millis(self.config.heartbeat_interval()).max(1),
            pid: std::process::id(),
            host: host_name(),
        }
    }

    /// A cancel was requested for a task of this worker.
    pub(crate) fn cancel(self: &Arc<Self>, id: TaskId) {
        let flights = self.flights.of_task(id);
        for flight in &flights {
            self.stop_flight(flight, Stop::Cancelled);
        }
        if flights.is_empty() {
            // It ended meanwhile, or the notice overtook the reply of the fetch: then the renewal
            // brings it again.
            let crew = Arc::clone(self);
            self.client.io().spawn(async move {
                tokio::time::sleep(OVERTAKEN).await;
                if !crew.flights.of_task(id).is_empty() {
                    crew.renew_now.notify_one();
                }
            });
        }
    }

    /// Writes the outcome unless somebody else has taken that on; without one, forgets the task.
    pub(crate) fn conclude(self: &Arc<Self>, flight: &Arc<Flight>, outcome: Option<Outcome>) {
        if flight.conclude() {
            match outcome {
                Some(outcome) => self.finish(flight, outcome),
                None => self.flights.remove(flight),
            }
        }
    }

    /// Hands the outcome to the batcher; the task is in flight until it is confirmed.
    fn finish(self: &Arc<Self>, flight: &Arc<Flight>, outcome: Outcome) {
        executor::log(&flight.leased, &outcome);
        self.flights.finishing();
        let item = Finish { lease: flight.lease().clone(), outcome };
        let (crew, flight) = (Arc::clone(self), Arc::clone(flight));
        self.finishes.submit_then(item, move |confirmed| {
            let lease = flight.lease();
            match confirmed {
                Ok(Finished::Applied(_) | Finished::Already) => {}
                Ok(Finished::Lost) => tracing::warn!(
                    task_id = %lease.id, attempt = lease.attempt,
                    "the lease was lost before the outcome was written: nothing changed"
                ),
                Err(error) => tracing::error!(
                    task_id = %lease.id, attempt = lease.attempt, %error,
                    "the outcome could not be written: the task is redelivered when its lease lapses"
                ),
            }
            crew.flights.finished(&flight);
        });
    }

    /// Hands back what was fetched and not begun.
    pub(crate) async fn give_back(&self, leased: Vec<Leased>) {
        let written = leased.into_iter().map(|leased| {
            self.finishes.submit(Finish { lease: leased.lease, outcome: Outcome::Released })
        });
        futures_util::future::join_all(written.collect::<Vec<_>>()).await;
    }
}

pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    name.trim().chars().filter(|c| !c.is_control()).take(255).collect()
}
