//! Tasks in Redis or Valkey: each transition is one script (SPEC 5). See `guide/redis-layout.md`.

mod address;
mod keys;
mod link;
mod listing;
mod migrate;
mod pubsub;
mod records;
mod reply;
mod scripts;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::mpsc;

use self::keys::Keys;
use self::link::Link;
pub(crate) use self::link::is_connection_error;
use self::pubsub::Listeners;
use self::scripts::{Args, Script, Scripts};
use crate::id::TaskId;
use crate::inspect::{AuditEntry, DeadLetter, QueueInfo, TaskFilter, TaskInfo, WorkerInfo};
use crate::status::Status;
use crate::store::{
    Accepted, Actor, Cancelled, Claim, DeadLetterFilter, FetchRequest, Fetched, Finish, Finished,
    Heartbeat, Holder, Lease, Millis, Moved, NewTask, Note, Notice, Page, Reaped, Refusal,
    Registered, Renewed, Requeued, Resurrection, Settings, Store, StoreError, StoreResult,
    TakenOut,
};

/// For the fuzz target: a record, its result and a dead letter of arbitrary pairs.
#[cfg(feature = "__internals")]
pub(crate) fn decode_pieces(pieces: &[Vec<u8>]) {
    let value = Value::Array(pieces.iter().cloned().map(Value::BulkString).collect());
    let Ok(fields) = records::fields(value) else { return };
    let id = TaskId::new(0);
    if let Some(task) = records::task(id, &fields, pieces.first().cloned()) {
        assert_eq!(task.id, id);
        // What an inspector prints or sends on.
        let _ = (format!("{task:?}"), task.name.len());
    }
    let letter = records::dead_letter(&String::from_utf8_lossy(&pieces.concat()), &fields);
    let _ = format!("{letter:?}");
}

/// Name and text of every script.
#[cfg(all(test, feature = "__planted_bugs"))]
pub(crate) fn script_texts() -> Vec<(&'static str, String)> {
    let scripts = Scripts::new(&Keys::new("dtq"), &crate::store::tests::settings());
    scripts.into_all().map(|script| (script.name, script.text)).into()
}

/// The layout that this code reads and writes (SPEC 5.8).
const LAYOUT: u32 = 1;
/// `PX` of the scheduler's lock (SPEC 8.1).
const LOCK_MS: Millis = 10_000;

/// A deployment in Redis.
#[derive(Debug)]
pub(crate) struct RedisStore {
    link: Arc<Link>,
    keys: Keys,
    scripts: Scripts,
    settings: Settings,
    listeners: Arc<Listeners>,
    /// Where the repair scan goes on.
    scan_cursor: std::sync::Mutex<String>,
}

impl RedisStore {
    /// Reads the address; connects on first use.
    pub(crate) fn open(url: &str, settings: &Settings) -> StoreResult<Self> {
        let keys = Keys::new(&settings.key_prefix);
        let link = Link::new(address::client(url)?, greet, keys.of("meta"));
        Ok(Self {
            link,
            scripts: Scripts::new(&keys, settings),
            keys,
            settings: settings.clone(),
            listeners: Arc::default(),
            scan_cursor: std::sync::Mutex::new("0".to_owned()),
        })
    }

    async fn run(&self, script: &Script, args: Args) -> StoreResult<Value> {
        self.link.script(script, args).await
    }

    async fn admin(
        &self,
        actor: &Actor,
        action: &str,
        rest: impl IntoIterator<Item = String>,
    ) -> StoreResult<Value> {
        let args = [actor.0.clone(), action.to_owned()].into_iter().chain(rest);
        self.run(&self.scripts.admin, Args::of(args)).await
    }

    async fn register_as(&self, mode: &str, beat: &Heartbeat) -> StoreResult<Registered> {
        let args = [
            mode.to_owned(),
            beat.holder.worker_id.clone(),
            beat.holder.incarnation.clone(),
            (beat.interval * 3).max(1).to_string(),
            "queues".to_owned(),
            beat.queues.join(","),
            "concurrency".to_owned(),
            beat.concurrency.to_string(),
            "in_flight".to_owned(),
            beat.in_flight.to_string(),
            "interval".to_owned(),
            beat.interval.to_string(),
            "pid".to_owned(),
            beat.pid.to_string(),
            "host".to_owned(),
            beat.host.clone(),
        ];
        let reply = self.run(&self.scripts.register, Args::of(args)).await?;
        let mut parts = reply::Reply(reply).list()?.into_iter();
        let mut next = || parts.next().ok_or_else(|| reply::malformed("register", "three parts"));
        if next()?.text()? == "done" {
            return Ok(Registered::Done);
        }
        Ok(Registered::Taken { incarnation: next()?.text()?, last_seen_ago: next()?.number()? })
    }
}

/// Asked of every new connection: is the server new enough, and its layout not too new?
fn greet(
    mut connection: MultiplexedConnection,
    meta_key: String,
) -> futures_util::future::BoxFuture<'static, StoreResult<()>> {
    async move {
        let mut ask = redis::pipe();
        ask.cmd("INFO").arg("server").cmd("INFO").arg("memory");
        ask.cmd("HMGET").arg(&meta_key).arg("layout").arg("shards");
        let asking = ask.query_async(&mut connection);
        let (server, memory, meta): (String, String, Vec<Option<String>>) =
            tokio::time::timeout(Duration::from_secs(5), asking)
                .await
                .map_err(|_| StoreError::Unavailable("the server does not answer".to_owned()))?
                .map_err(link::to_store_error)?;
        check_version(&server)?;
        warn_of_eviction(&memory);
        match meta.first().cloned().flatten().and_then(|layout| layout.parse::<u32>().ok()) {
            Some(layout) if layout > LAYOUT => Err(StoreError::Incompatible(format!(
                "the store has layout {layout}, this version of dtq knows layouts up to {LAYOUT}: \
                 upgrade this process"
            ))),
            Some(_) => Ok(()),
            None => {
                let mut set = redis::pipe();
                set.cmd("HSETNX").arg(&meta_key).arg("layout").arg(LAYOUT).ignore();
                set.cmd("HSETNX").arg(&meta_key).arg("shards").arg(1).ignore();
                // A server that cannot write just now can still be read from; the writes that
                // matter will say so themselves.
                let set: Result<(), _> = set.query_async(&mut connection).await;
                if let Err(error) = set {
                    tracing::debug!(%error, "the layout could not be noted");
                }
                Ok(())
            }
        }
    }
    .boxed()
}

fn info_line<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn check_version(server: &str) -> StoreResult<()> {
    // Valkey tells the Redis version that it is compatible with in the same line.
    let Some(version) = info_line(server, "redis_version") else {
        return Ok(());
    };
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    match major {
        Some(major) if major < 7 => Err(StoreError::Incompatible(format!(
            "the server is Redis {version}: dtq needs Redis 7.0 or newer, or Valkey"
        ))),
        _ => Ok(()),
    }
}

/// A server that evicts keys loses tasks (C30). Once a process is often enough.
fn warn_of_eviction(memory: &str) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    let limited = info_line(memory, "maxmemory").is_some_and(|limit| limit != "0");
    let policy = info_line(memory, "maxmemory_policy").unwrap_or("noeviction");
    if limited && policy != "noeviction" {
        ONCE.call_once(|| {
            tracing::warn!(
                policy,
                "the server evicts keys when its memory is full, which loses tasks: \
                 set maxmemory-policy to noeviction"
            );
        });
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn enqueue(
        &self,
        units: &[Vec<NewTask>],
    ) -> StoreResult<Vec<Result<Vec<Accepted>, Refusal>>> {
        let reply = self.run(&self.scripts.enqueue, scripts::enqueue_args(units)).await?;
        scripts::enqueue_reply(reply, units, &self.settings)
    }

    async fn fetch(&self, request: &FetchRequest) -> StoreResult<Fetched> {
        if request.max == 0 || request.queues.is_empty() {
            return Ok(Fetched::default());
        }
        let reply = self.run(&self.scripts.fetch, scripts::fetch_args(request)).await?;
        scripts::fetch_reply(reply)
    }

    async fn wait_for_work(&self, queues: &[String], timeout: Duration) -> StoreResult<()> {
        if queues.is_empty() {
            tokio::time::sleep(timeout).await;
            return Ok(());
        }
        let mut command = redis::cmd("BLPOP");
        for queue in queues {
            command.arg(self.keys.wake(queue));
        }
        command.arg(timeout.as_secs_f64().max(0.01));
        self.link.block(&command, timeout).await.map(|_| ())
    }

    async fn renew(
        &self,
        _holder: &Holder,
        visibility: Millis,
        leases: &[Lease],
    ) -> StoreResult<Vec<Renewed>> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let mut answers = Vec::with_capacity(leases.len());
        for chunk in leases.chunks(1000) {
            let args = scripts::renew_args(visibility, chunk);
            answers.extend(scripts::renew_reply(self.run(&self.scripts.renew, args).await?)?);
        }
        Ok(answers)
    }

    async fn finish(&self, holder: &Holder, batch: &[Finish]) -> StoreResult<Vec<Finished>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let reply = self.run(&self.scripts.finish, scripts::finish_args(holder, batch)).await?;
        let (answers, notes) = scripts::finish_reply(reply)?;
        crate::store::log_notes(&notes);
        Ok(answers)
    }

    async fn claim_due(&self, worker_id: &str, limit: usize) -> StoreResult<Claim> {
        let args = Args::of([worker_id.to_owned(), LOCK_MS.to_string(), limit.to_string()]);
        scripts::claim_reply(self.run(&self.scripts.claim, args).await?)
    }

    async fn requeue_claimed(&self, ids: &[TaskId]) -> StoreResult<Requeued> {
        if ids.is_empty() {
            return Ok(Requeued::default());
        }
        let args = Args::of(ids.iter().map(TaskId::to_string));
        scripts::requeue_reply(self.run(&self.scripts.requeue, args).await?)
    }

    async fn requeue_stale_claims(&self, older_than: Millis) -> StoreResult<usize> {
        let reply = self.run(&self.scripts.stale, Args::of([older_than.to_string()])).await?;
        Ok(reply::Reply(reply).number()? as usize)
    }

    async fn step_down(&self, worker_id: &str) -> StoreResult<()> {
        self.run(&self.scripts.step_down, Args::of([worker_id])).await.map(|_| ())
    }

    async fn reap(&self, limit: usize) -> StoreResult<Reaped> {
        let reply = self.run(&self.scripts.reap, Args::of([limit.to_string()])).await?;
        scripts::reap_reply(reply)
    }

    async fn maintain(&self) -> StoreResult<Vec<Note>> {
        let script = &self.scripts.maintain;
        let mut notes = scripts::notes_reply(self.run(script, Args::of(["workers"])).await?)?;
        for queue in self.queue_names().await? {
            let reply = self.run(script, Args::of(["queue", &queue])).await?;
            notes.extend(scripts::notes_reply(reply)?);
        }
        // A part of the keys each time: the whole is gone through in the end, and no pass is long.
        for _ in 0..20 {
            let cursor = self.scan_cursor.lock().map(|c| c.clone()).unwrap_or_else(|_| "0".into());
            let reply = self.run(script, Args::of(["scan", &cursor, "500"])).await?;
            let (next, found) = scripts::scan_reply(reply)?;
            notes.extend(found);
            let done = next == "0";
            if let Ok(mut cursor) = self.scan_cursor.lock() {
                *cursor = next;
            }
            if done {
                break;
            }
        }
        Ok(notes)
    }

    async fn register(&self, beat: &Heartbeat, take_over: bool) -> StoreResult<Registered> {
        self.register_as(if take_over { "take_over" } else { "start" }, beat).await
    }

    async fn heartbeat(&self, beat: &Heartbeat) -> StoreResult<()> {
        self.register_as("beat", beat).await.map(|_| ())
    }

    async fn deregister(&self, holder: &Holder) -> StoreResult<()> {
        let args = ["leave", &holder.worker_id, &holder.incarnation, "1"];
        self.run(&self.scripts.register, Args::of(args)).await.map(|_| ())
    }

    fn notices(&self, holder: Option<&Holder>) -> mpsc::UnboundedReceiver<Notice> {
        let (out, notices) = mpsc::unbounded_channel();
        let listeners = Arc::clone(&self.listeners);
        let (link, keys) = (Arc::clone(&self.link), self.keys.clone());
        tokio::spawn(pubsub::run_notices(link, keys, listeners, holder.cloned(), out));
        notices
    }

    async fn watch(&self, id: TaskId) -> StoreResult<Option<Status>> {
        self.listeners.listen(id).await;
        let reply = self.run(&self.scripts.watch, Args::of([id.to_string()])).await?;
        match reply::Reply(reply).signed()? {
            -1 => Ok(None),
            code => scripts::status(code).map(Some),
        }
    }

    fn events(&self) -> mpsc::UnboundedReceiver<String> {
        let (out, events) = mpsc::unbounded_channel();
        tokio::spawn(pubsub::run_events(Arc::clone(&self.link), self.keys.clone(), out));
        events
    }

    async fn task(&self, id: TaskId) -> StoreResult<Option<TaskInfo>> {
        self.read_task(id).await
    }

    async fn cancel(&self, id: TaskId) -> StoreResult<Cancelled> {
        scripts::cancel_reply(self.run(&self.scripts.cancel, Args::of([id.to_string()])).await?)
    }

    async fn tasks(
        &self,
        filter: &TaskFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> StoreResult<Page<TaskInfo>> {
        self.list_tasks(filter, cursor, limit).await
    }

    async fn queues(&self) -> StoreResult<Vec<QueueInfo>> {
        self.list_queues().await
    }

    async fn queue_names(&self) -> StoreResult<Vec<String>> {
        let reply = self.link.command(redis::cmd("SMEMBERS").arg(self.keys.of("queues"))).await?;
        let names = reply::Reply(reply).list()?.into_iter().map(reply::Reply::text);
        let mut names = names.collect::<StoreResult<Vec<_>>>()?;
        names.sort_unstable();
        Ok(names)
    }

    async fn workers(&self) -> StoreResult<Vec<WorkerInfo>> {
        self.list_workers().await
    }

    async fn set_paused(&self, queue: &str, paused: bool, actor: &Actor) -> StoreResult<()> {
        let action = if paused { "pause" } else { "resume" };
        self.admin(actor, action, [queue.to_owned()]).await.map(|_| ())
    }

    async fn purge_chunk(&self, queue: &str, actor: &Actor) -> StoreResult<(u64, bool)> {
        let reply = self.admin(actor, "purge", [queue.to_owned(), "500".to_owned()]).await?;
        let [cancelled, more] = reply::Reply(reply).tuple("purge")?;
        Ok((cancelled.number()?, more.number()? == 1))
    }

    async fn dead_letters(
        &self,
        filter: &DeadLetterFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> StoreResult<Page<DeadLetter>> {
        self.list_dead_letters(filter, cursor, limit).await
    }

    async fn resurrect(
        &self,
        ids: &[TaskId],
        actor: &Actor,
    ) -> StoreResult<Vec<Result<(), Resurrection>>> {
        let reply = self.admin(actor, "requeue", ids.iter().map(TaskId::to_string)).await?;
        scripts::resurrect_reply(reply)
    }

    async fn discard(
        &self,
        ids: &[TaskId],
        keep_records: bool,
        actor: &Actor,
    ) -> StoreResult<Vec<bool>> {
        let action = if keep_records { "discard" } else { "remove" };
        let reply = self.admin(actor, action, ids.iter().map(TaskId::to_string)).await?;
        reply::Reply(reply).list()?.into_iter().map(|part| Ok(part.number()? == 1)).collect()
    }

    async fn audit(
        &self,
        actor: &Actor,
        action: &str,
        target: &str,
        count: u64,
    ) -> StoreResult<()> {
        let rest = [action.to_owned(), target.to_owned(), count.to_string()];
        self.admin(actor, "note", rest).await.map(|_| ())
    }

    async fn audit_trail(&self, limit: usize) -> StoreResult<Vec<AuditEntry>> {
        self.list_audit(limit).await
    }

    async fn take_out(&self, limit: usize) -> StoreResult<TakenOut> {
        self.taken_out(limit).await
    }

    async fn put_in(&self, moved: &[Moved]) -> StoreResult<()> {
        self.run(&self.scripts.migrate, migrate::put_args(moved)?).await.map(|_| ())
    }

    async fn drop_taken(&self, marks: &[String]) -> StoreResult<()> {
        self.marks("drop", marks).await
    }

    async fn forget_marks(&self, marks: &[String]) -> StoreResult<()> {
        self.marks("forget", marks).await
    }

    async fn ping(&self) -> StoreResult<()> {
        self.link.command(&redis::cmd("PING")).await.map(|_| ())
    }
}
