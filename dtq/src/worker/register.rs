//! Registration (SPEC 7.9): one living worker for each id.

use std::time::Duration;

use tokio::time::Instant;

use super::crew::Crew;
use crate::config::millis;
use crate::error::StartError;
use crate::io;
use crate::store::Registered;

/// Registers the worker. An id that is taken is waited for, up to three heartbeats: refreshed
/// meanwhile, it is refused; otherwise its holder is dead, and the id is taken over.
pub(super) async fn register(crew: &Crew) -> Result<(), crate::Error> {
    let beat = crew.heartbeat();
    let interval = crew.config.heartbeat_interval();
    let started = Instant::now();
    let mut seen: Option<(Instant, String)> = None;
    loop {
        let take_over = started.elapsed() >= interval * 3;
        let asked = Instant::now();
        let call = || crew.store.register(&beat, take_over);
        match io::retrying("registering", None, call).await? {
            Registered::Done => return Ok(()),
            Registered::Taken { incarnation, last_seen_ago } => {
                if seen.as_ref().is_some_and(|(at, who)| {
                    *who != incarnation || beat_since(asked.duration_since(*at), last_seen_ago)
                }) {
                    let id = &beat.holder.worker_id;
                    return Err(StartError::new(vec![format!(
                        "worker id `{id}` belongs to another worker that is alive: give each its own \
                         (DTQ_WORKER_ID), or none for a random one"
                    )])
                    .into());
                }
                seen.get_or_insert_with(|| (Instant::now(), incarnation));
                tokio::time::sleep(interval / 2).await;
            }
        }
    }
}

/// Whether the holder gave a sign of life after the first look: `between` is at least the time from
/// the first answer to this question, so that a slow answer is not taken for a sign.
fn beat_since(between: Duration, last_seen_ago: u64) -> bool {
    last_seen_ago < millis(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_7_9_only_a_beat_after_the_first_look_is_a_sign_of_life() {
        let second = Duration::from_secs(1);
        assert!(beat_since(second, 300));
        // It was dead 700 ms before the first look, however long the answers took.
        assert!(!beat_since(second, 1700));
        assert!(!beat_since(second, 1000));
    }
}
