//! The worker's loops on dtq's own thread: fetch, renew, heartbeat, schedule, reap, listen, strike
//! timeouts. One that fails is logged, backs off, and goes on; one that panics is started again.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::fetch;
use crate::flight::Stop;
use crate::store::{Claim, Notice, Renewed, StoreError, StoreResult, log_notes};
use crate::worker::{Crew, shut_down};

/// What one pass of the scheduler claims, and of the reaper takes (SPEC 8.2).
const BATCH: usize = 100;
/// The leader looks at least this often.
const LONGEST_SLEEP: Duration = Duration::from_millis(1000);
/// A follower asks again at least this often, so that a leader that stepped down is followed soon.
const FOLLOW: Duration = Duration::from_millis(2000);
/// The reaper looks at least this often.
const REAP_EVERY: Duration = Duration::from_secs(5);
const STALE_CLAIM_MS: u64 = 60_000;
const STALE_EVERY: Duration = Duration::from_secs(15);
const MAINTAIN_EVERY: Duration = Duration::from_secs(60);

/// What the loops tell each other.
#[derive(Default)]
pub(crate) struct Signals {
    /// Something is due earlier than the leader sleeps for.
    due_earlier: Notify,
}

/// Runs a worker until it is stopped, then drains it.
pub(crate) async fn run(crew: Arc<Crew>) -> StoreResult<()> {
    let signals = Arc::new(Signals::default());
    let fatal = Arc::new(std::sync::Mutex::new(None));
    let keep =
        |name: &'static str,
         make: fn(Arc<Crew>, Arc<Signals>) -> BoxFuture<'static, StoreResult<()>>| {
            let (crew, signals, fatal) =
                (Arc::clone(&crew), Arc::clone(&signals), Arc::clone(&fatal));
            tokio::spawn(async move {
                let again = || make(Arc::clone(&crew), Arc::clone(&signals));
                if let Err(error) = kept(name, again).await {
                    tracing::error!(name, %error, "the store cannot be worked with: the worker stops");
                    if let Ok(mut slot) = fatal.lock() {
                        slot.get_or_insert(error);
                    }
                    crew.stop.stop();
                }
            })
        };
    let background = [
        keep("renew", |crew, _| renew(crew).boxed()),
        keep("heartbeat", |crew, _| heartbeat(crew).boxed()),
        keep("scheduler", |crew, signals| schedule(crew, signals).boxed()),
        keep("reaper", |crew, _| reap(crew).boxed()),
        keep("notices", |crew, signals| listen(crew, signals).boxed()),
        keep("timeouts", |crew, _| strike(crew).boxed()),
    ];
    let fetching = keep("fetch", |crew, _| fetch::run(crew).boxed());
    crew.stop.stopped().await;
    tracing::info!(worker_id = crew.holder.worker_id, "worker shuts down");
    let fetching_ends = fetching.abort_handle();
    tokio::select! {
        biased;
        () = crew.stop.killed() => {
            fetching_ends.abort();
            for flight in crew.flights.unfinished() {
                crew.stop_flight(&flight, Stop::Lost);
            }
        }
        () = shut_down(&crew, fetching) => {}
    }
    for task in background {
        task.abort();
    }
    tracing::info!(worker_id = crew.holder.worker_id, "worker stopped");
    let fatal = fatal.lock().map(|mut slot| slot.take()).unwrap_or_default();
    fatal.map_or(Ok(()), Err)
}

/// Keeps a loop going: a failure is logged and retried after a growing pause, a panic starts it
/// anew. Only what no waiting can mend ends it.
async fn kept(
    name: &'static str,
    make: impl Fn() -> BoxFuture<'static, StoreResult<()>>,
) -> StoreResult<()> {
    let mut failures = 0u32;
    let mut last = Instant::now();
    loop {
        let once = std::panic::AssertUnwindSafe(make());
        let error = match once.catch_unwind().await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error @ StoreError::Incompatible(_))) => return Err(error),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it panicked".to_owned(),
        };
        if last.elapsed() > Duration::from_secs(60) {
            failures = 0;
        }
        last = Instant::now();
        failures += 1;
        // At the first failure and then ever more rarely: an outage must not fill a disk.
        if failures.is_power_of_two() {
            tracing::warn!(name, failures, error, "a loop of the worker failed and goes on");
        }
        let pause = Duration::from_millis(50 * (1 << failures.min(6)));
        tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
    }
}

/// Extends the leases of everything whose finish is not confirmed, also while draining.
async fn renew(crew: Arc<Crew>) -> StoreResult<()> {
    let every = crew.config.visibility_timeout / 3;
    let mut next = Instant::now() + every;
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = crew.renew_now.notified() => {}
        }
        #[cfg(feature = "__planted_bugs")]
        if crate::planted::is(crate::planted::NO_RENEWAL_WHILE_DRAINING) && crew.stop.is_stopped() {
            return std::future::pending().await;
        }
        let flights = crew.flights.unfinished();
        if !flights.is_empty() {
            let leases: Vec<_> = flights.iter().map(|flight| flight.lease().clone()).collect();
            let renewing = crew.store.renew(&crew.holder, crew.visibility(), &leases);
            let answers = match renewing.await {
                Ok(answers) => answers,
                Err(error) => {
                    // Soon again, not a third of the visibility timeout later.
                    next = Instant::now() + (every / 10).min(Duration::from_millis(500));
                    if error.is_transient() {
                        continue;
                    }
                    return Err(error);
                }
            };
            for (flight, answer) in flights.iter().zip(answers) {
                match answer {
                    Renewed::Held => {}
                    Renewed::CancelRequested => crew.stop_flight(flight, Stop::Cancelled),
                    // Once its outcome is on its way, that it is not running any more is no news.
                    Renewed::Lost if flight.is_concluded() => {}
                    Renewed::Lost => {
                        let lease = flight.lease();
                        tracing::warn!(
                            task_id = %lease.id, attempt = lease.attempt,
                            "the lease was lost: the task is dropped here"
                        );
                        crew.stop_flight(flight, Stop::Lost);
                    }
                }
            }
        }
        next = Instant::now() + every;
    }
}

async fn heartbeat(crew: Arc<Crew>) -> StoreResult<()> {
    let every = crew.config.heartbeat_interval();
    loop {
        tokio::time::sleep(every).await;
        crew.store.heartbeat(&crew.heartbeat()).await?;
    }
}

/// Claims what is due and requeues it, while this worker leads (SPEC 8).
async fn schedule(crew: Arc<Crew>, signals: Arc<Signals>) -> StoreResult<()> {
    let mut leads = false;
    let mut stale_at = Instant::now();
    let mut maintain_at = Instant::now() + MAINTAIN_EVERY;
    loop {
        let earlier = signals.due_earlier.notified();
        let sleep = match crew.store.claim_due(&crew.holder.worker_id, BATCH).await? {
            Claim::Follower { retry_after } => {
                leads = false;
                Duration::from_millis(retry_after + 1).min(FOLLOW)
            }
            Claim::Leader { claimed, full, next_due } => {
                let requeued = crew.store.requeue_claimed(&claimed).await?;
                log_notes(&requeued.notes);
                if requeued.queued > 0 {
                    tracing::debug!(tasks = requeued.queued, "queued what was due");
                }
                if !leads || Instant::now() >= stale_at {
                    // A new leader, also one whose last call failed, takes every claim for one that
                    // was left behind: who still works at it finds it done.
                    let older_than = if leads { STALE_CLAIM_MS } else { 0 };
                    crew.store.requeue_stale_claims(older_than).await?;
                    leads = true;
                    stale_at = Instant::now() + STALE_EVERY;
                }
                if Instant::now() >= maintain_at {
                    log_notes(&crew.store.maintain().await?);
                    maintain_at = Instant::now() + MAINTAIN_EVERY;
                }
                if full {
                    continue;
                }
                // Jittered, so that a fleet does not look in lockstep; never past the next due time.
                let longest = LONGEST_SLEEP.mul_f64(0.95 + fastrand::f64() / 10.0);
                next_due.map_or(longest, |ms| Duration::from_millis(ms).min(longest))
            }
        };
        tokio::select! {
            () = tokio::time::sleep(sleep) => {}
            () = earlier => {}
        }
    }
}

/// Redelivers what other workers have lost (SPEC 4.4).
async fn reap(crew: Arc<Crew>) -> StoreResult<()> {
    loop {
        let reaped = crew.store.reap(BATCH).await?;
        log_notes(&reaped.notes);
        for id in &reaped.redelivered {
            tracing::warn!(task_id = %id, "a lost task is redelivered");
        }
        for id in &reaped.dead {
            tracing::error!(task_id = %id, class = "worker_lost", "a task lost its worker and has no attempt left");
        }
        if reaped.full {
            continue;
        }
        let next = reaped.next_deadline.map_or(REAP_EVERY, |ms| Duration::from_millis(ms + 1));
        // Everybody reaps; a little apart, so that one finds what there is to find.
        let apart = Duration::from_millis(fastrand::u64(0..200));
        tokio::time::sleep(next.min(REAP_EVERY) + apart).await;
    }
}

/// Cancels, and wake-ups of the leader.
async fn listen(crew: Arc<Crew>, signals: Arc<Signals>) -> StoreResult<()> {
    let mut notices = crew.store.notices(Some(&crew.holder));
    while let Some(notice) = notices.recv().await {
        match notice {
            Notice::Cancel(id) => crew.cancel(id),
            Notice::DueEarlier => signals.due_earlier.notify_one(),
            Notice::Reconnected => {
                // What was said meanwhile was missed: look.
                crew.renew_now.notify_one();
                signals.due_earlier.notify_one();
            }
            Notice::Ended(_) => {}
        }
    }
    Err(StoreError::Failed("the store stopped telling notices".to_owned()))
}

/// Strikes timeouts.
async fn strike(crew: Arc<Crew>) -> StoreResult<()> {
    crew.flights.strike(|flight| crew.abandon(&flight)).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn spec_7_a_loop_that_fails_or_panics_backs_off_and_goes_on() {
        let runs = Arc::new(AtomicU32::new(0));
        let began = Instant::now();
        let make = || {
            let run = runs.fetch_add(1, Ordering::SeqCst);
            async move {
                match run {
                    0..3 => Err(StoreError::Unavailable("away".to_owned())),
                    3 => panic!("a bug"),
                    4 => Err(StoreError::Failed("another".to_owned())),
                    _ => Ok(()),
                }
            }
            .boxed()
        };
        kept("test", make).await.unwrap();
        assert_eq!(runs.load(Ordering::SeqCst), 6);
        // 100 ms, 200 ms, and so on, each half as long to half as long again.
        let took = began.elapsed();
        assert!((1550..4700).contains(&took.as_millis()), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn spec_5_8_what_no_waiting_can_mend_ends_the_worker() {
        let newer = || async { Err(StoreError::Incompatible("newer".to_owned())) }.boxed();
        assert!(matches!(kept("test", newer).await, Err(StoreError::Incompatible(_))));
    }
}
