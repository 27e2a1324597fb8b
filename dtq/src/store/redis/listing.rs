//! Reading for inspection (SPEC 9.5): from the structures that hold the tasks, never by KEYS, a
//! bounded number of records a page.

use redis::Value;

use super::RedisStore;
use super::records::{self, Fields};
use super::reply::Reply;
use crate::id::TaskId;
use crate::inspect::{AuditEntry, DeadLetter, QueueInfo, TaskFilter, TaskInfo, WorkerInfo};
use crate::status::Status;
use crate::store::{DeadLetterFilter, Page, StoreError, StoreResult};

/// Records that one page examines at most.
const EXAMINED: usize = 1000;
/// Records read in one round trip.
const CHUNK: usize = 100;

/// Where live and finished tasks are found, in the order in which a listing goes through them.
#[derive(Debug, Clone, PartialEq)]
enum Source {
    Stream(String, u8),
    Schedule,
    Claimed,
    Recent,
    DeadLetters,
}

/// An entry of a stream.
struct Entry {
    id: String,
    fields: Fields,
}

fn entries(value: Value) -> StoreResult<Vec<Entry>> {
    Reply(value)
        .list()?
        .into_iter()
        .map(|entry| {
            let [id, fields] = entry.tuple("a stream")?;
            Ok(Entry { id: id.text()?, fields: records::fields(fields.0)? })
        })
        .collect()
}

impl RedisStore {
    pub(super) async fn read_task(&self, id: TaskId) -> StoreResult<Option<TaskInfo>> {
        Ok(self.read_tasks(&[id]).await?.pop())
    }

    /// The records that exist, in the order of the ids.
    async fn read_tasks(&self, ids: &[TaskId]) -> StoreResult<Vec<TaskInfo>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut ask = redis::pipe();
        for id in ids {
            ask.cmd("HGETALL").arg(self.keys.task(id));
            ask.cmd("GET").arg(self.keys.result(*id));
        }
        let mut answers = self.link.pipeline(&ask).await?.into_iter();
        let mut found = Vec::new();
        for id in ids {
            let (Some(record), Some(result)) = (answers.next(), answers.next()) else {
                break;
            };
            let result = match result {
                Value::BulkString(json) => Some(json),
                _ => None,
            };
            found.extend(records::task(*id, &records::fields(record)?, result));
        }
        Ok(found)
    }

    fn sources(&self, filter: &TaskFilter, queues: &[String]) -> Vec<Source> {
        let wants =
            |statuses: &[Status]| filter.status.is_none_or(|status| statuses.contains(&status));
        let mut sources = Vec::new();
        if wants(&[Status::Queued, Status::Running]) {
            for queue in queues {
                if filter.queue.as_ref().is_none_or(|wanted| wanted == queue) {
                    sources.extend((0..=9).rev().map(|p| Source::Stream(queue.clone(), p)));
                }
            }
        }
        if wants(&[Status::Pending, Status::Retrying]) {
            sources.extend([Source::Schedule, Source::Claimed]);
        }
        let ended: Vec<_> = Status::ALL.into_iter().filter(|status| status.is_terminal()).collect();
        if wants(&ended) {
            sources.push(Source::Recent);
        }
        if filter.status == Some(Status::DeadLettered) {
            // Dead letters outlive the list of recent ends.
            sources.push(Source::DeadLetters);
        }
        sources
    }

    /// Ids from `source` after `position`, with the position of each.
    async fn ids_of(&self, source: &Source, position: &str) -> StoreResult<Vec<(String, String)>> {
        let scored = |value: Value, offset: usize| -> StoreResult<Vec<(String, String)>> {
            let members = Reply(value).list()?.into_iter().map(Reply::text);
            let members = members.collect::<StoreResult<Vec<_>>>()?;
            Ok(members
                .into_iter()
                .enumerate()
                .map(|(i, id)| (id, (offset + i + 1).to_string()))
                .collect())
        };
        let offset: usize = position.parse().unwrap_or(0);
        let zset = |command: &str, name: &str| {
            let mut ask = redis::cmd(command);
            ask.arg(self.keys.of(name)).arg(offset).arg(offset + CHUNK - 1);
            ask
        };
        let stream = |command: &str, key: String, open: &str, end: &str| {
            let from = if position.is_empty() { open.to_owned() } else { format!("({position}") };
            let mut ask = redis::cmd(command);
            ask.arg(key).arg(from).arg(end).arg("COUNT").arg(CHUNK);
            ask
        };
        let named = |value: Value| -> StoreResult<Vec<(String, String)>> {
            Ok(entries(value)?
                .into_iter()
                .map(|entry| {
                    let id = entry.fields.get("i").cloned().unwrap_or_default();
                    (String::from_utf8_lossy(&id).into_owned(), entry.id)
                })
                .collect())
        };
        match source {
            Source::Stream(queue, priority) => {
                let ask = stream("XRANGE", self.keys.stream(queue, *priority), "-", "+");
                named(self.link.command(&ask).await?)
            }
            Source::DeadLetters => {
                let ask = stream("XREVRANGE", self.keys.of("dead_letters"), "+", "-");
                named(self.link.command(&ask).await?)
            }
            Source::Schedule => {
                scored(self.link.command(&zset("ZRANGE", "schedule")).await?, offset)
            }
            Source::Claimed => scored(self.link.command(&zset("ZRANGE", "claimed")).await?, offset),
            Source::Recent => {
                scored(self.link.command(&zset("ZREVRANGE", "recent")).await?, offset)
            }
        }
    }

    pub(super) async fn list_tasks(
        &self,
        filter: &TaskFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> StoreResult<Page<TaskInfo>> {
        let queues = crate::store::Store::queue_names(self).await?;
        let sources = self.sources(filter, &queues);
        let (mut index, mut position) = read_cursor(cursor)?;
        let (mut items, mut examined) = (Vec::new(), 0);
        while let Some(source) = sources.get(index) {
            let found = self.ids_of(source, &position).await?;
            let exhausted = found.len() < CHUNK;
            let ids: Vec<TaskId> = found.iter().filter_map(|(id, _)| id.parse().ok()).collect();
            let mut tasks = self.read_tasks(&ids).await?.into_iter().peekable();
            for (id, after) in found {
                examined += 1;
                position = after;
                if let Some(task) = tasks.next_if(|task| task.id.to_string() == id)
                    && matches(&task, filter, source)
                {
                    items.push(task);
                }
                if items.len() >= limit || examined >= EXAMINED {
                    return Ok(Page { items, next: Some(format!("{index}|{position}")) });
                }
            }
            if exhausted {
                index += 1;
                position.clear();
            }
        }
        Ok(Page { items, next: None })
    }

    pub(super) async fn list_queues(&self) -> StoreResult<Vec<QueueInfo>> {
        let mut infos = Vec::new();
        for name in crate::store::Store::queue_names(self).await? {
            infos.push(self.queue_info(name).await?);
        }
        Ok(infos)
    }

    async fn queue_info(&self, name: String) -> StoreResult<QueueInfo> {
        let mut ask = redis::pipe();
        ask.cmd("TIME").cmd("EXISTS").arg(self.keys.paused(&name));
        ask.cmd("HGETALL").arg(self.keys.stats(&name));
        for priority in 0..=9 {
            let stream = self.keys.stream(&name, priority);
            ask.cmd("XLEN").arg(&stream);
            ask.cmd("XRANGE").arg(&stream).arg("-").arg("+").arg("COUNT").arg(1);
        }
        let mut answers = self.link.pipeline(&ask).await?.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil);
        let [seconds, micros] = Reply(next()).tuple("TIME")?;
        let now = seconds.number()? * 1000 + micros.number()? / 1000;
        let paused = Reply(next()).number()? == 1;
        let stats = records::fields(next())?;
        let count = |name: &str| -> u64 {
            let text = stats.get(name).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            text.and_then(|text| text.parse::<i64>().ok()).map_or(0, |n| n.max(0).unsigned_abs())
        };
        let (mut depth, mut oldest, mut filled) = (0, None::<u64>, Vec::new());
        for priority in 0..=9 {
            let length = Reply(next()).number()?;
            depth += length;
            let first = entries(next())?;
            if let Some(entry) = first.first() {
                let ms = entry.id.split('-').next().and_then(|ms| ms.parse().ok()).unwrap_or(now);
                oldest = Some(oldest.map_or(ms, |oldest: u64| oldest.min(ms)));
                filled.push(priority);
            }
        }
        Ok(QueueInfo {
            running: self.running(&name, &filled).await?,
            paused,
            depth,
            scheduled: count("scheduled"),
            oldest_age_ms: oldest.map(|oldest| now.saturating_sub(oldest)),
            succeeded: count("succeeded"),
            failed: count("failed"),
            name,
        })
    }

    /// Entries that were read and not yet finished.
    async fn running(&self, queue: &str, priorities: &[u8]) -> StoreResult<u64> {
        let mut running = 0;
        for priority in priorities {
            let mut ask = redis::cmd("XPENDING");
            ask.arg(self.keys.stream(queue, *priority)).arg("workers");
            match self.link.command(&ask).await {
                Ok(summary) => {
                    if let Some(count) = Reply(summary).list()?.into_iter().next() {
                        running += count.number()?;
                    }
                }
                // No worker has read from it yet.
                Err(StoreError::Failed(text)) if text.contains("NOGROUP") => {}
                Err(error) => return Err(error),
            }
        }
        Ok(running)
    }

    pub(super) async fn list_workers(&self) -> StoreResult<Vec<WorkerInfo>> {
        let ids = self.link.command(redis::cmd("SMEMBERS").arg(self.keys.of("workers"))).await?;
        let ids = Reply(ids).list()?.into_iter().map(Reply::text);
        let mut ids = ids.collect::<StoreResult<Vec<_>>>()?;
        ids.sort_unstable();
        let mut ask = redis::pipe();
        ask.cmd("TIME");
        for id in &ids {
            ask.cmd("HGETALL").arg(self.keys.worker(id));
        }
        let mut answers = self.link.pipeline(&ask).await?.into_iter();
        let [seconds, micros] = Reply(answers.next().unwrap_or(Value::Nil)).tuple("TIME")?;
        let now = seconds.number()? * 1000 + micros.number()? / 1000;
        let mut workers = Vec::new();
        for (id, hash) in ids.into_iter().zip(answers) {
            let hash = records::fields(hash)?;
            if !hash.is_empty() {
                workers.push(worker_info(id, &hash, now));
            }
        }
        Ok(workers)
    }

    pub(super) async fn list_dead_letters(
        &self,
        filter: &DeadLetterFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> StoreResult<Page<DeadLetter>> {
        let (mut items, mut examined) = (Vec::new(), 0);
        let mut from = cursor.map_or_else(|| "+".to_owned(), |cursor| format!("({cursor}"));
        loop {
            let mut ask = redis::cmd("XREVRANGE");
            ask.arg(self.keys.of("dead_letters")).arg(&from).arg("-").arg("COUNT").arg(CHUNK);
            let found = entries(self.link.command(&ask).await?)?;
            let exhausted = found.len() < CHUNK;
            for entry in found {
                examined += 1;
                let letter = records::dead_letter(&entry.id, &entry.fields);
                if filter.matches(&letter) {
                    items.push(letter);
                }
                if items.len() >= limit || examined >= EXAMINED {
                    return Ok(Page { items, next: Some(entry.id) });
                }
                from = format!("({}", entry.id);
            }
            if exhausted {
                return Ok(Page { items, next: None });
            }
        }
    }

    pub(super) async fn list_audit(&self, limit: usize) -> StoreResult<Vec<AuditEntry>> {
        let mut ask = redis::cmd("XREVRANGE");
        ask.arg(self.keys.of("audit")).arg("+").arg("-").arg("COUNT").arg(limit.max(1));
        let found = entries(self.link.command(&ask).await?)?;
        let text = |fields: &Fields, name: &str| {
            fields
                .get(name)
                .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
                .unwrap_or_default()
        };
        Ok(found
            .into_iter()
            .map(|entry| AuditEntry {
                at_ms: entry.id.split('-').next().and_then(|ms| ms.parse().ok()).unwrap_or(0),
                actor: text(&entry.fields, "actor"),
                action: text(&entry.fields, "action"),
                target: text(&entry.fields, "target"),
                count: text(&entry.fields, "count").parse().unwrap_or(0),
            })
            .collect())
    }
}

fn read_cursor(cursor: Option<&str>) -> StoreResult<(usize, String)> {
    let Some(cursor) = cursor else {
        return Ok((0, String::new()));
    };
    cursor
        .split_once('|')
        .and_then(|(index, position)| Some((index.parse().ok()?, position.to_owned())))
        .ok_or_else(|| StoreError::Failed("the cursor is not one that a page returned".to_owned()))
}

fn matches(task: &TaskInfo, filter: &TaskFilter, source: &Source) -> bool {
    // A task that moved on while the listing went through the structures is listed where it is
    // now, once; dead letters are listed from one of their two sources.
    let here = match source {
        Source::Stream(..) => matches!(task.status, Status::Queued | Status::Running),
        Source::Schedule | Source::Claimed => {
            matches!(task.status, Status::Pending | Status::Retrying)
        }
        Source::Recent => {
            task.status.is_terminal()
                && !(filter.status == Some(Status::DeadLettered)
                    && task.status == Status::DeadLettered)
        }
        Source::DeadLetters => task.status == Status::DeadLettered,
    };
    here && filter.status.is_none_or(|status| status == task.status)
        && filter.queue.as_ref().is_none_or(|queue| *queue == task.queue)
        && filter.name.as_ref().is_none_or(|name| *name == task.name)
}

fn worker_info(id: String, hash: &Fields, now: u64) -> WorkerInfo {
    let text = |name: &str| {
        hash.get(name).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
    };
    let number = |name: &str| text(name).parse::<u64>().unwrap_or(0);
    let last_seen_ago_ms = now.saturating_sub(number("beat"));
    WorkerInfo {
        id,
        incarnation: text("incarnation"),
        queues: text("queues").split(',').filter(|q| !q.is_empty()).map(str::to_owned).collect(),
        concurrency: number("concurrency"),
        in_flight: number("in_flight"),
        interval_ms: number("interval"),
        last_seen_ago_ms,
        stale: last_seen_ago_ms > 3 * number("interval"),
        pid: number("pid") as u32,
        host: text("host"),
    }
}
