//! What the server tells without being asked: notices and lifecycle events. A subscription is
//! renewed for as long as somebody listens; what was sent meanwhile is missed, and said to be.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use redis::Msg;
use redis::aio::PubSubSink;
use tokio::sync::{mpsc, oneshot};

use super::keys::Keys;
use super::link::Link;
use crate::id::TaskId;
use crate::store::{Holder, Notice};

/// A quiet subscription is asked for a sign of life this often: a half-open connection says nothing.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Asks a subscription to listen for the end of a task; answered once it does.
type Listen = (TaskId, oneshot::Sender<()>);

/// The subscriptions of one store that can listen for ends.
#[derive(Debug, Default)]
pub(super) struct Listeners(Mutex<Vec<mpsc::UnboundedSender<Listen>>>);

impl Listeners {
    fn add(&self) -> mpsc::UnboundedReceiver<Listen> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        receiver
    }

    /// Returns when every subscription listens for the end of `id`. One that is not connected
    /// just now will not: its owner reads again when it is, and every few seconds.
    pub(super) async fn listen(&self, id: TaskId) {
        let waits: Vec<_> = {
            let mut senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            senders.retain(|sender| !sender.is_closed());
            senders
                .iter()
                .filter_map(|sender| {
                    let (done, wait) = oneshot::channel();
                    sender.send((id, done)).ok().map(|()| wait)
                })
                .collect()
        };
        for wait in waits {
            let _ = tokio::time::timeout(PING_TIMEOUT, wait).await;
        }
    }
}

/// Runs a subscription to notices until its receiver is dropped.
pub(super) async fn run_notices(
    link: Arc<Link>,
    keys: Keys,
    listeners: Arc<Listeners>,
    holder: Option<Holder>,
    out: mpsc::UnboundedSender<Notice>,
) {
    let mut channels = Vec::new();
    if let Some(holder) = &holder {
        channels.push(keys.of("notify"));
        channels.push(keys.notify(&holder.incarnation));
    }
    let done = keys.of("done");
    let read = |message: &Msg| {
        let text = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
        if let Some(id) = message.get_channel_name().strip_prefix(&done) {
            return id.parse().ok().map(Notice::Ended);
        }
        match text.split_once(' ') {
            Some(("cancel", id)) => id.parse().ok().map(Notice::Cancel),
            _ if text == "due" => Some(Notice::DueEarlier),
            // Of a newer version, or published by hand.
            _ => None,
        }
    };
    let mut listens = listeners.add();
    let mut watched = HashSet::new();
    let reconnected = || Some(Notice::Reconnected);
    subscribe_for_ever(&link, channels, &keys, &mut listens, &mut watched, &out, read, reconnected)
        .await;
}

/// Runs a subscription to lifecycle events until its receiver is dropped.
pub(super) async fn run_events(link: Arc<Link>, keys: Keys, out: mpsc::UnboundedSender<String>) {
    let channels = vec![keys.of("events")];
    let read = |message: &Msg| String::from_utf8(message.get_payload_bytes().to_vec()).ok();
    // Nobody listens for ends here: the sender is kept so that the channel stays quiet.
    let (_quiet, mut listens) = mpsc::unbounded_channel();
    let mut watched = HashSet::new();
    subscribe_for_ever(&link, channels, &keys, &mut listens, &mut watched, &out, read, || None)
        .await;
}

#[expect(
    clippy::too_many_arguments,
    reason = "one loop for both subscriptions; they differ in these"
)]
async fn subscribe_for_ever<T>(
    link: &Link,
    channels: Vec<String>,
    keys: &Keys,
    listens: &mut mpsc::UnboundedReceiver<Listen>,
    watched: &mut HashSet<TaskId>,
    out: &mpsc::UnboundedSender<T>,
    read: impl Fn(&Msg) -> Option<T>,
    reconnected: impl Fn() -> Option<T>,
) {
    let mut pause = Duration::from_millis(50);
    while !out.is_closed() {
        if let Ok(pubsub) = link.pubsub().await {
            let (mut sink, stream) = pubsub.split();
            if subscribe(&mut sink, &channels, keys, watched).await {
                pause = Duration::from_millis(50);
                if let Some(notice) = reconnected() {
                    let _ = out.send(notice);
                }
                listen(sink, stream, keys, listens, watched, out, &read).await;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause.mul_f64(0.75 + fastrand::f64() / 2.0)) => {}
            () = out.closed() => return,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn subscribe(
    sink: &mut PubSubSink,
    channels: &[String],
    keys: &Keys,
    watched: &HashSet<TaskId>,
) -> bool {
    let all: Vec<String> =
        channels.iter().cloned().chain(watched.iter().map(|id| keys.done(*id))).collect();
    all.is_empty() || in_time(sink.subscribe(&all)).await
}

/// Whether the server confirmed in time.
async fn in_time<T>(asked: impl Future<Output = redis::RedisResult<T>>) -> bool {
    matches!(tokio::time::timeout(PING_TIMEOUT, asked).await, Ok(Ok(_)))
}

/// Passes messages on until the connection ends or nobody listens.
async fn listen<T>(
    mut sink: PubSubSink,
    mut stream: impl futures_util::Stream<Item = Msg> + Unpin,
    keys: &Keys,
    listens: &mut mpsc::UnboundedReceiver<Listen>,
    watched: &mut HashSet<TaskId>,
    out: &mpsc::UnboundedSender<T>,
    read: &impl Fn(&Msg) -> Option<T>,
) {
    let mut ping = tokio::time::interval_at(tokio::time::Instant::now() + PING_EVERY, PING_EVERY);
    let done = keys.of("done");
    loop {
        tokio::select! {
            message = stream.next() => {
                let Some(message) = message else { return };
                if let Some(id) = message.get_channel_name().strip_prefix(&done).and_then(|id| id.parse().ok())
                    && watched.remove(&id)
                    && !in_time(sink.unsubscribe(keys.done(id))).await
                {
                    return;
                }
                if let Some(item) = read(&message) && out.send(item).is_err() {
                    return;
                }
            }
            Some((id, listening)) = listens.recv() => {
                if watched.insert(id) && !in_time(sink.subscribe(keys.done(id))).await {
                    return;
                }
                let _ = listening.send(());
            }
            _ = ping.tick() => {
                if !in_time(sink.ping::<redis::Value>()).await {
                    return;
                }
            }
            () = out.closed() => return,
        }
    }
}
