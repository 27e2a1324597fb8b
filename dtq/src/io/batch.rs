//! Group commit: what arrives while a call is under way goes together in the next.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{Io, Outage, may_pass};
use crate::store::{StoreError, StoreResult};

/// What one call may hold. A single item may exceed it: it goes alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchLimit {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

/// How a batcher works.
pub(crate) struct Batching<I> {
    /// For the log.
    pub(crate) what: &'static str,
    pub(crate) limit: BatchLimit,
    /// Count and bytes of an item.
    pub(crate) weigh: fn(&I) -> (usize, usize),
    /// How long an item is tried while the store is away; `None`: for ever.
    pub(crate) patience: Option<Duration>,
}

/// Who is told what became of an item.
enum Reply<O> {
    Waiting(oneshot::Sender<StoreResult<O>>),
    /// Run on dtq's thread, at once: it must be short.
    Call(Box<dyn FnOnce(StoreResult<O>) + Send>),
}

/// An item that was handed in.
struct Submitted<I, O> {
    item: I,
    reply: Reply<O>,
    /// By the standard library's clock: tokio's is that of the caller's runtime, which may be paused.
    since: std::time::Instant,
}

/// Hands items to the store in batches, one call at a time, in the order of their arrival. Nothing
/// waits when nothing is under way, so an idle batcher adds no delay and a busy one fills its
/// calls. While the store is away the batch is repeated, joined by what arrives meanwhile.
///
/// The queue before it has no bound of its own: whoever hands something in waits for the answer,
/// so there are as many items as there are callers.
#[derive(Debug)]
pub(crate) struct Batcher<I, O>(mpsc::UnboundedSender<Submitted<I, O>>);

impl<I, O> Clone for Batcher<I, O> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<I, O> std::fmt::Debug for Submitted<I, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Submitted").finish_non_exhaustive()
    }
}

impl<I: Send + Sync + 'static, O: Send + 'static> Batcher<I, O> {
    /// `commit` answers each item of a batch, in order. It may be given an item again whose first
    /// call seemed to fail.
    pub(crate) fn new(
        io: &Io,
        batching: Batching<I>,
        commit: impl for<'a> Fn(&'a [I]) -> BoxFuture<'a, StoreResult<Vec<O>>> + Send + 'static,
    ) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        io.spawn(run(batching, commit, receiver));
        Self(sender)
    }

    /// Hands an item in. The receiver gets its answer; it gets none only if dtq's thread ended.
    pub(crate) fn submit(&self, item: I) -> oneshot::Receiver<StoreResult<O>> {
        let (reply, answer) = oneshot::channel();
        self.send(item, Reply::Waiting(reply));
        answer
    }

    /// Hands an item in; `then` is called on dtq's thread with its answer. That costs less than a task
    /// that waits for it.
    pub(crate) fn submit_then(&self, item: I, then: impl FnOnce(StoreResult<O>) + Send + 'static) {
        self.send(item, Reply::Call(Box::new(then)));
    }

    fn send(&self, item: I, reply: Reply<O>) {
        let _ = self.0.send(Submitted { item, reply, since: std::time::Instant::now() });
    }
}

/// Who waits for an item's answer: nobody any more once it was told that the store is away.
struct Waiter<O> {
    reply: Option<Reply<O>>,
    deadline: Option<Instant>,
}

impl<O> Waiter<O> {
    /// Whoever asked may have given up; that is no concern of the batch.
    fn tell(&mut self, answer: StoreResult<O>) {
        match self.reply.take() {
            Some(Reply::Waiting(reply)) => drop(reply.send(answer)),
            Some(Reply::Call(then)) => then(answer),
            None => {}
        }
    }
}

async fn run<I: Send + Sync, O: Send>(
    Batching { what, limit, weigh, patience }: Batching<I>,
    commit: impl for<'a> Fn(&'a [I]) -> BoxFuture<'a, StoreResult<Vec<O>>>,
    mut receiver: mpsc::UnboundedReceiver<Submitted<I, O>>,
) {
    let mut outage = Outage::new(what, patience.is_none());
    let mut carried = None;
    let mut items: Vec<I> = Vec::new();
    let mut waiters: Vec<Waiter<O>> = Vec::new();
    loop {
        if items.is_empty() && carried.is_none() {
            carried = receiver.recv().await;
            if carried.is_none() {
                return;
            }
        }
        let (mut count, mut bytes) =
            items.iter().map(weigh).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        while let Some(submitted) = carried.take().or_else(|| receiver.try_recv().ok()) {
            let (more_count, more_bytes) = weigh(&submitted.item);
            let fits = count + more_count <= limit.count && bytes + more_bytes <= limit.bytes;
            if !fits && !items.is_empty() {
                carried = Some(submitted);
                break;
            }
            (count, bytes) = (count + more_count, bytes + more_bytes);
            items.push(submitted.item);
            let left = patience.map(|p| p.saturating_sub(submitted.since.elapsed()));
            let deadline = left.and_then(|left| Instant::now().checked_add(left));
            waiters.push(Waiter { reply: Some(submitted.reply), deadline });
        }
        let silent = StoreError::Unavailable("it does not answer".to_owned());
        match unless_overdue(commit(&items), &mut waiters, &silent).await {
            None => {
                // A call that hangs and that nobody waits for any more must not hold up the next.
                items.clear();
                waiters.clear();
            }
            Some(Ok(answers)) => {
                outage.over();
                let mut answers = answers.into_iter();
                for waiter in &mut waiters {
                    let missing = || StoreError::Failed("an answer is missing".to_owned());
                    waiter.tell(answers.next().ok_or_else(missing));
                }
                items.clear();
                waiters.clear();
            }
            Some(Err(error)) if may_pass(&error, patience) => {
                let pause = outage.failed(&error);
                unless_overdue(tokio::time::sleep(pause), &mut waiters, &error).await;
                let mut waits = waiters.iter().map(|waiter| waiter.reply.is_some());
                items.retain(|_| waits.next().unwrap_or(false));
                waiters.retain(|waiter| waiter.reply.is_some());
            }
            Some(Err(error)) => {
                waiters.iter_mut().for_each(|waiter| waiter.tell(Err(error.clone())));
                items.clear();
                waiters.clear();
            }
        }
    }
}

/// Waits for `work`; those whose deadline passes meanwhile are told so. `None`: that was the last
/// who waited.
async fn unless_overdue<T, O>(
    work: impl Future<Output = T>,
    waiters: &mut [Waiter<O>],
    why: &StoreError,
) -> Option<T> {
    let mut work = std::pin::pin!(work);
    loop {
        // Items come in the order of their arrival: the first that still waits is due first.
        let next = waiters.iter().find(|waiter| waiter.reply.is_some())?;
        let Some(deadline) = next.deadline else { return Some(work.await) };
        tokio::select! {
            output = &mut work => return Some(output),
            () = tokio::time::sleep_until(deadline) => {
                let now = Instant::now();
                for waiter in waiters.iter_mut() {
                    if waiter.deadline.is_some_and(|deadline| deadline <= now) {
                        waiter.tell(Err(why.clone()));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
