//! `dtq::migrate`: from the file to a redis-server and back, with everything that waits in it.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use dtq::{Client, EnqueueError, MigrateError, Status, TaskError, Worker};
use dtq_tests::{RedisServer, SqliteFile, client, config, until};

type Order = Arc<Mutex<Vec<u32>>>;

#[dtq::task(queue = "order")]
async fn noted(n: u32, #[state] order: Order) -> u32 {
    order.lock().unwrap().push(n);
    n
}

#[dtq::task(queue = "retries", max_attempts = 3, backoff(base = "10m", max = "10m", jitter = 0.0))]
async fn fails_first(n: u32, #[ctx] ctx: dtq::Context) -> Result<u32, TaskError> {
    if ctx.attempt() == 1 { Err(dtq::retryable!("not yet")) } else { Ok(n) }
}

#[dtq::task(queue = "dead")]
async fn dies(n: u32) -> Result<(), TaskError> {
    Err(dtq::permanent!("number {n} is dead"))
}

#[dtq::task(queue = "dead", retention = "0s")]
async fn dies_and_leaves(n: u32) -> Result<(), TaskError> {
    Err(dtq::permanent!("number {n} is dead and gone"))
}

async fn run_until_idle(client: &Client, order: &Order) {
    let worker = Worker::builder()
        .client(client.clone())
        .queues(["order", "retries", "dead"])
        .concurrency(1)
        .state(Arc::clone(order))
        .start()
        .await
        .unwrap();
    until("nothing is queued", async || {
        client
            .inspect()
            .queues()
            .await
            .unwrap()
            .iter()
            .all(|queue| queue.paused || queue.depth == 0)
    })
    .await;
    worker.shutdown();
    worker.join().await.unwrap();
}

/// Every record that waits or has a dead letter, and every dead letter, with all that there is to say
/// about them.
async fn all(client: &Client) -> BTreeMap<String, serde_json::Value> {
    let inspect = client.inspect();
    let mut found = BTreeMap::new();
    let mut after = None;
    loop {
        let page = inspect.tasks(&Default::default(), after.as_deref(), 1000).await.unwrap();
        for task in page.items.iter().filter(|task| task.status != Status::Succeeded) {
            found.insert(task.id.to_string(), serde_json::to_value(task).unwrap());
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    for letter in inspect.dead_letters(&Default::default(), None, 1000).await.unwrap().items {
        let mut value = serde_json::to_value(&letter).unwrap();
        // On a redis-server a letter's time is its place in a stream: that of the move.
        value.as_object_mut().unwrap().remove("dead_ms");
        found.insert(format!("letter of {}", letter.task_id), value);
    }
    found
}

async fn fill(client: &Client, order: &Order) {
    // Ends of every kind first: a dead letter with its record, one without, retrying, an ended key.
    let handle = Dies::enqueue(1).metadata("why", "to see").on(client).await.unwrap();
    DiesAndLeaves::enqueue(2).on(client).await.unwrap();
    let retrying = FailsFirst::enqueue(3).idempotency_key("three").on(client).await.unwrap();
    Noted::enqueue(1000).idempotency_key("ended").on(client).await.unwrap();
    run_until_idle(client, order).await;
    assert_eq!(handle.status().await.unwrap(), Status::DeadLettered);
    assert_eq!(retrying.status().await.unwrap(), Status::Retrying);
    assert_eq!(std::mem::take(&mut *order.lock().unwrap()), [1000]);
    // And what waits: three priorities, in order of arrival within each.
    for n in 0..30 {
        let priority = [5, 9, 0][n as usize % 3];
        let task = Noted::enqueue(n).priority(priority).metadata("n", n.to_string());
        task.ttl(Duration::from_secs(3000)).max_attempts(7).on(client).await.unwrap();
    }
    let at = SystemTime::now() + Duration::from_secs(7200);
    Noted::enqueue(77).at(at).timeout(Duration::from_secs(9)).on(client).await.unwrap();
    Noted::enqueue(78)
        .idempotency_key("waits")
        .retention(Duration::from_secs(99))
        .on(client)
        .await
        .unwrap();
    Dies::enqueue(5).queue("shut").on(client).await.unwrap();
    client.inspect().pause("shut").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_moves_to_a_server_and_back_and_there_again() {
    let (file, server) = (SqliteFile::start(), RedisServer::start());
    let (embedded, fleet) = (client(config(&file.url())), client(config(&server.url())));
    let order = Order::default();
    fill(&embedded, &order).await;
    let before = all(&embedded).await;
    assert_eq!(before.len(), 30 + 3 + 1 + 2 + 1, "{:?}", before.keys());
    let ends = [(&embedded, &fleet), (&fleet, &embedded), (&embedded, &fleet)];
    for (from, to) in ends {
        let moved = dtq::migrate(from, to).await.unwrap();
        assert_eq!((moved.tasks, moved.dead_letters, moved.idempotency_keys), (30 + 5, 2, 3));
        let left = all(from).await;
        assert!(left.is_empty(), "{left:?}");
        let now = all(to).await;
        for (id, value) in &before {
            assert_eq!(now.get(id), Some(value), "{from:?} to {to:?}");
        }
        assert_eq!(now.len(), before.len());
        for queue in from.inspect().queues().await.unwrap() {
            assert_eq!(queue.depth + queue.scheduled, 0, "{queue:?}");
        }
        let queues = to.inspect().queues().await.unwrap();
        let of = |name: &str| queues.iter().find(|queue| queue.name == name).unwrap();
        assert_eq!((of("order").depth, of("order").scheduled, of("retries").scheduled), (31, 1, 1));
        assert!(of("shut").paused);
        // Nothing stays aside.
        let again = dtq::migrate(from, to).await.unwrap();
        assert_eq!((again.tasks, again.dead_letters, again.idempotency_keys), (0, 0, 0));
    }
    let mut raw = server.raw().await;
    assert!(!raw.run::<bool>(&["EXISTS", "dtq:moving"]).await);
    assert!(!raw.run::<bool>(&["EXISTS", "dtq:moved"]).await);

    // Keys are known there: of a task that waits, of one that has ended.
    let waiting = Noted::enqueue(78).idempotency_key("waits").on(&fleet).await;
    assert!(matches!(waiting, Err(EnqueueError::IdempotencyInProgress { .. })), "{waiting:?}");
    assert!(Noted::enqueue(1000).idempotency_key("ended").on(&fleet).await.unwrap().is_duplicate());
    run_until_idle(&fleet, &order).await;
    let by_priority = |rest: u32| (0..30).filter(move |n| n % 3 == rest);
    let expected: Vec<u32> =
        by_priority(1).chain(by_priority(0)).chain([78]).chain(by_priority(2)).collect();
    assert_eq!(*order.lock().unwrap(), expected);
    // The key's task has ended: its key lives on, under its time to live.
    assert!(Noted::enqueue(78).idempotency_key("waits").on(&fleet).await.unwrap().is_duplicate());
    // The dead letter is still one that can be requeued.
    let report = fleet.inspect().requeue_all(&Default::default()).await.unwrap();
    assert_eq!((report.done, report.refused_count), (1, 1), "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_again_and_again_it_loses_and_doubles_nothing() {
    let (file, server) = (SqliteFile::start(), RedisServer::start());
    let embedded = client(config(&file.url()));
    let fleet = client(config(&server.url()));
    let tasks = 1500u32;
    embedded.enqueue_all((0..tasks).map(Noted::enqueue)).await.unwrap();
    let before = all(&embedded).await;
    for (round, (from, to)) in
        [(file.url(), server.url()), (server.url(), file.url())].iter().enumerate()
    {
        let mut kills = 0;
        loop {
            let mut child = Command::new(env!("CARGO_BIN_EXE_migrator"))
                .args([from, to])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let target = if round == 0 { &fleet } else { &embedded };
            let depth = async || -> u64 {
                target.inspect().queues().await.unwrap().iter().map(|queue| queue.depth).sum()
            };
            let (start, more) = (depth().await, fastrand::u64(1..1000));
            let ended = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break Some(status);
                }
                if depth().await >= start + more {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    break None;
                }
            };
            match ended {
                Some(status) => {
                    assert!(status.success());
                    break;
                }
                None => kills += 1,
            }
        }
        assert!(kills > 0, "it was killed in the middle");
    }
    assert_eq!(all(&embedded).await, before);
    let order = Order::default();
    run_until_idle(&embedded, &order).await;
    let mut ran = std::mem::take(&mut *order.lock().unwrap());
    ran.sort_unstable();
    assert_eq!(ran, (0..tasks).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_refuses_beside_workers_unless_told_otherwise_and_waits_for_what_runs() {
    let (file, server) = (SqliteFile::start(), RedisServer::start());
    let (embedded, fleet) = (client(config(&file.url())), client(config(&server.url())));
    let order = Order::default();
    let worker = |client: &Client| {
        Worker::builder().client(client.clone()).queues(["order"]).state(Arc::clone(&order)).start()
    };
    for (from, to, busy) in [(&embedded, &fleet, &embedded), (&embedded, &fleet, &fleet)] {
        let alive = worker(busy).await.unwrap();
        let error = dtq::migrate(from, to).await.unwrap_err();
        let MigrateError::Workers { ids, .. } = &error else { panic!("{error}") };
        assert_eq!(ids.len(), 1);
        assert!(error.to_string().contains(".beside_workers()"), "{error}");
        let moved = dtq::migrate(from, to).beside_workers().await.unwrap();
        assert_eq!(moved, dtq::Migrated::default());
        alive.shutdown();
        alive.join().await.unwrap();
    }
    dtq::migrate(&embedded, &fleet).await.unwrap();
}

#[tokio::test]
async fn one_store_is_not_two_however_it_is_called() {
    let file = SqliteFile::start();
    let path = file.dir().join("dtq.db");
    let other = format!(
        "sqlite:{}/../{}/dtq.db",
        file.dir().display(),
        file.dir().file_name().unwrap().display()
    );
    let client = client(config(&file.url()));
    Noted::enqueue(1).on(&client).await.unwrap();
    for (from, to) in [(file.url(), file.url()), (file.url(), other)] {
        let error = dtq::migrate(from, to).await.unwrap_err();
        assert!(matches!(&error, MigrateError::Same { .. }), "{error}");
    }
    assert!(path.exists());
    assert_eq!(client.inspect().queues().await.unwrap()[0].depth, 1);
    let error = dtq::migrate("gopher://x", "sqlite:x.db").await.unwrap_err();
    assert!(matches!(&error, MigrateError::Config(_)), "{error}");
}
