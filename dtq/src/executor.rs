//! One attempt: look the task function up, run it under its timeout, classify what it came to, and
//! hand the outcome on to be finished.

use std::any::Any;
use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Once};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt as _, TryFutureExt as _};
use tracing::Instrument as _;

use crate::classify::{self, Verdict};
use crate::config::{TEN_YEARS, UnknownTask, millis};
use crate::context::{self, Context};
use crate::flight::{Flight, Stop};
use crate::store::{ErrorInfo, KeptResult, Leased, Outcome};
use crate::task::{BoxRun, Definition, Execution, Run};
use crate::task_error::TaskError;
use crate::worker::Crew;

/// How long a task of an unknown type is put off, and for how long in all (SPEC 3.8).
const UNKNOWN_DELAY: Duration = Duration::from_secs(60);
const UNKNOWN_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// How long an attempt waits here for the end of the one before it, and is put off otherwise.
const OVERDUE_WAIT: Duration = Duration::from_secs(30);

/// What a body came to: its result as JSON, its error, or what its panic means.
type Ended = Result<Result<Vec<u8>, TaskError>, Verdict>;

/// Takes leased tasks on: they are in flight until their finishes are confirmed.
pub(crate) fn take_on(crew: &Arc<Crew>, leased: Vec<Leased>) {
    let ready = leased.into_iter().filter_map(|leased| take_one_on(crew, leased)).collect();
    launch(crew, ready);
}

/// The body, if it may begin at once.
fn take_one_on(crew: &Arc<Crew>, leased: Leased) -> Option<Body> {
    let definition = crew.lookup.find(&leased.name);
    let flight = crew.flights.add(leased, definition);
    let Some(definition) = definition else {
        crew.flights.body_gone(&flight);
        crew.conclude(&flight, Some(unknown(crew, &flight.leased)));
        return None;
    };
    let body = Body { crew: Arc::clone(crew), flight, definition, told: false };
    if crew.flights.is_overdue(body.flight.lease().id) {
        crew.client.io().spawn(wait_for_the_last(body));
        return None;
    }
    Some(body)
}

/// Never two attempts of one task at once in one worker: the next one waits until the last, which
/// could not be stopped, has returned; if that takes long, other workers may have it.
async fn wait_for_the_last(mut body: Body) {
    let id = body.flight.lease().id;
    if tokio::time::timeout(OVERDUE_WAIT, body.crew.flights.alone(id)).await.is_ok() {
        return launch(&Arc::clone(&body.crew), vec![body]);
    }
    tracing::warn!(
        task_id = %id, task_type = body.definition.name,
        "an earlier attempt ran out of its time and still runs: the next is put off"
    );
    if body.flight.begin() {
        let delay = millis(OVERDUE_WAIT);
        body.say(Some(Outcome::Snoozed { delay, unknown_type: false }));
    }
}

/// Async bodies go to the user's runtime together: waking another thread costs more than many a body.
/// If that runtime has ended, they are dropped at once, and thereby give their tasks back.
fn launch(crew: &Crew, bodies: Vec<Body>) {
    let mut together = Vec::with_capacity(bodies.len());
    for body in bodies {
        match body.definition.run {
            Run::Async(run) => together.push((body, run)),
            Run::Blocking(run) => {
                // Out of threads: the job, dropped here, gives the task back.
                let _ = crew.pool.run(move || blocking_attempt(body, run));
            }
        }
    }
    match together.len() {
        0 => {}
        1 => {
            for (body, run) in together {
                crew.runtime.spawn(attempt(body, run));
            }
        }
        _ => drop(crew.runtime.spawn(async move {
            for (body, run) in together {
                tokio::spawn(attempt(body, run));
            }
        })),
    }
}

/// An attempt of an async task function, on the user's runtime.
async fn attempt(mut body: Body, run: fn(Execution) -> BoxRun) {
    let Some(execution) = body.begin() else { return };
    let span = span(&body.flight.leased);
    // Making the future is the task function's own code as well.
    let running = AssertUnwindSafe(async move { run(execution).await }).catch_unwind();
    let mut running = Box::pin(watched(running.map_err(panicked)).instrument(span));
    // A body that is ready has returned, whatever was said meanwhile.
    let ended = tokio::select! {
        biased;
        ended = &mut running => Ok(ended),
        why = body.flight.to_stop() => Err(why),
    };
    // A panic in a destructor is the task function's too.
    let dropped = caught(|| drop(running));
    match (ended, dropped) {
        (Ok(Ok(_)), Err(panic)) => body.ended(Err(panic)),
        (Ok(ended), _) => body.ended(ended),
        (Err(why), _) => body.stopped(why),
    }
}

/// An attempt of a blocking one, on a thread of dtq's own: it cannot be dropped, only be asked to stop.
fn blocking_attempt(mut body: Body, run: fn(Execution) -> Result<Vec<u8>, TaskError>) {
    let Some(execution) = body.begin() else { return };
    let ended = {
        // As on tokio's own blocking threads: `Handle::current()` is the user's runtime.
        let runtime = body.crew.runtime.clone();
        let _runtime = runtime.enter();
        let _span = span(&body.flight.leased).entered();
        caught(|| run(execution))
    };
    body.ended(ended);
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
    fn execution(&self, flight: &Arc<Flight>) -> Execution {
        let deadline = self.flights.start(flight);
        let leased = &flight.leased;
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

    /// What a failure comes to: another attempt, or the end.
    fn failed(&self, verdict: Verdict, flight: &Flight) -> Outcome {
        let (info, retry_after) = match verdict {
            Verdict::Snooze(delay) => {
                let delay = millis(delay.min(TEN_YEARS));
                return Outcome::Snoozed { delay, unknown_type: false };
            }
            Verdict::Fail { info, retry_after } => (info, retry_after),
        };
        let attempt = flight.lease().attempt;
        if !info.retryable || attempt >= flight.leased.max_attempts {
            return Outcome::Dead { error: info };
        }
        let policy = match flight.definition {
            Some(definition) => self.config.retry.overridden(&definition.options.backoff),
            None => self.config.retry,
        };
        let drawn = policy.delay_ms(attempt, fastrand::f64());
        let delay = retry_after.map_or(drawn, millis).min(millis(TEN_YEARS));
        Outcome::Retry { delay, error: info }
    }

    /// What a task comes to that did not end by itself; nothing is written for a lost one.
    fn cut_short(&self, why: Stop, flight: &Flight) -> Option<Outcome> {
        match why {
            Stop::Cancelled => Some(Outcome::Cancelled),
            Stop::Release => Some(Outcome::Released),
            Stop::Lost => None,
            Stop::TimedOut => Some(self.failed(classify::timeout(flight.timeout), flight)),
        }
    }

    /// Has a body dropped; one that has not begun, perhaps because its runtime is blocked, is not
    /// waited for, nor is one whose lease is lost: nothing is written for it.
    pub(crate) fn stop_flight(self: &Arc<Self>, flight: &Arc<Flight>, why: Stop) {
        flight.stop(why);
        let withdrawn = flight.withdraw();
        if withdrawn {
            self.flights.body_gone(flight);
        }
        if withdrawn || why == Stop::Lost {
            self.conclude(flight, self.cut_short(why, flight));
        }
    }

    /// The end of a body that goes on past its grace: its timeout is written without it (SPEC 7.6).
    pub(crate) fn abandon(self: &Arc<Self>, flight: &Arc<Flight>) {
        let why = match flight.stopped() {
            Some(why @ (Stop::Cancelled | Stop::Lost)) => why,
            _ => Stop::TimedOut,
        };
        self.conclude(flight, self.cut_short(why, flight));
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
    definition: &'static Definition,
    told: bool,
}

impl Body {
    /// What the task function is given, unless the task has been taken from it.
    fn begin(&mut self) -> Option<Execution> {
        if self.flight.begin() {
            return Some(self.crew.execution(&self.flight));
        }
        self.told = true;
        None
    }

    /// The body returned or panicked.
    fn ended(&mut self, ended: Ended) {
        let outcome = match ended {
            Ok(Ok(json)) => self.kept(json),
            Ok(Err(error)) => {
                let retry_on = self.definition.retry_on;
                // An error's own code may panic as well, when it is shown or dropped.
                let verdict = caught(move || classify::classify(&error, retry_on));
                self.crew.failed(verdict.unwrap_or_else(|panic| panic), &self.flight)
            }
            Err(panic) => self.crew.failed(panic, &self.flight),
        };
        self.say(Some(outcome));
    }

    /// The body was dropped.
    fn stopped(&mut self, why: Stop) {
        self.say(self.crew.cut_short(why, &self.flight));
    }

    fn say(&mut self, outcome: Option<Outcome>) {
        self.told = true;
        self.crew.flights.body_gone(&self.flight);
        self.crew.conclude(&self.flight, outcome);
    }

    fn kept(&self, json: Vec<u8>) -> Outcome {
        let leased = &self.flight.leased;
        let limit = leased.result_max_bytes.unwrap_or(self.crew.config.result_max_bytes);
        let bytes = json.len() as u64;
        let result = if bytes > limit {
            tracing::warn!(
                task_id = %leased.lease.id, task_type = leased.name, bytes, limit,
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
            self.say(Some(Outcome::Released));
        }
    }
}

/// One line for each outcome; no payloads.
pub(crate) fn log(leased: &Leased, outcome: &Outcome) {
    let (lease, name) = (&leased.lease, &leased.name);
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
        // What an earlier body caught by itself is not why this one panics.
        PANIC.take();
        Self(WATCHED.replace(true))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHED.set(self.0);
    }
}

/// Runs what is the task function's own; a panic becomes what it means.
fn caught<T>(own: impl FnOnce() -> T) -> Result<T, Verdict> {
    let _watch = Watch::begin();
    std::panic::catch_unwind(AssertUnwindSafe(own)).map_err(panicked)
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

fn panicked(panic: Box<dyn Any + Send>) -> Verdict {
    let text = PANIC.take().unwrap_or_else(|| format!("panicked: {}", payload_text(&*panic)));
    // A payload of somebody else's type is never dropped: its destructor may panic in turn.
    std::mem::forget(panic);
    classify::panic(&text)
}
