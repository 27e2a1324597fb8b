//! Fetching: never more than there are free slots for, at once when there is news, and once a second
//! in case the news was lost (SPEC 7.1, 7.2).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::config::QueueChoice;
use crate::executor;
use crate::io::{self, Outage};
use crate::store::{FetchRequest, Fetched, StoreResult, log_notes};
use crate::worker::Crew;

/// A quiet worker looks this often by itself.
const POLL: Duration = Duration::from_millis(1000);
/// How long one wait for news lasts; a new one costs a command.
const WAIT: Duration = Duration::from_secs(5);
/// How often a worker of every queue looks which there are.
const RESOLVE_EVERY: Duration = Duration::from_secs(5);
/// What one fetch asks for at most: a reply that holds up nobody.
const MOST: usize = 256;

pub(crate) async fn run(crew: Arc<Crew>) -> StoreResult<()> {
    let mut queues = Queues::new(crew.choices.clone());
    let mut news: Option<BoxFuture<'static, StoreResult<()>>> = None;
    loop {
        if crew.flights.free() == 0 {
            // Whoever cannot take work must not take the news of it either.
            news = None;
        }
        let Some(free) = free_slots(&crew).await else { return Ok(()) };
        if queues.refresh(&crew).await? {
            news = None;
        }
        let asked = free.min(MOST);
        let request = FetchRequest {
            holder: crew.holder.clone(),
            queues: queues.order(),
            max: asked,
            visibility: crew.visibility(),
            nonce: fastrand::u64(..),
        };
        let Some(fetched) = fetch(&crew, &request).await? else { return Ok(()) };
        log_notes(&fetched.notes);
        let got = fetched.leased.len();
        if crew.stop.is_stopped() {
            // Nothing is begun once the worker shuts down: others have time for it.
            crew.give_back(fetched.leased).await;
            return Ok(());
        }
        executor::take_on(&crew, fetched.leased);
        if got >= asked {
            // More stands there: what is about to be confirmed is waited for, so that the next fetch is
            // a large one. Nothing waits for a task function that still runs.
            tokio::select! {
                () = crew.flights.settled() => {}
                () = crew.stop.stopped() => {}
            }
            continue;
        }
        // Nothing is left: wait for news. The wait goes on over polls, so that it costs little.
        let waiting = news.get_or_insert_with(|| {
            let (store, names) = (Arc::clone(&crew.store), queues.order());
            Box::pin(async move {
                io::retrying("waiting for work", None, || store.wait_for_work(&names, WAIT)).await
            })
        });
        let poll = POLL.mul_f64(1.0 + fastrand::f64() / 10.0);
        let heard = tokio::select! {
            heard = waiting => Some(heard),
            () = tokio::time::sleep(poll) => None,
            () = crew.stop.stopped() => return Ok(()),
        };
        if let Some(heard) = heard {
            news = None;
            heard?;
        }
    }
}

/// Waits for a free slot; `None` once the worker is stopped.
async fn free_slots(crew: &Crew) -> Option<usize> {
    loop {
        let freed = crew.flights.freed.notified();
        tokio::pin!(freed);
        freed.as_mut().enable();
        if crew.stop.is_stopped() {
            return None;
        }
        let free = crew.flights.free();
        if free > 0 {
            return Some(free);
        }
        tokio::select! {
            () = freed => {}
            () = crew.stop.stopped() => return None,
        }
    }
}

/// Fetches, repeated with the same nonce while the store is away: what a lost reply had leased is
/// returned by the next. `None` once the worker is stopped; a call under way is waited for.
async fn fetch(crew: &Crew, request: &FetchRequest) -> StoreResult<Option<Fetched>> {
    let mut outage = Outage::new("fetching", true);
    loop {
        let error = match crew.store.fetch(request).await {
            Ok(fetched) => {
                outage.over();
                return Ok(Some(fetched));
            }
            Err(error) if error.is_transient() => error,
            Err(error) => return Err(error),
        };
        tokio::select! {
            () = tokio::time::sleep(outage.failed(&error)) => {}
            () = crew.stop.stopped() => return Ok(None),
        }
    }
}

/// What to fetch from, and in which order.
struct Queues {
    choices: Vec<QueueChoice>,
    /// What `*` stands for: every known queue that is not named itself.
    rest: Vec<String>,
    resolved_at: Option<Instant>,
}

impl Queues {
    fn new(choices: Vec<QueueChoice>) -> Self {
        Self { choices, rest: Vec::new(), resolved_at: None }
    }

    /// Looks up what `*` means, now and then; whether it means something else now.
    async fn refresh(&mut self, crew: &Crew) -> StoreResult<bool> {
        let is_due = self.resolved_at.is_none_or(|at| at.elapsed() >= RESOLVE_EVERY);
        if !is_due || self.choices.iter().all(|choice| choice.name != "*") {
            return Ok(false);
        }
        let known = io::retrying("listing queues", None, || crew.store.queue_names());
        let known = tokio::select! {
            known = known => known?,
            () = crew.stop.stopped() => return Ok(false),
        };
        self.resolved_at = Some(Instant::now());
        Ok(self.resolve(known))
    }

    fn resolve(&mut self, known: Vec<String>) -> bool {
        let is_named = |name: &String| self.choices.iter().any(|choice| choice.name == *name);
        let mut rest: Vec<String> = known.into_iter().filter(|name| !is_named(name)).collect();
        rest.sort_unstable();
        let others = rest != self.rest;
        self.rest = rest;
        others
    }

    /// The order of one fetch: as given, or drawn by weight.
    fn order(&self) -> Vec<String> {
        if self.choices.iter().all(|choice| choice.weight.is_none()) {
            return self.names(self.choices.iter().map(|choice| choice.name.as_str()));
        }
        self.names(drawn(&self.choices, fastrand::f64))
    }

    /// With `*` replaced by what it stands for.
    fn names<'a>(&self, choices: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let mut names = Vec::with_capacity(self.choices.len() + self.rest.len());
        for choice in choices {
            if choice == "*" {
                names.extend(self.rest.iter().cloned());
            } else {
                names.push(choice.to_owned());
            }
        }
        if names.is_empty() {
            // A star over a new store.
            names.push("default".to_owned());
        }
        names
    }
}

/// A random order in which a queue comes first as often as its weight says, and so on for the
/// rest (Efraimidis and Spirakis).
fn drawn(choices: &[QueueChoice], mut random: impl FnMut() -> f64) -> Vec<&str> {
    let mut keyed: Vec<(f64, &str)> = choices
        .iter()
        .map(|choice| {
            let weight = f64::from(choice.weight.unwrap_or(1).max(1));
            (random().max(f64::MIN_POSITIVE).ln() / weight, choice.name.as_str())
        })
        .collect();
    keyed.sort_by(|a, b| b.0.total_cmp(&a.0));
    keyed.into_iter().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_7_1_weighted_queues_come_first_as_often_as_their_weight_says() {
        let choices: Vec<_> = [("a", 3), ("b", 1)]
            .map(|(name, weight)| QueueChoice { name: name.to_owned(), weight: Some(weight) })
            .into();
        let mut rng = fastrand::Rng::with_seed(7);
        let first = (0..10_000).filter(|_| drawn(&choices, || rng.f64())[0] == "a").count();
        assert!((7300..7700).contains(&first), "{first}");
    }

    fn queues(choices: &[(&str, Option<u32>)]) -> Queues {
        let choice = |&(name, weight): &(&str, _)| QueueChoice { name: name.to_owned(), weight };
        Queues::new(choices.iter().map(choice).collect())
    }

    #[test]
    fn spec_7_1_queues_keep_their_order_without_weights() {
        assert_eq!(queues(&[("b", None), ("a", None)]).order(), ["b", "a"]);
    }

    #[test]
    fn spec_7_1_a_star_means_every_known_queue_that_is_not_named_also_by_weight() {
        let known = || ["d", "a", "c"].map(str::to_owned).into();
        let mut strict = queues(&[("c", None), ("*", None), ("z", None)]);
        assert!(strict.resolve(known()));
        assert!(!strict.resolve(known()), "nothing new");
        assert_eq!(strict.order(), ["c", "a", "d", "z"]);

        let mut weighted = queues(&[("c", Some(1)), ("*", Some(1))]);
        weighted.resolve(known());
        let mut order = weighted.order();
        order.sort_unstable();
        assert_eq!(order, ["a", "c", "d"]);
    }
}
