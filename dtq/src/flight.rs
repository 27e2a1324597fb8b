//! Leased tasks between fetch and confirmed finish: who runs, since when, and what is to stop.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::context::CancelFlag;
use crate::id::TaskId;
use crate::store::{Lease, Leased};
use crate::task::Definition;

/// How long past its deadline a body that cannot be stopped keeps its lease (SPEC 7.6).
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// Why a body is to be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stop {
    Cancelled = 1,
    TimedOut = 2,
    /// The lease is another's, or nobody's: whatever the body does, nothing is written.
    Lost = 3,
    /// The worker shuts down.
    Release = 4,
}

/// Whether a body has begun: decided once, by the body itself or by who takes the task from it.
const NEW: u8 = 0;
const BEGUN: u8 = 1;
const WITHDRAWN: u8 = 2;

/// One leased task.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) leased: Leased,
    /// `None`: a type that this worker does not know.
    pub(crate) definition: Option<&'static Definition>,
    pub(crate) timeout: Duration,
    /// 0, or the first [`Stop`] that was said.
    stop: AtomicU8,
    phase: AtomicU8,
    /// Seen by the task function; woken with it is who waits to drop the body.
    pub(crate) flag: Arc<CancelFlag>,
    /// Who writes the outcome: the body that ended, or dtq's thread without it. One alone.
    concluded: AtomicBool,
    started: OnceLock<Instant>,
    /// The body has returned, was dropped, or never was; read and written under the lock of
    /// [`Flights`].
    body_gone: AtomicBool,
}

impl Flight {
    fn new(leased: Leased, definition: Option<&'static Definition>) -> Self {
        Self {
            timeout: Duration::from_millis(leased.timeout).min(NEVER),
            leased,
            definition,
            stop: AtomicU8::new(0),
            phase: AtomicU8::new(NEW),
            flag: Arc::default(),
            concluded: AtomicBool::new(false),
            started: OnceLock::new(),
            body_gone: AtomicBool::new(false),
        }
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.leased.lease
    }

    fn key(&self) -> (TaskId, u64) {
        (self.lease().id, self.lease().number)
    }

    /// The body asks to begin; `false`: the task was withdrawn, and it must not.
    pub(crate) fn begin(&self) -> bool {
        self.decide(BEGUN)
    }

    /// Takes the task from a body that has not begun (its runtime may be blocked); `false`: it has.
    pub(crate) fn withdraw(&self) -> bool {
        self.decide(WITHDRAWN)
    }

    fn decide(&self, phase: u8) -> bool {
        self.phase.compare_exchange(NEW, phase, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Says why the body is to be dropped; the first word counts.
    pub(crate) fn stop(&self, why: Stop) {
        let first = self.stop.compare_exchange(0, why as u8, Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() {
            self.flag.set();
        }
    }

    pub(crate) fn stopped(&self) -> Option<Stop> {
        match self.stop.load(Ordering::Acquire) {
            1 => Some(Stop::Cancelled),
            2 => Some(Stop::TimedOut),
            3 => Some(Stop::Lost),
            4 => Some(Stop::Release),
            _ => None,
        }
    }

    /// Waits until the body is to be dropped.
    pub(crate) async fn to_stop(&self) -> Stop {
        loop {
            self.flag.wait().await;
            if let Some(why) = self.stopped() {
                return why;
            }
        }
    }

    /// Takes the right to write the outcome; whoever gets `true` must.
    pub(crate) fn conclude(&self) -> bool {
        !self.concluded.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_concluded(&self) -> bool {
        self.concluded.load(Ordering::Acquire)
    }
}

/// Longer than any process lives, and short enough for every clock.
const NEVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// That span from now. One that is beyond what clocks tell never comes, rather than overflows (C4).
pub(crate) fn after(span: Duration) -> Instant {
    Instant::now() + span.min(NEVER)
}

/// Every task that this worker holds.
#[derive(Debug)]
pub(crate) struct Flights {
    state: Mutex<State>,
    /// Told when a slot becomes free, and when the last one does.
    pub(crate) freed: Notify,
    /// Told when the next deadline comes earlier than the timers know.
    earlier: Notify,
    /// Outcomes that are handed in and not confirmed.
    finishing: AtomicUsize,
    concurrency: usize,
}

#[derive(Debug, Default)]
struct State {
    /// By id and lease number: a task may be fetched anew while an old body of it still spins.
    all: HashMap<(TaskId, u64), Arc<Flight>>,
    /// What is to happen when: the flag says whether the body gets its grace first.
    deadlines: BTreeMap<(Instant, TaskId, u64), Arc<Flight>>,
    /// Bodies that went on when their outcome was written without them.
    overdue: HashSet<(TaskId, u64)>,
}

impl Flights {
    pub(crate) fn new(concurrency: usize) -> Self {
        Self {
            state: Mutex::default(),
            freed: Notify::new(),
            earlier: Notify::new(),
            finishing: AtomicUsize::new(0),
            concurrency,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn in_flight(&self) -> usize {
        let state = self.lock();
        state.all.len() + state.overdue.len()
    }

    /// Waits while outcomes are on their way and less than half of the slots are free.
    pub(crate) async fn settled(&self) {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let finishing = self.finishing.load(Ordering::Acquire);
            if finishing == 0 || self.free() * 2 >= self.concurrency {
                return;
            }
            freed.await;
        }
    }

    /// The outcome is handed in, to be confirmed.
    pub(crate) fn finishing(&self) {
        self.finishing.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn finished(&self, flight: &Flight) {
        self.finishing.fetch_sub(1, Ordering::AcqRel);
        self.remove(flight);
    }

    /// Whether a task function without `async` runs.
    #[cfg(feature = "testing")]
    pub(crate) fn any_blocking(&self) -> bool {
        let blocking = |flight: &Arc<Flight>| {
            let run = flight.definition.map(|definition| definition.run);
            matches!(run, Some(crate::task::Run::Blocking(_)))
                && !flight.body_gone.load(Ordering::Acquire)
        };
        self.lock().all.values().any(blocking)
    }

    pub(crate) fn free(&self) -> usize {
        self.concurrency.saturating_sub(self.in_flight())
    }

    /// Tasks whose outcome is not confirmed.
    pub(crate) fn unfinished(&self) -> Vec<Arc<Flight>> {
        self.lock().all.values().cloned().collect()
    }

    pub(crate) fn of_task(&self, id: TaskId) -> Vec<Arc<Flight>> {
        let state = self.lock();
        state.all.values().filter(|flight| flight.lease().id == id).cloned().collect()
    }

    /// Whether an earlier body of the task, which could not be stopped, still runs here.
    pub(crate) fn is_overdue(&self, id: TaskId) -> bool {
        self.lock().overdue.iter().any(|(other, _)| *other == id)
    }

    /// Waits until no earlier body of the task runs here.
    pub(crate) async fn alone(&self, id: TaskId) {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if !self.is_overdue(id) {
                return;
            }
            freed.await;
        }
    }

    pub(crate) fn add(
        &self,
        leased: Leased,
        definition: Option<&'static Definition>,
    ) -> Arc<Flight> {
        let flight = Arc::new(Flight::new(leased, definition));
        self.lock().all.insert(flight.key(), Arc::clone(&flight));
        flight
    }

    /// The body begins: its time runs.
    pub(crate) fn start(&self, flight: &Arc<Flight>) -> Instant {
        let deadline = *flight.started.get_or_init(Instant::now) + flight.timeout;
        self.schedule(flight, deadline);
        deadline
    }

    fn schedule(&self, flight: &Arc<Flight>, at: Instant) {
        let mut state = self.lock();
        let first = state.deadlines.first_key_value().is_none_or(|((first, ..), _)| at < *first);
        let (id, number) = flight.key();
        state.deadlines.insert((at, id, number), Arc::clone(flight));
        drop(state);
        if first {
            self.earlier.notify_one();
        }
    }

    /// The outcome is confirmed, or there is none to write. The slot is free, unless the body goes on.
    pub(crate) fn remove(&self, flight: &Flight) {
        let key = flight.key();
        let mut state = self.lock();
        let gone = state.all.remove(&key).is_some();
        if gone && !flight.body_gone.load(Ordering::Acquire) {
            state.overdue.insert(key);
        }
        if let Some(started) = flight.started.get() {
            for late in [Duration::ZERO, GRACE] {
                state.deadlines.remove(&(*started + flight.timeout + late, key.0, key.1));
            }
        }
        drop(state);
        self.freed.notify_waiters();
    }

    /// The body has returned, was dropped, or will never be.
    pub(crate) fn body_gone(&self, flight: &Flight) {
        let mut state = self.lock();
        flight.body_gone.store(true, Ordering::Release);
        let was_overdue = state.overdue.remove(&flight.key());
        drop(state);
        if was_overdue {
            self.freed.notify_waiters();
        }
    }

    /// Strikes deadlines as they come, for ever: at the timeout the body is told to stop; one that
    /// has not by the end of its grace is given to `abandon`, to be finished without it.
    pub(crate) async fn strike(&self, abandon: impl Fn(Arc<Flight>)) {
        loop {
            let earlier = self.earlier.notified();
            let first = self.lock().deadlines.first_key_value().map(|((at, ..), _)| *at);
            match first {
                None => {
                    earlier.await;
                    continue;
                }
                Some(at) if at > Instant::now() => {
                    tokio::select! {
                        () = tokio::time::sleep_until(at) => {}
                        () = earlier => {}
                    }
                    continue;
                }
                Some(_) => {}
            }
            let Some((_, flight)) = self.lock().deadlines.pop_first() else { continue };
            if flight.is_concluded() {
                continue;
            }
            // What is past its grace has had its timeout struck before.
            let past_grace =
                flight.started.get().is_some_and(|s| s.elapsed() >= flight.timeout + GRACE);
            if past_grace && flight.stopped().is_some() {
                abandon(flight);
            } else {
                flight.stop(Stop::TimedOut);
                // Counted from the start, however late the timeout was struck.
                let started = flight.started.get().copied();
                self.schedule(
                    &flight,
                    started.map_or(after(GRACE), |at| at + flight.timeout + GRACE),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leased(number: u64) -> Leased {
        Leased {
            lease: Lease {
                id: TaskId::new(0),
                queue: "default".to_owned(),
                priority: 5,
                attempt: 1,
                number,
                entry: "1-0".to_owned(),
            },
            name: "work".to_owned(),
            payload: bytes::Bytes::new(),
            max_attempts: 3,
            timeout: 1000,
            idempotency_key: None,
            metadata: None,
            result_max_bytes: None,
            unknown_since: None,
            now: 0,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn spec_5_1_what_is_confirmed_leaves_nothing_behind() {
        let flights = Flights::new(2);
        for number in 0..100 {
            let flight = flights.add(leased(number), None);
            assert!(flight.begin());
            flights.start(&flight);
            flights.body_gone(&flight);
            flights.remove(&flight);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let state = flights.lock();
        assert_eq!((state.all.len(), state.deadlines.len(), state.overdue.len()), (0, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn spec_7_6_a_timeout_is_struck_to_the_millisecond_and_the_grace_counts_from_it() {
        let flights = Flights::new(1);
        let flight = flights.add(leased(1), None);
        let began = Instant::now();
        assert!(flight.begin());
        flights.start(&flight);
        let abandoned = Mutex::new(None);
        let strike = flights.strike(|_| *abandoned.lock().unwrap() = Some(began.elapsed()));
        let stopped = async {
            assert_eq!(flight.to_stop().await, Stop::TimedOut);
            assert_eq!(began.elapsed(), Duration::from_millis(1000));
            tokio::time::sleep(GRACE + Duration::from_millis(5)).await;
        };
        tokio::select! {
            () = strike => unreachable!("it goes on for ever"),
            () = stopped => {}
        }
        assert_eq!(*abandoned.lock().unwrap(), Some(Duration::from_millis(1000) + GRACE));
        // Written without the body, whose slot stays taken until it returns.
        flights.remove(&flight);
        assert_eq!((flights.free(), flights.is_overdue(flight.lease().id)), (0, true));
        flights.body_gone(&flight);
        assert_eq!((flights.free(), flights.is_overdue(flight.lease().id)), (1, false));
    }

    #[test]
    fn spec_7_8_a_task_is_begun_or_withdrawn_and_never_both() {
        let flights = Flights::new(2);
        let (begun, withdrawn) = (flights.add(leased(1), None), flights.add(leased(2), None));
        assert!(begun.begin() && !begun.withdraw());
        assert!(withdrawn.withdraw() && !withdrawn.begin());
    }

    #[test]
    fn c4_absurd_spans_never_come_and_never_overflow() {
        assert!(after(Duration::MAX) > Instant::now() + Duration::from_secs(86_400 * 365));
        let flights = Flights::new(1);
        let mut absurd = leased(1);
        absurd.timeout = u64::MAX;
        let flight = flights.add(absurd, None);
        assert!(flights.start(&flight) > after(Duration::from_secs(86_400 * 365)));
        flights.body_gone(&flight);
        flights.remove(&flight);
        assert_eq!(flights.free(), 1);
    }
}
