//! dtq's own thread: all I/O with the store runs on it, whatever runtimes come and go around it.
//!
//! One thread serves the whole process, from the first client until the process ends: a client
//! outlives the runtime that made it, a task function that blocks its runtime cannot keep a lease
//! from being renewed, and ten clients cost no more than one. Idle, the thread sleeps.

mod batch;

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) use self::batch::{BatchLimit, Batcher, Batching};
use crate::store::{StoreError, StoreResult};

/// How long a producer's call is repeated while the store is away.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

static IO: OnceLock<Handle> = OnceLock::new();

/// Starts dtq's thread unless it runs. Whoever makes a client or a worker calls it, so that being
/// out of threads or file descriptors is an error there and not a panic later.
fn start() -> io::Result<Handle> {
    // Two that start at once must not start two threads.
    static STARTING: Mutex<()> = Mutex::new(());
    if let Some(handle) = IO.get() {
        return Ok(handle.clone());
    }
    let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = IO.get() {
        return Ok(handle.clone());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("dtq-io".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(IO.get_or_init(|| handle).clone())
}

/// Where the I/O of a client and its workers runs: dtq's thread, or that of a test's own clock.
#[derive(Debug, Clone)]
pub(crate) struct Io {
    handle: Handle,
    pending: Option<Arc<Pending>>,
}

/// What is awaited of a test's thread, whose clock moves on only for a reason.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Calls to the store: they may be pausing before they are repeated.
    pub(crate) calls: AtomicUsize,
    /// Those who wait for a task to end.
    pub(crate) waits: AtomicUsize,
    /// Told of each that begins.
    pub(crate) began: Notify,
}

/// Counts as pending until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    pending: Arc<Pending>,
    which: fn(&Pending) -> &AtomicUsize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.which)(&self.pending).fetch_sub(1, Ordering::AcqRel);
    }
}

impl Io {
    /// dtq's own thread, started unless it runs.
    pub(crate) fn start() -> StoreResult<Self> {
        match start() {
            Ok(handle) => Ok(Self { handle, pending: None }),
            Err(error) => {
                Err(StoreError::Failed(format!("dtq's own thread could not be started: {error}")))
            }
        }
    }

    #[cfg(feature = "testing")]
    pub(crate) fn of_test(handle: Handle, pending: Arc<Pending>) -> Self {
        Self { handle, pending: Some(pending) }
    }

    /// Its runtime's context, for what spawns by itself.
    pub(crate) fn enter(&self) -> tokio::runtime::EnterGuard<'_> {
        self.handle.enter()
    }

    /// Spawns from any thread; the `JoinHandle` may be awaited on any runtime.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.handle.spawn(work)
    }

    /// Runs `work` there and waits for it, from any runtime or none. It goes on if the caller gives
    /// up.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = StoreResult<T>> + Send + 'static,
    ) -> StoreResult<T> {
        let _call = self.call();
        match self.spawn(work).await {
            Ok(result) => result,
            Err(error) => Err(StoreError::Failed(format!("a call did not end: {error}"))),
        }
    }

    /// A call to the store is under way until what this returns is dropped.
    pub(crate) fn call(&self) -> Option<Counted> {
        self.count(|pending| &pending.calls)
    }

    /// Somebody waits for a task until what this returns is dropped.
    pub(crate) fn wait(&self) -> Option<Counted> {
        self.count(|pending| &pending.waits)
    }

    fn count(&self, which: fn(&Pending) -> &AtomicUsize) -> Option<Counted> {
        let pending = Arc::clone(self.pending.as_ref()?);
        which(&pending).fetch_add(1, Ordering::AcqRel);
        pending.began.notify_one();
        Some(Counted { pending, which })
    }
}

/// Waits for a future that makes its progress on dtq's thread. Blocks the calling thread and
/// needs no runtime, so that it works inside one, also a current-thread one.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Capped, jittered pauses, and log lines that do not fill a disk during a long outage.
#[derive(Debug)]
pub(crate) struct Outage {
    what: &'static str,
    /// Producers are told by the error; workers, which never give up, by the log.
    logs: bool,
    failures: u32,
    since: Instant,
    pause: Duration,
}

impl Outage {
    pub(crate) fn new(what: &'static str, logs: bool) -> Self {
        Self { what, logs, failures: 0, since: Instant::now(), pause: FIRST_PAUSE }
    }

    /// A failure: how long to wait before the next try.
    pub(crate) fn failed(&mut self, error: &StoreError) -> Duration {
        if self.failures == 0 {
            self.since = Instant::now();
        }
        self.failures = self.failures.saturating_add(1);
        // The first, the second, the fourth...
        if self.logs && self.failures.is_power_of_two() {
            let (what, failures) = (self.what, self.failures);
            tracing::warn!(what, failures, %error, "the store is away, trying again");
        }
        let pause = self.pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        pause
    }

    /// A success: the outage, if there was one, is over.
    pub(crate) fn over(&mut self) {
        if self.logs && self.failures > 0 {
            let (what, failures, away) = (self.what, self.failures, self.since.elapsed());
            tracing::info!(what, failures, ?away, "the store is back");
        }
        (self.failures, self.pause) = (0, FIRST_PAUSE);
    }
}

/// Whether a call that failed with `error` is repeated. Workers repeat whatever may pass; a
/// producer that is refused for want of room is told at once, since only it knows what can wait.
fn may_pass(error: &StoreError, patience: Option<Duration>) -> bool {
    match error {
        StoreError::Refused(_) => patience.is_none(),
        error => error.is_transient(),
    }
}

/// Repeats `call` while the store is away, with capped and jittered pauses: until `patience` is
/// over, or for ever. What cannot pass is returned at once.
///
/// Repeating is safe: every operation is known by the ids that the caller made (SPEC 4.7).
pub(crate) async fn retrying<T, F: Future<Output = StoreResult<T>>>(
    what: &'static str,
    patience: Option<Duration>,
    mut call: impl FnMut() -> F,
) -> StoreResult<T> {
    let started = Instant::now();
    let mut outage = Outage::new(what, patience.is_none());
    loop {
        match call().await {
            Ok(value) => {
                outage.over();
                return Ok(value);
            }
            Err(error) if may_pass(&error, patience) => {
                let pause = outage.failed(&error);
                if patience.is_some_and(|patience| started.elapsed() + pause > patience) {
                    return Err(error);
                }
                tokio::time::sleep(pause).await;
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away() -> StoreError {
        StoreError::Unavailable("away".to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn spec_7_retrying_stops_at_what_cannot_pass() {
        let mut calls = 0;
        let result = retrying("test", None, || {
            calls += 1;
            let failed = StoreError::Failed("broken".to_owned());
            std::future::ready(Err::<(), _>(if calls < 20 { away() } else { failed }))
        })
        .await;
        assert!(matches!(result, Err(StoreError::Failed(_))));
        assert_eq!(calls, 20);
    }

    #[tokio::test(start_paused = true)]
    async fn spec_7_a_producer_gives_up_when_its_patience_is_over_a_worker_never() {
        let started = Instant::now();
        let result = retrying("test", Some(PATIENCE), async || Err::<(), _>(away())).await;
        assert!(matches!(result, Err(StoreError::Unavailable(_))));
        let waited = started.elapsed();
        assert!(waited <= PATIENCE && waited > PATIENCE / 2, "{waited:?}");

        let started = Instant::now();
        let mut calls = 0;
        retrying("test", None, || {
            calls += 1;
            let is_away = started.elapsed() < Duration::from_secs(300);
            std::future::ready(if is_away { Err(away()) } else { Ok(()) })
        })
        .await
        .unwrap();
        assert!((100..400).contains(&calls), "{calls} tries in a five minute outage");
    }

    #[tokio::test(start_paused = true)]
    async fn c30_a_producer_that_is_refused_for_want_of_room_is_told_at_once() {
        let full = || StoreError::Refused("OOM".to_owned());
        let started = Instant::now();
        let result = retrying("test", Some(PATIENCE), async || Err::<(), _>(full())).await;
        assert!(matches!(result, Err(StoreError::Refused(_))));
        assert_eq!(started.elapsed(), Duration::ZERO);
    }

    #[test]
    fn spec_7_blocking_works_without_a_runtime_and_inside_any() {
        let io = Io::start().unwrap();
        let answer = || block_on(io.run(async { Ok(42) })).unwrap();
        assert_eq!(answer(), 42);
        let inside = |mut builder: tokio::runtime::Builder| {
            builder.build().unwrap().block_on(async { answer() })
        };
        assert_eq!(inside(tokio::runtime::Builder::new_current_thread()), 42);
        assert_eq!(inside(tokio::runtime::Builder::new_multi_thread()), 42);
    }

    #[test]
    fn c30c_one_thread_serves_runtimes_that_come_and_go() {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                std::thread::spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    let io = Io::start().unwrap();
                    runtime.block_on(io.run(async { Ok(std::thread::current().id()) })).unwrap()
                })
            })
            .collect();
        let ids: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(ids.iter().all(|id| *id == ids[0]));
    }
}
