//! The troubles of the storm: each begins, lasts, ends, and is written into the log with its times.

use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use dtq_tests::history::{self, Saw};
use dtq_tests::{Passing, Raw, RedisServer};

use super::Storm;

/// What may go wrong.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    /// SIGKILL of a worker.
    Kill,
    /// SIGSTOP of a worker past its leases, then SIGCONT.
    Stop,
    /// SIGTERM of a worker, which drains.
    Term,
    /// SIGSTOP of a worker past its leases, SIGTERM, and SIGCONT: it hands back what it has lost.
    StopTerm,
    /// A worker that is cut off is told to shut down: what it hands back arrives when its leases are others'.
    HoldTerm,
    /// A task whose function aborts its process.
    Abort,
    /// The reply to a worker's next request is lost.
    LostReply,
    /// The reply to the producer's next request is lost.
    LostAnswer,
    /// A worker's connections stay open and pass nothing on.
    Hold,
    /// A worker's connections are reset.
    Reset,
    /// A worker's bytes are late.
    Late,
    /// A worker's bytes come one by one.
    Bytes,
    /// A worker's connections are reset and new ones refused.
    Refuse,
    /// SCRIPT FLUSH.
    ScriptFlush,
    /// XGROUP DESTROY of every stream.
    GroupDestroy,
    /// CLIENT KILL of everybody.
    ClientKill,
    /// CLIENT PAUSE for 300 ms.
    ClientPause,
    /// The server is over its memory limit.
    Oom,
    /// The server is a read-only replica.
    Replica,
    /// The server is killed, and started again with its append-only file.
    ServerKill,
    /// Entries are in their streams twice.
    Duplicates,
    /// The scheduler's lock is gone.
    NoLeader,
    /// A reader that keeps the SQLite file open in one transaction.
    LongReader,
}

impl Trouble {
    /// Whether a store can have it.
    pub(crate) fn fits(self, redis: bool) -> bool {
        use Trouble::*;
        match self {
            Kill | Stop | Term | StopTerm | Abort => true,
            LongReader => !redis,
            _ => redis,
        }
    }
}

pub(crate) fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status();
    assert!(sent.is_ok_and(|status| status.success()), "kill -{name} {pid}");
}

async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

async fn streams(raw: &mut Raw) -> Vec<String> {
    let queues: Vec<String> = raw.run(&["SMEMBERS", "dtq:queues"]).await;
    let mut streams = Vec::new();
    for queue in queues {
        for priority in 0..10 {
            let stream = format!("dtq:stream:{queue}:p{priority}");
            if raw.run::<i64>(&["EXISTS", &stream]).await == 1 {
                streams.push(stream);
            }
        }
    }
    streams
}

impl Storm {
    /// Makes that trouble for one of the workers, or for all.
    pub(crate) async fn make(&mut self, trouble: Trouble) {
        use Trouble::*;
        let at = self.random.usize(0..self.workers.len());
        let long = u64::try_from(self.settings.visibility.as_millis()).unwrap_or(u64::MAX);
        // Every other worker drains for too long to hand back anything.
        let at = if trouble == HoldTerm { at / 2 * 2 } else { at };
        let pid = self.workers[at].child.id();
        let from = history::now();
        let (mut victim, mut leases) = (Some(pid), false);
        match trouble {
            Kill => {
                self.log.write(Saw::Dying { victim: pid });
                self.end(at);
                self.workers[at] = self.spawn(at).await;
            }
            Stop | StopTerm => {
                leases = true;
                signal(pid, "STOP");
                // Every other worker has leases of twice that length.
                let milliseconds = self.random.u64(long..long * 3);
                pause(milliseconds).await;
                if trouble == StopTerm {
                    self.retire(at).await;
                }
                signal(pid, "CONT");
            }
            HoldTerm => {
                leases = true;
                self.workers[at].proxy().pass_on(Passing::Held);
                // Long enough for the lease to lapse, too short for the successor to be done.
                let milliseconds = self.random.u64(long * 3 / 4..long * 5 / 4);
                pause(milliseconds).await;
                self.retire(at).await;
                // Within what it takes to drain and to say its last words.
                pause(800).await;
                if let Some(leaving) = self.leaving.last() {
                    leaving.proxy().pass_on(Passing::AtOnce);
                }
            }
            Abort => {
                victim = None;
                let producer = std::sync::Arc::clone(&self.producer);
                tokio::spawn(async move { producer.abort().await });
            }
            Term => self.retire(at).await,
            LostReply => self.workers[at].proxy().lose_reply_to(""),
            LostAnswer => {
                victim = None;
                if let Some(proxy) = &self.producers_proxy {
                    proxy.lose_reply_to("");
                }
            }
            Hold | Late | Bytes | Refuse => {
                let (passing, milliseconds) = match trouble {
                    Hold => (Passing::Held, self.random.u64(200..long * 3)),
                    Late => (Passing::Late, 1000),
                    Bytes => (Passing::ByteByByte, 1000),
                    _ => (Passing::Refused, self.random.u64(200..long)),
                };
                leases = matches!(trouble, Hold | Refuse);
                let proxy = self.workers[at].proxy();
                proxy.pass_on(passing);
                if trouble == Refuse {
                    proxy.reset();
                }
                pause(milliseconds).await;
                self.workers[at].proxy().pass_on(Passing::AtOnce);
            }
            Reset => self.workers[at].proxy().reset(),
            LongReader => {
                victim = None;
                let file = self.place.file().expect("only on SQLite");
                let reader = rusqlite::Connection::open(file).expect("the file opens");
                let begun = reader.execute_batch("BEGIN; SELECT COUNT(*) FROM task;");
                begun.expect("it reads");
                pause(1000).await;
            }
            _ => {
                victim = None;
                leases = matches!(trouble, Replica | ServerKill);
                self.of_the_server(trouble).await;
            }
        }
        let kind = format!("{trouble:?}");
        self.log.write(Saw::Trouble { kind, victim, from, to: history::now(), leases });
    }

    /// SIGTERM; its successor comes at once, as in a rolling deployment.
    async fn retire(&mut self, at: usize) {
        signal(self.workers[at].child.id(), "TERM");
        let successor = self.spawn(at).await;
        let leaving = std::mem::replace(&mut self.workers[at], successor);
        self.leaving.push(leaving);
    }

    async fn of_the_server(&mut self, trouble: Trouble) {
        use Trouble::*;
        let milliseconds = self.random.u64(100..800);
        if trouble == ServerKill {
            let server = self.place.server().expect("only on Redis");
            server.kill();
            pause(milliseconds).await;
            server.restart();
            return;
        }
        let server: &RedisServer = self.place.server().expect("only on Redis");
        let mut raw = server.raw().await;
        match trouble {
            ScriptFlush => raw.run::<()>(&["SCRIPT", "FLUSH"]).await,
            GroupDestroy => {
                for stream in streams(&mut raw).await {
                    raw.run::<i64>(&["XGROUP", "DESTROY", &stream, "workers"]).await;
                }
            }
            ClientKill => {
                raw.run::<i64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
                raw.run::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
            }
            ClientPause => raw.run::<()>(&["CLIENT", "PAUSE", "300", "ALL"]).await,
            Oom => {
                raw.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await;
                pause(milliseconds).await;
                raw.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]).await;
            }
            Replica => {
                // Of a server that is not there: every write is READONLY.
                raw.run::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await;
                pause(milliseconds).await;
                raw.run::<()>(&["REPLICAOF", "NO", "ONE"]).await;
            }
            Duplicates => {
                for stream in streams(&mut raw).await {
                    let entries: Vec<(String, Vec<String>)> =
                        raw.run(&["XREVRANGE", &stream, "+", "-", "COUNT", "20"]).await;
                    for (_, fields) in entries {
                        let mut add = vec!["XADD", &stream, "*"];
                        add.extend(fields.iter().map(String::as_str));
                        raw.run::<String>(&add).await;
                    }
                }
            }
            NoLeader => raw.run::<()>(&["DEL", "dtq:lock:scheduler"]).await,
            _ => unreachable!("a trouble of one worker"),
        }
    }
}
