//! Shutting down (SPEC 7.8): stop fetching, wait for what runs, give back the rest, sign off.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::crew::Crew;
use crate::flight::{Flights, Stop, after};

/// How long the store is waited for once the drain is over: for giving back and signing off.
const LAST_WORDS: Duration = Duration::from_millis(1000);

/// Asks a worker to shut down.
#[derive(Debug, Clone)]
pub(crate) struct Stopper(watch::Sender<Stage>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Running,
    Stopped,
    /// As if its process had been killed: nothing more is said to the store.
    Killed,
}

impl Default for Stopper {
    fn default() -> Self {
        Self(watch::Sender::new(Stage::Running))
    }
}

impl Stopper {
    pub(crate) fn stop(&self) {
        self.reach(Stage::Stopped);
    }

    /// Ends it without a word, as a test wants it.
    #[cfg(feature = "testing")]
    pub(crate) fn kill(&self) {
        self.reach(Stage::Killed);
    }

    fn reach(&self, stage: Stage) {
        self.0.send_if_modified(|at| {
            let further = *at < stage;
            *at = (*at).max(stage);
            further
        });
    }

    pub(crate) fn is_stopped(&self) -> bool {
        *self.0.borrow() >= Stage::Stopped
    }

    pub(crate) async fn stopped(&self) {
        let _ = self.0.subscribe().wait_for(|at| *at >= Stage::Stopped).await;
    }

    pub(crate) async fn killed(&self) {
        let _ = self.0.subscribe().wait_for(|at| *at == Stage::Killed).await;
    }
}

/// Whoever drops it wants the worker to stop.
pub(super) struct StopOnDrop(pub(super) Stopper);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Waits for what runs, gives back the rest, and signs off, if the store answers: all of it by the
/// drain timeout and a last word. The other loops go on meanwhile, so that no lease is lost.
pub(crate) async fn shut_down(crew: &Arc<Crew>, mut fetching: JoinHandle<()>) {
    let began = Instant::now();
    let deadline = after(crew.config.drain_timeout);
    // It ends by itself: a fetch that is under way is waited for, since what it leased must not be lost.
    if timeout_at(deadline, &mut fetching).await.is_err() {
        fetching.abort();
    }
    if timeout_at(deadline, emptied(&crew.flights)).await.is_err() {
        let rest = crew.flights.unfinished();
        tracing::warn!(tasks = rest.len(), after = ?began.elapsed(), "giving back what still runs");
        for flight in rest {
            crew.stop_flight(&flight, Stop::Release);
        }
    }
    // Futures are dropped at once; blocking bodies are not waited for, their leases lapse.
    let words = futures_util::future::join(emptied(&crew.flights), sign_off(crew));
    if timeout_at(after(LAST_WORDS), words).await.is_err() {
        tracing::warn!("not everything could be said to the store: leases that are left lapse");
    }
}

async fn sign_off(crew: &Crew) {
    let _ = crew.store.step_down(&crew.holder.worker_id).await;
    let _ = crew.store.deregister(&crew.holder).await;
}

/// Waits until every outcome is confirmed.
async fn emptied(flights: &Flights) {
    loop {
        let freed = flights.freed.notified();
        tokio::pin!(freed);
        freed.as_mut().enable();
        if flights.unfinished().is_empty() {
            return;
        }
        freed.await;
    }
}
