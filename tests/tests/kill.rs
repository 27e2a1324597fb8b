//! Processes that are killed, stopped and continued (SPEC 12): nothing is lost, nothing runs twice
//! at once, no stale holder changes anything.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dtq::{Client, Status, TaskId};
use dtq_tests::{PATIENCE, RedisServer, client, config, until};

/// Worker processes on one server, and their common log.
struct Fleet {
    server: RedisServer,
    client: Client,
    log: PathBuf,
    workers: Vec<Child>,
}

impl Fleet {
    fn start(workers: usize) -> Self {
        let server = RedisServer::start();
        let client = client(config(&server.url()).max_queue_depth(100_000));
        let log = server.dir().join("attempts.log");
        let mut fleet = Self { server, client, log, workers: Vec::new() };
        for _ in 0..workers {
            let worker = fleet.spawn(&[]);
            fleet.workers.push(worker);
        }
        fleet
    }

    fn spawn(&self, environment: &[(&str, &str)]) -> Child {
        let errors = std::fs::File::options()
            .append(true)
            .create(true)
            .open(self.server.dir().join("stderr.log"));
        Command::new(env!("CARGO_BIN_EXE_fault-worker"))
            .arg(&self.log)
            .env("DTQ_URL", self.server.url())
            .env("DTQ_VISIBILITY_TIMEOUT_S", "1.5")
            .env("DTQ_WORKER_CONCURRENCY", "16")
            .env("DTQ_DRAIN_TIMEOUT_S", "5")
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(errors.map_or_else(|_| Stdio::null(), Stdio::from))
            .spawn()
            .expect("the worker's program starts")
    }

    async fn enqueue(&self, name: &str, payload: String) -> TaskId {
        self.client.enqueue_raw(name, payload).max_attempts(10).await.unwrap().id()
    }

    async fn status(&self, id: TaskId) -> Status {
        self.client.inspect().task(id).await.unwrap().expect("accepted tasks have a record").status
    }

    fn lines(&self) -> Vec<Line> {
        read_log(&self.log)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

/// What one task function saw.
#[derive(Debug, Clone, PartialEq)]
struct Line {
    micros: u128,
    id: String,
    attempt: u32,
    what: String,
    pid: u32,
}

fn read_log(path: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some(Line {
                micros: words.next()?.parse().ok()?,
                id: words.next()?.to_owned(),
                attempt: words.next()?.parse().ok()?,
                what: words.next()?.to_owned(),
                pid: words.next()?.parse().ok()?,
            })
        })
        .collect()
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(child.id().to_string()).status();
    assert!(sent.is_ok_and(|status| status.success()), "kill -{name}");
}

/// I1, I2, I4: each accepted task has ended, once, after at most so many executions, attempts rising.
fn check(accepted: &BTreeMap<TaskId, Status>, lines: &[Line], max_attempts: u32) {
    let mut by_task: HashMap<&str, Vec<&Line>> = HashMap::new();
    for line in lines {
        by_task.entry(&line.id).or_default().push(line);
    }
    for (id, status) in accepted {
        assert!(status.is_terminal(), "I1: {id} is {status}");
        let own = by_task.remove(id.to_string().as_str()).unwrap_or_default();
        let starts: Vec<u32> =
            own.iter().filter(|l| l.what == "start").map(|l| l.attempt).collect();
        let mut distinct = starts.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), starts.len(), "I3, I4: an attempt of {id} ran twice: {own:?}");
        assert!(starts.len() <= max_attempts as usize, "I4: {id} ran {starts:?}");
        assert!(starts.is_sorted(), "I4: attempts of {id} went down: {starts:?}");
        if *status == Status::Succeeded {
            let ended = own.iter().filter(|line| line.what == "end").count();
            assert!(ended >= 1, "{id} succeeded without having run to its end: {own:?}");
        }
    }
    assert!(by_task.is_empty(), "something ran that was not accepted: {:?}", by_task.keys());
}

/// Two workers, one of them the scheduler's leader, are killed at random while 20000 tasks run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spec_12_workers_killed_at_random_lose_and_double_nothing() {
    const TASKS: u64 = 20_000;
    let mut fleet = Fleet::start(2);
    let mut accepted = BTreeMap::new();
    for chunk in 0..TASKS / 1000 {
        let batch = (0..1000).map(|n| {
            let n = chunk * 1000 + n;
            let enqueue =
                fleet.client.enqueue_raw("work", format!(r#"{{"n":{n},"ms":{}}}"#, n % 40));
            // Every twentieth waits in the schedule first.
            let delay = if n % 20 == 0 { Duration::from_millis(n % 3000) } else { Duration::ZERO };
            enqueue.max_attempts(10).delay(delay)
        });
        for handle in fleet.client.enqueue_all(batch).await.unwrap() {
            accepted.insert(handle.id(), Status::Queued);
        }
    }
    let started = Instant::now();
    let mut kills = 0;
    let left = async |fleet: &Fleet| {
        let queues = fleet.client.inspect().queues().await.unwrap();
        queues.iter().map(|queue| queue.depth + queue.scheduled).sum::<u64>()
    };
    while left(&fleet).await > 0 {
        assert!(
            started.elapsed() < Duration::from_secs(180),
            "{} tasks are left",
            left(&fleet).await
        );
        tokio::time::sleep(Duration::from_millis(fastrand::u64(300..1500))).await;
        if started.elapsed() < Duration::from_secs(60) {
            let at = fastrand::usize(0..fleet.workers.len());
            fleet.workers[at].kill().unwrap();
            fleet.workers[at].wait().unwrap();
            kills += 1;
            fleet.workers[at] = fleet.spawn(&[]);
        }
    }
    let all: Vec<TaskId> = accepted.keys().copied().collect();
    let mut endings: BTreeMap<String, u64> = BTreeMap::new();
    for id in all {
        let status = fleet.status(id).await;
        *endings.entry(status.to_string()).or_default() += 1;
        accepted.insert(id, status);
    }
    let lines = fleet.lines();
    println!(
        "{kills} kills, {} executions of {TASKS} tasks: {endings:?}",
        lines.iter().filter(|l| l.what == "start").count()
    );
    assert!(kills >= 5, "only {kills} kills: the test shows nothing");
    check(&accepted, &lines, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c13_a_task_that_kills_its_worker_each_time_ends_after_its_attempts() {
    let mut fleet = Fleet::start(1);
    let id = fleet.client.enqueue_raw("abort", "{}").max_attempts(3).await.unwrap().id();
    let other = fleet.enqueue("work", r#"{"n":1,"ms":1}"#.to_owned()).await;
    let started = Instant::now();
    while !fleet.status(id).await.is_terminal() {
        assert!(started.elapsed() < PATIENCE * 2, "it never ends");
        if fleet.workers[0].try_wait().unwrap().is_some() {
            fleet.workers[0] = fleet.spawn(&[]);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let info = fleet.client.inspect().task(id).await.unwrap().unwrap();
    assert_eq!((info.status, info.attempt), (Status::DeadLettered, 3));
    assert_eq!(info.last_error.unwrap().info.class, "worker_lost");
    let starts = fleet.lines().iter().filter(|line| line.id == id.to_string()).count();
    assert_eq!(starts, 3, "not a fourth time");
    if fleet.workers[0].try_wait().unwrap().is_some() {
        fleet.workers[0] = fleet.spawn(&[]);
    }
    until("the other task ends", async || fleet.status(other).await == Status::Succeeded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c10_a_worker_stopped_past_its_lease_changes_nothing_when_it_continues() {
    let mut fleet = Fleet::start(1);
    let id = fleet.enqueue("work", r#"{"n":1,"ms":1000}"#.to_owned()).await;
    until("it runs", async || !fleet.lines().is_empty()).await;
    signal(&fleet.workers[0], "STOP");
    let second = fleet.spawn(&[]);
    fleet.workers.push(second);
    until("another finishes it", async || fleet.status(id).await == Status::Succeeded).await;
    let info = fleet.client.inspect().task(id).await.unwrap().unwrap();
    assert_eq!(info.attempt, 2);
    signal(&fleet.workers[0], "CONT");
    // It has caught up once it runs something again.
    let done = fleet.workers[1].id();
    signal(&fleet.workers[1], "TERM");
    until("the second has left", async || fleet.workers[1].try_wait().unwrap().is_some()).await;
    let next = fleet.enqueue("work", r#"{"n":2,"ms":0}"#.to_owned()).await;
    until("the first works on", async || fleet.status(next).await == Status::Succeeded).await;
    let after = fleet.client.inspect().task(id).await.unwrap().unwrap();
    assert_eq!(
        (after.status, after.attempt, after.finished_ms),
        (Status::Succeeded, 2, info.finished_ms)
    );
    assert_eq!(after.worker_id, info.worker_id, "{done}");
    let letters = fleet.client.inspect().dead_letters(&Default::default(), None, 10).await.unwrap();
    assert!(letters.items.is_empty());
    assert_eq!(fleet.client.inspect().queues().await.unwrap()[0].depth, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spec_7_8_sigterm_drains_releases_and_ends() {
    let mut fleet = Fleet::start(0);
    let worker = fleet.spawn(&[("DTQ_DRAIN_TIMEOUT_S", "1")]);
    fleet.workers.push(worker);
    let short = fleet.enqueue("work", r#"{"n":1,"ms":500}"#.to_owned()).await;
    let long = fleet.enqueue("work", r#"{"n":2,"ms":20000}"#.to_owned()).await;
    until("both run", async || fleet.lines().len() == 2).await;
    signal(&fleet.workers[0], "TERM");
    until("it ends", async || fleet.workers[0].try_wait().unwrap().is_some()).await;
    assert!(fleet.workers[0].wait().unwrap().success());
    assert_eq!(fleet.status(short).await, Status::Succeeded);
    let info = fleet.client.inspect().task(long).await.unwrap().unwrap();
    assert_eq!((info.status, info.attempt), (Status::Queued, 1), "1.3: released, no attempt burnt");
    assert_eq!(info.history.last().unwrap().outcome, "released");
    let workers = fleet.client.inspect().workers().await.unwrap();
    assert!(workers.is_empty(), "it signed off: {workers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spec_7_8_a_second_signal_ends_at_once() {
    let mut fleet = Fleet::start(1);
    fleet.enqueue("work", r#"{"n":1,"ms":20000}"#.to_owned()).await;
    until("it runs", async || fleet.lines().len() == 1).await;
    signal(&fleet.workers[0], "TERM");
    // The first must have been seen before the second comes, or both count as one.
    tokio::time::sleep(Duration::from_millis(200)).await;
    signal(&fleet.workers[0], "TERM");
    until("it ends", async || fleet.workers[0].try_wait().unwrap().is_some()).await;
    assert_eq!(fleet.workers[0].wait().unwrap().code(), Some(143));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spec_7_5_c17_h16_a_draining_worker_keeps_its_leases() {
    let mut fleet = Fleet::start(0);
    let draining = fleet.spawn(&[("DTQ_DRAIN_TIMEOUT_S", "30")]);
    fleet.workers.push(draining);
    let id = fleet.enqueue("work", r#"{"n":1,"ms":5000}"#.to_owned()).await;
    until("it runs", async || fleet.lines().len() == 1).await;
    let peer = fleet.spawn(&[]);
    fleet.workers.push(peer);
    signal(&fleet.workers[0], "TERM");
    until("it ends", async || fleet.workers[0].try_wait().unwrap().is_some()).await;
    let info = fleet.client.inspect().task(id).await.unwrap().unwrap();
    assert_eq!((info.status, info.attempt), (Status::Succeeded, 1));
    assert_eq!(fleet.lines().iter().filter(|line| line.what == "start").count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c18_with_redis_gone_sigterm_ends_by_the_drain_deadline() {
    let mut fleet = Fleet::start(0);
    let worker = fleet.spawn(&[("DTQ_DRAIN_TIMEOUT_S", "1")]);
    fleet.workers.push(worker);
    fleet.enqueue("work", r#"{"n":1,"ms":20000}"#.to_owned()).await;
    until("it runs", async || fleet.lines().len() == 1).await;
    fleet.server.kill();
    signal(&fleet.workers[0], "TERM");
    let signalled = Instant::now();
    until("it ends", async || fleet.workers[0].try_wait().unwrap().is_some()).await;
    // One second to drain, one each for giving back and signing off, and a loaded machine.
    assert!(signalled.elapsed() < Duration::from_secs(8), "{:?}", signalled.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c14_h28_a_restart_under_the_same_id_takes_over_what_the_killed_one_held() {
    let mut fleet = Fleet::start(0);
    let named = [("DTQ_WORKER_ID", "worker-named"), ("DTQ_HEARTBEAT_INTERVAL_S", "0.3")];
    let worker = fleet.spawn(&named);
    fleet.workers.push(worker);
    let id = fleet.enqueue("work", r#"{"n":1,"ms":1000}"#.to_owned()).await;
    until("it runs", async || fleet.lines().len() == 1).await;
    fleet.workers[0].kill().unwrap();
    fleet.workers[0].wait().unwrap();
    fleet.workers[0] = fleet.spawn(&named);
    until("it is redelivered and ends", async || fleet.status(id).await == Status::Succeeded).await;
    // While the first lives, a second of that id is refused.
    let mut twin = fleet.spawn(&named);
    until("the twin gives up", async || twin.try_wait().unwrap().is_some()).await;
    assert!(!twin.wait().unwrap().success());
    let workers = fleet.client.inspect().workers().await.unwrap();
    assert_eq!(workers.len(), 1);
    assert!(!workers[0].stale, "H28");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c12_the_leaders_work_is_taken_over_within_its_locks_time() {
    let mut fleet = Fleet::start(2);
    let mut raw = fleet.server.raw().await;
    until("one leads", async || raw.run::<i64>(&["EXISTS", "dtq:lock:scheduler"]).await == 1).await;
    let leader: String = raw.run(&["GET", "dtq:lock:scheduler"]).await;
    let pid = fleet
        .client
        .inspect()
        .workers()
        .await
        .unwrap()
        .iter()
        .find(|w| w.id == leader)
        .unwrap()
        .pid;
    let id = fleet
        .client
        .enqueue_raw("work", r#"{"n":1,"ms":0}"#)
        .delay(Duration::from_millis(300))
        .await
        .unwrap()
        .id();
    let at = fleet.workers.iter().position(|worker| worker.id() == pid).unwrap();
    fleet.workers[at].kill().unwrap();
    let killed = Instant::now();
    until("it runs all the same", async || fleet.status(id).await == Status::Succeeded).await;
    assert!(killed.elapsed() < Duration::from_secs(14), "8.4: at most 10 s, and a loaded machine");
}
