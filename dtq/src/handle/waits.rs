//! Waiting for tasks to end: all waiters of a client share one subscription (SPEC 9.7).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::id::TaskId;
use crate::inspect::TaskInfo;
use crate::io;
use crate::store::{Notice, Store, StoreResult};

/// A lost notice costs a waiter this much.
const READ_EVERY: Duration = Duration::from_secs(5);
/// How long a subscription is kept for the next waiter.
const LINGER: Duration = Duration::from_secs(10);
/// How long a waiter puts up with a store that is away.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who waits for what.
pub(crate) struct Waits {
    store: Arc<dyn Store>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<TaskId, Vec<Arc<Notify>>>,
    subscribed: bool,
}

impl Waits {
    pub(crate) fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { store, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The record of the task once it has ended; `None` if there is none. Runs on dtq's thread.
    ///
    /// It subscribes, then reads, and reads again after a notice, a reconnect, and every 5 s: so it
    /// always resolves (C23).
    pub(crate) async fn ended(self: Arc<Self>, id: TaskId) -> StoreResult<Option<TaskInfo>> {
        // Most that is asked for has ended or never was: no subscription for those.
        if let Some(answer) = self.read(id).await? {
            return Ok(answer);
        }
        let waiter = self.wait_for(id);
        loop {
            let watching = || self.store.watch(id);
            let status = io::retrying("watch", Some(PATIENCE), watching).await?;
            if status.is_none_or(|status| status.is_terminal())
                && let Some(answer) = self.read(id).await?
            {
                return Ok(answer);
            }
            let _ = tokio::time::timeout(READ_EVERY, waiter.notify.notified()).await;
        }
    }

    /// `Some` if the task has ended or does not exist.
    async fn read(&self, id: TaskId) -> StoreResult<Option<Option<TaskInfo>>> {
        let reading = || self.store.task(id);
        let task = io::retrying("result", Some(PATIENCE), reading).await?;
        Ok(match task {
            Some(task) if task.status.is_live() => None,
            ended => Some(ended),
        })
    }

    /// Registers a waiter, and subscribes if it is the first.
    fn wait_for(self: &Arc<Self>, id: TaskId) -> Waiter {
        let notify = Arc::new(Notify::new());
        let mut state = self.state();
        state.waiting.entry(id).or_default().push(Arc::clone(&notify));
        if !state.subscribed {
            state.subscribed = true;
            tokio::spawn(listen(Arc::downgrade(self)));
        }
        drop(state);
        Waiter { waits: Arc::clone(self), id, notify }
    }

    /// How many tasks are waited for.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.state().waiting.len()
    }

    fn tell(&self, notice: &Notice) {
        let state = self.state();
        match notice {
            Notice::Ended(id) => {
                state.waiting.get(id).into_iter().flatten().for_each(|n| n.notify_one())
            }
            Notice::Reconnected => state.waiting.values().flatten().for_each(|n| n.notify_one()),
            Notice::Cancel(_) | Notice::DueEarlier => {}
        }
    }
}

/// Passes notices on while anybody waits, and a little longer. Ending the subscription also ends
/// what the store still watches on behalf of waiters that gave up.
async fn listen(waits: Weak<Waits>) {
    let Some(mut notices) = waits.upgrade().map(|waits| waits.store.notices(None)) else { return };
    loop {
        let notice = tokio::time::timeout(LINGER, notices.recv()).await;
        let Some(waits) = waits.upgrade() else { return };
        match notice {
            Ok(Some(notice)) => waits.tell(&notice),
            // The store ends it: waiters go on reading by themselves, the next begins a new one.
            Ok(None) => {
                waits.state().subscribed = false;
                return;
            }
            Err(_) => {
                let mut state = waits.state();
                if state.waiting.is_empty() {
                    state.subscribed = false;
                    return;
                }
            }
        }
    }
}

/// One who waits; leaves the list when it is dropped.
struct Waiter {
    waits: Arc<Waits>,
    id: TaskId,
    notify: Arc<Notify>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = self.waits.state();
        if let Some(waiting) = state.waiting.get_mut(&self.id) {
            waiting.retain(|other| !Arc::ptr_eq(other, &self.notify));
            if waiting.is_empty() {
                state.waiting.remove(&self.id);
            }
        }
    }
}
