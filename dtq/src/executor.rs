//! One attempt: look the task function up, run it under its timeout, classify what it came to, and
//! hand the outcome on to be finished.

use std::any::Any;
use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Once};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use tracing::Instrument as _;

use crate::classify::{self, Verdict};
use crate::config::{TEN_YEARS, UnknownTask, millis};
use crate::context::{self, Context};
use crate::flight::{Flight, Stop};
use crate::store::{ErrorInfo, KeptResult, Leased, Outcome};
use crate::task::{Definition, Execution, Run};
use crate::task_error::TaskError;
use crate::worker::Crew;

/// How long a task of an unknown type is put off, and for how long in all (SPEC 3.8).
const UNKNOWN_DELAY: Duration = Duration::from_secs(60);
const UNKNOWN_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// What a body came to: its result as JSON, its error, or a panic.
type Ended = Result<Result<Vec<u8>, TaskError>, Box<dyn Any + Send>>;

/// Takes a leased task on: it is in flight until its finish is confirmed.
pub(crate) fn take_on(crew: &Arc<Crew>, leased: Leased) {
    let timeout = Duration::from_millis(leased.timeout);
    let flight = crew.flights.add(leased.lease.clone(), timeout);
    let Some(definition) = crew.lookup.find(&leased.name) else {
        crew.flights.body_gone(&flight);
        if flight.conclude() {
            crew.finish(&flight, &leased.name, unknown(crew, &leased));
        }
        return;
    };
    match definition.run {
        Run::Async(run) => {
            let attempt = attempt(Arc::clone(crew), flight, leased, definition, run);
            // Onto the user's runtime: if that has ended, the attempt is dropped at once and its
            // guard gives the task back.
            crew.runtime.spawn(attempt);
        }
        Run::Blocking(run) => {
            let body = Body::new(crew, flight, definition.name);
            let crew = Arc::clone(crew);
            let pool = crew.pool.clone();
            // Out of threads: the job, dropped here, gives the task back.
            let _ = pool.run(move || blocking_attempt(&crew, body, leased, definition, run));
        }
    }
}

/// An attempt of an async task function, on the user's runtime.
async fn attempt(
    crew: Arc<Crew>,
    flight: Arc<Flight>,
    leased: Leased,
    definition: &'static Definition,
    run: fn(Execution) -> crate::task::BoxRun,
) {
    let mut body = Body::new(&crew, Arc::clone(&flight), definition.name);
    let execution = crew.execution(&flight, &leased);
    let span = span(&leased);
    let limit = leased.result_max_bytes;
    // Making the future is the task function's own code as well.
    let running = AssertUnwindSafe(async move { run(execution).await }).catch_unwind();
    let mut running = Box::pin(watched(running).instrument(span));
    // A body that is ready has returned, whatever was said meanwhile.
    let ended = tokio::select! {
        biased;
        ended = &mut running => Ok(ended),
        why = flight.to_stop() => Err(why),
    };
    // A panic in a destructor is the task function's too.
    let dropped = std::panic::catch_unwind(AssertUnwindSafe(|| drop(running)));
    match (ended, dropped) {
        (_, Err(panic)) => body.ended(Err(panic), limit, definition),
        (Ok(ended), _) => body.ended(ended, limit, definition),
        (Err(why), _) => body.stopped(why),
    }
}

/// An attempt of a blocking one, on a thread of dtq's own: it cannot be dropped, only be asked to stop.
fn blocking_attempt(
    crew: &Arc<Crew>,
    mut body: Body,
    leased: Leased,
    definition: &'static Definition,
    run: fn(Execution) -> Result<Vec<u8>, TaskError>,
) {
    // Stopped before it began.
    if let Some(why) = body.flight.stopped() {
        return body.stopped(why);
    }
    let execution = crew.execution(&body.flight, &leased);
    let ended = {
        let _span = span(&leased).entered();
        let _watch = Watch::begin();
        std::panic::catch_unwind(AssertUnwindSafe(|| run(execution)))
    };
    body.ended(ended, leased.result_max_bytes, definition);
}

fn span(leased: &Leased) -> tracing::Span {
    let lease = &leased.lease;
    tracing::info_span!(
        "task",
        task_id = %lease.id,
        task_type = leased.name,
        attempt = lease.attempt,
        queue = lease.queue
    )
}

impl Crew {
    /// What the task function is given; its time begins.
    fn execution(&self, flight: &Arc<Flight>, leased: &Leased) -> Execution {
        let deadline = self.flights.start(flight);
        let context = context::Inner {
            task_id: leased.lease.id,
            attempt: leased.lease.attempt,
            max_attempts: leased.max_attempts,
            queue: leased.lease.queue.clone(),
            worker_id: self.holder.worker_id.clone(),
            deadline: deadline.into_std(),
            idempotency_key: leased.idempotency_key.clone(),
            metadata: leased.metadata.clone(),
            cancelled: Arc::clone(&flight.flag),
            client: self.client.clone(),
        };
        Execution {
            payload: leased.payload.clone(),
            context: Context(Arc::new(context)),
            states: Arc::clone(&self.states),
        }
    }

    fn outcome(&self, verdict: Verdict, flight: &Flight, definition: &Definition) -> Outcome {
        let (info, retry_after) = match verdict {
            Verdict::Snooze(delay) => {
                return Outcome::Snoozed {
                    delay: millis(delay.min(TEN_YEARS)),
                    unknown_type: false,
                };
            }
            Verdict::Fail { info, retry_after } => (info, retry_after),
        };
        if !info.retryable || flight.lease.attempt >= self.max_attempts(flight) {
            return Outcome::Dead { error: info };
        }
        let policy = self.config.retry.overridden(&definition.options.backoff);
        let drawn = policy.delay_ms(flight.lease.attempt, fastrand::f64());
        let delay = retry_after.map_or(drawn, millis).min(millis(TEN_YEARS));
        Outcome::Retry { delay, error: info }
    }
}

/// A type that nobody here knows: never executed.
fn unknown(crew: &Crew, leased: &Leased) -> Outcome {
    let error = classify::unknown_type(&leased.name);
    let waited = leased.unknown_since.map_or(0, |since| leased.now.saturating_sub(since));
    if crew.config.unknown_task == UnknownTask::Snooze && waited < millis(UNKNOWN_LIMIT) {
        return Outcome::Snoozed { delay: millis(UNKNOWN_DELAY), unknown_type: true };
    }
    Outcome::Dead { error }
}

/// A body and its duty to say what it came to. Dropped without a word (its runtime ended), it
/// gives the task back.
struct Body {
    crew: Arc<Crew>,
    flight: Arc<Flight>,
    name: &'static str,
    told: bool,
}

impl Body {
    fn new(crew: &Arc<Crew>, flight: Arc<Flight>, name: &'static str) -> Self {
        Self { crew: Arc::clone(crew), flight, name, told: false }
    }

    /// The body returned or panicked.
    fn ended(&mut self, ended: Ended, limit: Option<u64>, definition: &'static Definition) {
        let outcome = match ended {
            Ok(Ok(json)) => self.kept(json, limit),
            Ok(Err(error)) => {
                let verdict = std::panic::catch_unwind(AssertUnwindSafe(|| {
                    classify::classify(&error, definition.retry_on)
                }));
                let verdict = verdict.unwrap_or_else(|panic| classify::panic(&panic_text(&*panic)));
                self.crew.outcome(verdict, &self.flight, definition)
            }
            Err(panic) => {
                let verdict = classify::panic(&panic_text(&*panic));
                self.crew.outcome(verdict, &self.flight, definition)
            }
        };
        // A cancel that was asked for makes anything but success a cancel; the store knows too.
        self.say(Some(outcome), definition);
    }

    /// The body was dropped.
    fn stopped(&mut self, why: Stop) {
        let definition = self.crew.lookup.find(self.name);
        let outcome = match why {
            Stop::Cancelled => Some(Outcome::Cancelled),
            Stop::Release => Some(Outcome::Released),
            Stop::Lost => None,
            Stop::TimedOut => definition.map(|definition| {
                let verdict = classify::timeout(self.flight.timeout);
                self.crew.outcome(verdict, &self.flight, definition)
            }),
        };
        self.told = true;
        self.crew.flights.body_gone(&self.flight);
        self.crew.conclude(&self.flight, self.name, outcome);
    }

    fn say(&mut self, outcome: Option<Outcome>, definition: &'static Definition) {
        self.told = true;
        self.crew.flights.body_gone(&self.flight);
        self.crew.conclude(&self.flight, definition.name, outcome);
    }

    fn kept(&self, json: Vec<u8>, limit: Option<u64>) -> Outcome {
        let limit = limit.unwrap_or(self.crew.config.result_max_bytes);
        let bytes = json.len() as u64;
        let result = if bytes > limit {
            tracing::warn!(
                task_id = %self.flight.lease.id, task_type = self.name, bytes, limit,
                "the task succeeded, but its result is too large to keep"
            );
            KeptResult::TooLarge { bytes }
        } else {
            KeptResult::Json(Bytes::from(json))
        };
        Outcome::Succeeded { result }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if !self.told {
            self.crew.flights.body_gone(&self.flight);
            self.crew.conclude(&self.flight, self.name, Some(Outcome::Released));
        }
    }
}

/// The timeout of a body that goes on: written without it (SPEC 7.6).
pub(crate) fn abandon(crew: &Arc<Crew>, flight: &Arc<Flight>) {
    let definition = crew.name_of(flight).and_then(|name| crew.lookup.find(&name));
    let outcome = match (flight.stopped(), definition) {
        (Some(Stop::Cancelled), _) => Some(Outcome::Cancelled),
        (Some(Stop::Lost), _) => None,
        (_, Some(definition)) => {
            let verdict = classify::timeout(flight.timeout);
            Some(crew.outcome(verdict, flight, definition))
        }
        (_, None) => Some(Outcome::Released),
    };
    let name = definition.map_or("", |definition| definition.name);
    crew.conclude(flight, name, outcome);
}

/// One line for each outcome; no payloads.
pub(crate) fn log(flight: &Flight, name: &str, outcome: &Outcome) {
    let lease = &flight.lease;
    macro_rules! line {
        ($level:ident, $text:literal $(, $($field:tt)*)?) => {
            tracing::$level!(
                task_id = %lease.id, task_type = name, attempt = lease.attempt, queue = lease.queue,
                $($($field)*,)? $text
            )
        };
    }
    let failed = |error: &ErrorInfo| (error.class.clone(), error.message.clone());
    match outcome {
        Outcome::Succeeded { .. } => line!(info, "task succeeded"),
        Outcome::Retry { delay, error } => {
            let (class, error) = failed(error);
            line!(warn, "task failed and is retried", delay_ms = delay, class, error);
        }
        Outcome::Dead { error } => {
            let (class, error) = failed(error);
            line!(error, "task failed for good", class, error);
        }
        Outcome::Cancelled => line!(info, "task cancelled"),
        Outcome::Released => line!(info, "task given back"),
        Outcome::Snoozed { delay, .. } => line!(info, "task put off", delay_ms = delay),
    }
}

thread_local! {
    /// Where and why a body panicked, noted by the hook on the body's own thread.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static WATCHED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// While it lives, a panic on this thread is a task function's.
struct Watch(bool);

impl Watch {
    fn begin() -> Self {
        install_hook();
        Self(WATCHED.replace(true))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHED.set(self.0);
    }
}

/// Watches for panics while `body` is polled, and only then.
async fn watched<F: Future>(body: F) -> F::Output {
    let mut body = std::pin::pin!(body);
    std::future::poll_fn(|cx| {
        let _watch = Watch::begin();
        body.as_mut().poll(cx)
    })
    .await
}

/// Chained before the hook that was there, which still prints what it always did.
fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if WATCHED.get() {
                let place = info.location().map(|at| format!(" at {at}")).unwrap_or_default();
                let text = format!("panicked{place}: {}", payload_text(info.payload()));
                PANIC.with_borrow_mut(|panic| *panic = Some(text));
            }
            before(info);
        }));
    });
}

fn payload_text(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "with a value that is no text".to_owned())
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    PANIC.take().unwrap_or_else(|| format!("panicked: {}", payload_text(payload)))
}
