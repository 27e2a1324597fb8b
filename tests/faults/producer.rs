//! The producer of the storm: every kind of task, each call and its answer logged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dtq::{Cancelled, Client, EnqueueError};
use dtq_tests::history::{Log, Saw};
use tokio::sync::Semaphore;

/// Enqueues until it is told to stop.
#[derive(Debug)]
pub(crate) struct Producer {
    pub(crate) client: Client,
    pub(crate) log: &'static Log,
    pub(crate) next: AtomicU64,
    pub(crate) stop: AtomicBool,
    pub(crate) visibility: Duration,
    /// Of a thousand tasks so many take about as long as a lease is good for.
    pub(crate) slow: u32,
}

struct Wish {
    n: u64,
    how: &'static str,
    ms: u64,
    max_attempts: u32,
    delay_ms: u64,
    ttl_ms: Option<u64>,
    key: Option<String>,
    priority: u8,
    cancel_after_ms: Option<u64>,
}

impl Producer {
    /// So many tasks a second, until it is told to stop.
    pub(crate) async fn run(self: Arc<Self>, a_second: u64, mut random: fastrand::Rng) {
        let calls = Arc::new(Semaphore::new(64));
        while !self.stop.load(Ordering::Relaxed) {
            let wish = self.wish(&mut random);
            let repeats = if wish.key.is_some() { 3 } else { 1 };
            let wish = Arc::new(wish);
            for repeat in 0..repeats {
                let Ok(permit) = Arc::clone(&calls).acquire_owned().await else { return };
                let n = if repeat == 0 { wish.n } else { self.number() };
                let (producer, wish) = (Arc::clone(&self), Arc::clone(&wish));
                tokio::spawn(async move {
                    producer.enqueue(n, &wish).await;
                    drop(permit);
                });
            }
            tokio::time::sleep(Duration::from_micros(1_000_000 / a_second)).await;
        }
        // Every call has its answer in the log.
        let _ = calls.acquire_many(64).await;
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn wish(&self, random: &mut fastrand::Rng) -> Wish {
        let n = self.number();
        let long = u64::try_from(self.visibility.as_millis()).unwrap_or(u64::MAX);
        let mut wish = Wish {
            n,
            how: "ok",
            ms: random.u64(0..30),
            max_attempts: 10,
            delay_ms: 0,
            ttl_ms: None,
            key: None,
            priority: if random.u8(0..10) == 0 { random.u8(0..10) } else { 5 },
            cancel_after_ms: None,
        };
        match random.u32(0..1000) {
            0..600 => {}
            600..700 => wish.how = "flaky",
            700..730 => wish.how = "fail",
            730..750 => wish.how = "snooze",
            750..850 => wish.delay_ms = random.u64(1..1500),
            850..880 => wish.ttl_ms = Some(random.u64(5..500)),
            880..910 => wish.key = Some(format!("key-{n}")),
            910..940 => wish.cancel_after_ms = Some(random.u64(0..20)),
            940..970 => {
                wish.delay_ms = random.u64(100..2000);
                wish.cancel_after_ms = Some(random.u64(0..2000));
            }
            _ => wish.max_attempts = 1,
        }
        if random.u32(0..1000) < self.slow {
            wish.ms = random.u64(long / 2..long * 3);
        }
        wish
    }

    /// A task that kills its worker, twice.
    pub(crate) async fn abort(&self) {
        let mut wish = self.wish(&mut fastrand::Rng::with_seed(0));
        (wish.how, wish.max_attempts, wish.key) = ("abort", 2, None);
        self.enqueue(wish.n, &wish).await;
    }

    async fn enqueue(&self, n: u64, wish: &Wish) {
        let payload = format!(r#"{{"n":{n},"ms":{},"how":"{}"}}"#, wish.ms, wish.how);
        // What shares a key must share its payload.
        let payload = match &wish.key {
            Some(_) => payload.replace(&format!("{{\"n\":{n}"), &format!("{{\"n\":{}", wish.n)),
            None => payload,
        };
        let mut call = self
            .client
            .enqueue_raw("work", payload)
            .priority(wish.priority)
            .max_attempts(wish.max_attempts);
        if wish.delay_ms > 0 {
            call = call.delay(Duration::from_millis(wish.delay_ms));
        }
        if let Some(ttl) = wish.ttl_ms {
            call = call.ttl(Duration::from_millis(ttl));
        }
        if let Some(key) = &wish.key {
            call = call.idempotency_key(key);
        }
        // Of the tasks of one key the first number is in every payload.
        let n = if wish.key.is_some() { wish.n } else { n };
        self.log.write(Saw::Asked { n });
        match call.await {
            Ok(handle) => {
                let id = handle.id().to_string();
                let key = wish.key.clone();
                if handle.is_duplicate() {
                    let key = key.unwrap_or_default();
                    return self.log.write(Saw::Known { n, key, id });
                }
                let (max_attempts, delay_ms, ttl_ms) =
                    (wish.max_attempts, wish.delay_ms, wish.ttl_ms);
                self.log.write(Saw::Accepted {
                    n,
                    id: id.clone(),
                    max_attempts,
                    delay_ms,
                    ttl_ms,
                    key,
                });
                if let Some(ms) = wish.cancel_after_ms {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    self.log.write(Saw::CancelAsked { id: id.clone() });
                    if matches!(handle.cancel().await, Ok(Cancelled::Done)) {
                        self.log.write(Saw::Cancelled { id });
                    }
                }
            }
            Err(EnqueueError::IdempotencyInProgress { task_id }) => {
                let key = wish.key.clone().unwrap_or_default();
                self.log.write(Saw::Known { n, key, id: task_id.to_string() });
            }
            Err(EnqueueError::Store(_)) => self.log.write(Saw::Unclear { n }),
            Err(_) => self.log.write(Saw::Refused { n }),
        }
    }
}
