//! What only this store can meet: a server that forgets, keys damaged by hand, memory limits.

use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;

use super::*;
use crate::store::tests::redis_server::Server;
use crate::store::tests::*;
use crate::store::{Due, Idempotency, Outcome};

struct Rig {
    store: RedisStore,
    raw: MultiplexedConnection,
    server: Server,
}

async fn rig_with(settings: &Settings) -> Rig {
    let server = Server::start();
    let store = RedisStore::open(&server.url(), settings).unwrap();
    let client = ::redis::Client::open(server.url()).unwrap();
    let raw = client.get_multiplexed_async_connection().await.unwrap();
    Rig { store, raw, server }
}

async fn rig() -> Rig {
    rig_with(&settings()).await
}

impl Rig {
    async fn run<T: ::redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = ::redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut self.raw).await.unwrap()
    }

    async fn keys(&mut self) -> Vec<String> {
        let mut keys: Vec<String> = self.run(&["KEYS", "*"]).await;
        keys.sort_unstable();
        keys
    }

    /// Lets everything that repairs run, then everything that runs, until nothing is left alive.
    async fn settle(&mut self) {
        let a = holder("settle");
        for _ in 0..400 {
            self.run::<Value>(&["EVAL", AGE, "0"]).await;
            self.store.maintain().await.unwrap();
            self.store.reap(100).await.unwrap();
            if let Claim::Leader { claimed, .. } =
                self.store.claim_due("worker-s", 100).await.unwrap()
            {
                self.store.requeue_claimed(&claimed).await.unwrap();
            }
            for leased in fetch(&self.store, &a).await {
                finish(&self.store, &a, &leased, ok("1")).await;
            }
            let live: u64 = self.run(&["EVAL", LIVE, "0"]).await;
            if live == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut alive = Vec::new();
        for key in self.keys().await {
            if key.starts_with("dtq:task:") {
                let record: Vec<Vec<u8>> = self.run(&["HGETALL", &key]).await;
                alive.push(String::from_utf8_lossy(&record.join(&b' ')).into_owned());
            }
        }
        alive.retain(|record| !record.contains(" f "));
        let pending: Value = self.run(&["XPENDING", "dtq:stream:default:p5", "workers"]).await;
        panic!("something stays alive: {alive:?} {pending:?}");
    }
}

/// Makes every entry that was read look as if that was long ago: the sweep looks at those alone.
const AGE: &str = "local pending = redis.pcall('XPENDING', 'dtq:stream:default:p5', 'workers', '-', '+', 100)
    for _, entry in ipairs(pending.err and {} or pending) do
        redis.call('XCLAIM', 'dtq:stream:default:p5', 'workers', 'worker', 0, entry[1], 'IDLE', 70000)
    end";

/// Live records and whatever could still lead to one.
const LIVE: &str =
    "local n = redis.call('ZCARD', 'dtq:leases') + redis.call('ZCARD', 'dtq:retry:schedule')
    + redis.call('ZCARD', 'dtq:retry:claimed') + redis.call('XLEN', 'dtq:stream:default:p5')
    for _, key in ipairs(redis.call('KEYS', 'dtq:task:*')) do
        if redis.call('TYPE', key).ok == 'hash' then
            local s = tonumber(string.match(redis.call('HGET', key, 's') or '', '^%d'))
            if s and s < 4 then n = n + 1 end
        end
    end
    return n";

#[tokio::test]
async fn spec_5_5_c26_scripts_are_loaded_again_after_script_flush() {
    let mut rig = rig().await;
    let a = holder("a");
    for _ in 0..2 {
        rig.run::<()>(&["SCRIPT", "FLUSH"]).await;
        let id = add(&rig.store, new_task()).await;
        rig.run::<()>(&["SCRIPT", "FLUSH"]).await;
        let leased = fetch(&rig.store, &a).await.remove(0);
        rig.run::<()>(&["SCRIPT", "FLUSH"]).await;
        rig.store.renew(&a, 1000, std::slice::from_ref(&leased.lease)).await.unwrap();
        rig.run::<()>(&["SCRIPT", "FLUSH"]).await;
        finish(&rig.store, &a, &leased, ok("1")).await;
        assert_eq!(status(&rig.store, id).await, Status::Succeeded);
    }
}

#[tokio::test]
async fn spec_5_5_c25_c30b_h11_a_destroyed_group_is_recreated_without_loss_or_replay() {
    let mut rig = rig().await;
    let a = holder("a");
    let runs = add(&rig.store, new_task()).await;
    let leased = fetch(&rig.store, &a).await.remove(0);
    let waits = add(&rig.store, new_task()).await;
    rig.run::<i64>(&["XGROUP", "DESTROY", "dtq:stream:default:p5", "workers"]).await;
    let again = fetch(&rig.store, &a).await;
    assert_eq!(
        again.iter().map(|l| l.lease.id).collect::<Vec<_>>(),
        [waits],
        "C30b: not run twice"
    );
    rig.run::<i64>(&["XGROUP", "DESTROY", "dtq:stream:default:p5", "workers"]).await;
    assert_eq!(
        finish(&rig.store, &a, &leased, ok("1")).await,
        Finished::Applied(Status::Succeeded)
    );
    assert_eq!(status(&rig.store, runs).await, Status::Succeeded);
    // A crash of the other afterwards is still found.
    let short = rig.store.renew(&a, 1, &[again[0].lease.clone()]).await.unwrap();
    assert_eq!(short, [Renewed::Held]);
    assert_eq!(reap(&rig.store).await.redelivered, [waits]);
    rig.settle().await;
}

#[tokio::test]
async fn spec_5_6_c25_after_flushall_nothing_is_left_behind_and_new_work_flows() {
    let mut rig = rig().await;
    let a = holder("a");
    add(&rig.store, new_task()).await;
    let leased = fetch(&rig.store, &a).await.remove(0);
    rig.run::<()>(&["FLUSHALL"]).await;
    assert_eq!(finish(&rig.store, &a, &leased, ok("1")).await, Finished::Lost);
    assert_eq!(rig.store.renew(&a, 1000, &[leased.lease]).await.unwrap(), [Renewed::Lost]);
    assert!(rig.keys().await.is_empty(), "5.6: nothing is left behind");
    let id = add(&rig.store, new_task()).await;
    assert_eq!(fetch(&rig.store, &a).await[0].lease.id, id);
}

/// Where a task stands when the damage is done.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Pending,
    Queued,
    Running,
    Retrying,
}

async fn bring_to(rig: &mut Rig, stage: Stage, id_of: NewTask) -> Option<crate::store::Leased> {
    let a = holder("a");
    let due = if matches!(stage, Stage::Pending) { Due::After(20) } else { Due::Now };
    add(&rig.store, NewTask { due, ..id_of }).await;
    if !matches!(stage, Stage::Running | Stage::Retrying) {
        return None;
    }
    let leased = fetch_n(&rig.store, &a, 1, 40).await.remove(0);
    if matches!(stage, Stage::Retrying) {
        finish(&rig.store, &a, &leased, Outcome::Retry { delay: 20, error: error("x") }).await;
        return None;
    }
    Some(leased)
}

#[tokio::test]
async fn spec_5_7_c32_any_single_field_deleted_still_ends() {
    let mut rig = rig().await;
    for stage in [Stage::Pending, Stage::Queued, Stage::Running, Stage::Retrying] {
        let mut field_at = 0;
        loop {
            let task = NewTask { priority: 5, ttl: Some(60_000), ..new_task() };
            let id = task.id;
            let key = format!("dtq:task:{id}");
            let leased = bring_to(&mut rig, stage, task).await;
            let mut fields: Vec<String> = rig.raw.hkeys(&key).await.unwrap();
            fields.sort_unstable();
            let Some(field) = fields.get(field_at) else {
                rig.settle().await;
                break;
            };
            rig.run::<i64>(&["HDEL", &key, field]).await;
            if let Some(leased) = leased
                && field_at % 2 == 0
            {
                finish(&rig.store, &holder("a"), &leased, ok("1")).await;
            }
            rig.settle().await;
            let info = rig.store.task(id).await.unwrap();
            assert!(
                info.as_ref().is_some_and(|info| info.status.is_terminal()),
                "{stage:?} without {field}: {info:?}"
            );
            field_at += 1;
        }
    }
}

/// What a hand, a broken program or a broken disk may leave in a field.
const GARBAGE: [&[u8]; 40] = [
    b"",
    b"0",
    b"1",
    b"9",
    b"-1",
    b"1.5",
    b"99999999999",
    b"99999999999999999999999",
    b"nan",
    b"inf",
    b"-inf",
    b"1e400",
    b"0x10",
    b" 5 ",
    b"\xff\xfe\x00",
    b"{",
    b"[]",
    b"null",
    b"{\"class\":1}",
    b"/",
    b"x y/z",
    b"A/b",
    b"\n",
    b"\x00",
    b"default/x",
    b"0:1:0",
    b"1:1:0",
    b"1:1:0+",
    b"2:1:1",
    b"2:0:0",
    b"3:5:5",
    b"4:1:1",
    b"6:2:2",
    b"9:1:1",
    b"1:99999999999999:0",
    b"1:1:99999999999999999999",
    b"2:4294967296:1",
    b"a-b",
    b"1-1",
    b"18446744073709551615-18446744073709551615",
];

/// Records and entries of arbitrary bytes, always the same ones: no call fails, every task ends or is gone, and
/// others run (SPEC 5.7, C38).
#[tokio::test]
async fn c38_garbage_in_records_and_entries_ends_as_a_dead_letter_and_stops_nobody() {
    let mut random = fastrand::Rng::with_seed(38);
    let stages = [Stage::Pending, Stage::Queued, Stage::Running, Stage::Retrying];
    let stream = "dtq:stream:default:p5";
    let mut rig = rig().await;
    for round in 0..250 {
        let task = NewTask { idempotency: idempotency(&mut random), ..new_task() };
        let id = task.id;
        let key = format!("dtq:task:{id}");
        let stage = *random.choice(&stages).unwrap();
        let leased = bring_to(&mut rig, stage, task).await;
        let mut done = Vec::new();
        for _ in 0..random.usize(1..4) {
            let names = "s n y m t p x X d i g r R b M e w o f c E D h u W z k K A".split(' ');
            let name = random.choice(names.collect::<Vec<_>>()).unwrap();
            let value = random.choice(GARBAGE).unwrap();
            done.push((name, String::from_utf8_lossy(value).into_owned()));
            let () = ::redis::cmd("HSET")
                .arg(&key)
                .arg(name)
                .arg(value)
                .query_async(&mut rig.raw)
                .await
                .unwrap();
        }
        if random.bool() {
            let mut add = ::redis::cmd("XADD");
            add.arg(stream).arg("*");
            for _ in 0..random.usize(1..4) {
                let name: &[u8] = random.choice([&b"i"[..], b"a", b"v", b"\xff"]).unwrap();
                let value = match random.u8(..4) {
                    0 => id.to_string().into_bytes(),
                    // A newer version is left alone, and would be for ever.
                    _ if name == b"v" => b"one".to_vec(),
                    _ => random.choice(GARBAGE).unwrap().to_vec(),
                };
                done.push(("entry", String::from_utf8_lossy(&value).into_owned()));
                add.arg(name).arg(value);
            }
            let _: String = add.query_async(&mut rig.raw).await.unwrap();
        }
        eprintln!("round {round}: {stage:?} {done:?}");
        if let Some(leased) = leased
            && random.bool()
        {
            let outcomes =
                [ok("1"), Outcome::Retry { delay: 5, error: error("x") }, Outcome::Released];
            let outcome = random.choice(outcomes).unwrap();
            finish(&rig.store, &holder("a"), &leased, outcome).await;
        }
        if random.u8(..4) == 0 {
            rig.store.cancel(id).await.unwrap();
        }
        let other = add(&rig.store, new_task()).await;
        rig.settle().await;
        assert_eq!(status(&rig.store, other).await, Status::Succeeded);
        let info = rig.store.task(id).await.unwrap();
        assert!(info.as_ref().is_none_or(|info| info.status.is_terminal()), "{info:?}");
        rig.store.dead_letters(&DeadLetterFilter::default(), None, 100).await.unwrap();
        rig.store.tasks(&crate::inspect::TaskFilter::default(), None, 100).await.unwrap();
        if round % 20 == 19 {
            rig.run::<()>(&["FLUSHALL"]).await;
        }
    }
}

fn idempotency(random: &mut fastrand::Rng) -> Option<Idempotency> {
    random.bool().then(|| Idempotency {
        key: "k".to_owned() + &random.u64(..).to_string(),
        fingerprint: "00".to_owned(),
    })
}

#[tokio::test]
async fn c32_a_deleted_record_or_one_of_another_type_leaves_nothing_stuck() {
    let mut rig = rig().await;
    for stage in [Stage::Pending, Stage::Queued, Stage::Running, Stage::Retrying] {
        for replace in [false, true] {
            for finished in [false, true] {
                let task = new_task();
                let key = format!("dtq:task:{}", task.id);
                let leased = bring_to(&mut rig, stage, task).await;
                rig.run::<i64>(&["DEL", &key]).await;
                if replace {
                    rig.run::<()>(&["SET", &key, "x"]).await;
                }
                if finished && let Some(leased) = &leased {
                    let outcome = Outcome::Dead { error: error("x") };
                    assert_eq!(
                        finish(&rig.store, &holder("a"), leased, outcome).await,
                        Finished::Lost
                    );
                }
                rig.settle().await;
                let after = add(&rig.store, new_task()).await;
                rig.settle().await;
                assert_eq!(
                    status(&rig.store, after).await,
                    Status::Succeeded,
                    "{stage:?} {replace} {finished}"
                );
            }
        }
    }
    let letters =
        rig.store.dead_letters(&DeadLetterFilter::default(), None, 100).await.unwrap().items;
    assert!(letters.iter().any(|letter| letter.error.class == "DamagedRecord"));
}

#[tokio::test]
async fn c32_entries_schedules_and_leases_deleted_by_hand_are_restored() {
    let mut rig = rig().await;
    for stage in [Stage::Pending, Stage::Queued, Stage::Running, Stage::Retrying] {
        let task = new_task();
        let id = task.id;
        bring_to(&mut rig, stage, task).await;
        rig.run::<i64>(&["DEL", "dtq:retry:schedule", "dtq:leases"]).await;
        rig.run::<i64>(&["XTRIM", "dtq:stream:default:p5", "MAXLEN", "0"]).await;
        rig.settle().await;
        assert!(status(&rig.store, id).await.is_terminal(), "{stage:?}");
    }
}

#[tokio::test]
async fn spec_5_7_c40_h10_entries_written_by_hand_are_quarantined_and_the_rest_runs() {
    let mut rig = rig().await;
    let stream = "dtq:stream:default:p5";
    for fields in [
        vec!["x", "y"],
        vec!["i", "not an id"],
        vec!["i", "0357CC2vS0CLgScKFR7ytc", "a", "1", "v", "1"],
        vec!["v", "one", "i", "", "a", "many"],
        vec!["i", "\u{0}\u{1}\"\\", "v", "1"],
    ] {
        rig.run::<String>(&[vec!["XADD", stream, "*"], fields].concat()).await;
    }
    let mut command = ::redis::cmd("XADD");
    command.arg(stream).arg("*").arg(b"i\xff").arg(b"\xff\xfe");
    command.query_async::<String>(&mut rig.raw).await.unwrap();
    let id = add(&rig.store, new_task()).await;
    let request = FetchRequest {
        holder: holder("a"),
        queues: vec!["default".to_owned()],
        max: 10,
        visibility: 30_000,
        nonce: 1,
    };
    let fetched = rig.store.fetch(&request).await.unwrap();
    assert_eq!(fetched.leased.iter().map(|l| l.lease.id).collect::<Vec<_>>(), [id]);
    assert!(fetched.notes.len() >= 6, "{:?}", fetched.notes);
    let letters = rig.store.dead_letters(&DeadLetterFilter::default(), None, 100).await.unwrap();
    assert_eq!(letters.items.len(), 6);
    assert_eq!(rig.run::<u64>(&["XLEN", stream]).await, 1);
}

#[tokio::test]
async fn spec_5_8_newer_records_are_left_alone_and_a_newer_layout_is_refused() {
    let mut rig = rig().await;
    let id = add(&rig.store, new_task()).await;
    rig.run::<i64>(&["HSET", &format!("dtq:task:{id}"), "v", "2"]).await;
    assert!(fetch(&rig.store, &holder("a")).await.is_empty());
    let fields: Vec<String> = rig.run(&["HMGET", &format!("dtq:task:{id}"), "v", "s"]).await;
    assert_eq!(fields, ["2", "1:1:0"], "untouched");
    rig.run::<i64>(&["HSET", "dtq:meta", "layout", "2"]).await;
    let store = RedisStore::open(&rig.server.url(), &settings()).unwrap();
    let error = store.ping().await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Incompatible(text) if text.contains("layout 2")),
        "{error}"
    );
}

#[tokio::test]
async fn c29_two_namespaces_never_see_each_other() {
    let rig = rig().await;
    let other = Settings { key_prefix: "dtq2".to_owned(), ..settings() };
    let second = RedisStore::open(&rig.server.url(), &other).unwrap();
    let id = add(&rig.store, new_task()).await;
    assert!(fetch(&second, &holder("a")).await.is_empty());
    assert!(second.task(id).await.unwrap().is_none());
    assert!(second.queues().await.unwrap().is_empty());
    assert!(matches!(second.claim_due("worker-x", 1).await.unwrap(), Claim::Leader { .. }));
    assert!(matches!(rig.store.claim_due("worker-y", 1).await.unwrap(), Claim::Leader { .. }));
}

#[tokio::test]
async fn spec_5_2_under_maxmemory_enqueue_is_refused_and_finish_goes_on() {
    let mut rig = rig().await;
    let a = holder("a");
    let id = add(&rig.store, new_task()).await;
    add(&rig.store, new_task()).await;
    let leased = fetch_n(&rig.store, &a, 1, 30_000).await.remove(0);
    rig.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let error = rig.store.enqueue(&[vec![new_task()]]).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused(_)), "{error:?}");
    assert_eq!(
        finish(&rig.store, &a, &leased, ok("\"r\"")).await,
        Finished::Applied(Status::Succeeded)
    );
    assert_eq!(status(&rig.store, id).await, Status::Succeeded);
    assert_eq!(fetch(&rig.store, &a).await.len(), 1);
}

#[tokio::test]
async fn spec_5_1_c31_every_ending_leaves_only_bounded_keys() {
    let short =
        Settings { result_retention: 1, task_retention: 1, idempotency_ttl: 1, ..settings() };
    let mut rig = rig_with(&short).await;
    let a = holder("a");
    for round in 0..40 {
        let task = NewTask {
            idempotency: Some(Idempotency {
                key: format!("k{round}"),
                fingerprint: "f".to_owned(),
            }),
            ..new_task()
        };
        let id = add(&rig.store, task).await;
        if round % 8 == 7 {
            rig.store.cancel(id).await.unwrap();
            continue;
        }
        let leased = fetch(&rig.store, &a).await.remove(0);
        let outcome = match round % 8 {
            0 => ok("\"a result\""),
            1 => ok("null"),
            2 => Outcome::Dead { error: error("x") },
            3 => Outcome::Retry { delay: 1, error: error("x") },
            4 => Outcome::Released,
            5 => Outcome::Snoozed { delay: 1, unknown_type: true },
            _ => {
                rig.store.cancel(id).await.unwrap();
                Outcome::Cancelled
            }
        };
        finish(&rig.store, &a, &leased, outcome).await;
        rig.settle().await;
    }
    rig.settle().await;
    let bounded = [
        "dtq:fetch:inca",
        "dtq:fetch:incsettle",
        "dtq:lock:scheduler",
        "dtq:meta",
        "dtq:queue:default:stats",
        "dtq:queue:default:wake",
        "dtq:queues",
        "dtq:stream:dead-letter",
        "dtq:stream:default:p5",
        "dtq:tasks:recent",
    ];
    let started = std::time::Instant::now();
    loop {
        let keys = rig.keys().await;
        let rest: Vec<_> = keys.iter().filter(|key| !bounded.contains(&key.as_str())).collect();
        if rest.is_empty() {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(5), "left behind: {rest:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(rig.run::<u64>(&["XLEN", "dtq:stream:default:p5"]).await, 0);
    let pending: Vec<::redis::Value> =
        rig.run(&["XPENDING", "dtq:stream:default:p5", "workers"]).await;
    assert_eq!(pending[0], Value::Int(0));
    assert_eq!(rig.store.queues().await.unwrap()[0].scheduled, 0, "the counter does not drift");
}

#[tokio::test]
async fn spec_10_events_tell_each_step_once_and_in_order() {
    let rig = rig().await;
    let a = holder("a");
    let mut events = rig.store.events();
    // The subscription is there once a first event arrives.
    let mut first = None;
    while first.is_none() {
        add(&rig.store, NewTask { queue: "warm".to_owned(), ..new_task() }).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        first = events.try_recv().ok();
    }
    while events.try_recv().is_ok() {}
    let id = add(&rig.store, NewTask { due: Due::After(1), ..new_task() }).await;
    run_scheduler_until(&rig.store, 1).await;
    let leased = fetch(&rig.store, &a).await.remove(0);
    finish(&rig.store, &a, &leased, Outcome::Retry { delay: 1, error: error("a \"b\"") }).await;
    run_scheduler_until(&rig.store, 1).await;
    let leased = fetch(&rig.store, &a).await.remove(0);
    finish(&rig.store, &a, &leased, ok("1")).await;
    finish(&rig.store, &a, &leased, ok("1")).await;
    let (mut types, mut ids) = (Vec::new(), std::collections::BTreeSet::new());
    while types.last().map(String::as_str) != Some("TASK_SUCCEEDED") {
        let text =
            tokio::time::timeout(Duration::from_secs(5), events.recv()).await.unwrap().unwrap();
        let event: serde_json::Value = serde_json::from_str(&text).unwrap();
        if event["task_id"] != id.to_string() {
            continue;
        }
        assert!(ids.insert(event["event_id"].to_string()), "event ids are unique");
        if event["type"] == "TASK_RETRY_SCHEDULED" {
            assert_eq!(event["metadata"]["error"]["message"], "a \"b\"");
            assert_eq!((&event["worker_id"], &event["attempt"]), (&"worker-a".into(), &1.into()));
        }
        types.push(event["type"].as_str().unwrap().to_owned());
    }
    let wanted = [
        "TASK_SCHEDULED",
        "TASK_QUEUED",
        "TASK_STARTED",
        "TASK_RETRY_SCHEDULED",
        "TASK_RETRIED",
        "TASK_STARTED",
        "TASK_SUCCEEDED",
    ];
    assert_eq!(types, wanted);
}

#[tokio::test]
async fn spec_7_2_one_waiter_wakes_for_one_task_and_a_fetch_wakes_the_next() {
    let server = Server::start();
    let stores: Vec<_> =
        (0..3).map(|_| Arc::new(RedisStore::open(&server.url(), &settings()).unwrap())).collect();
    let (out, mut woken) = mpsc::unbounded_channel();
    let mut waiters = Vec::new();
    for (i, store) in stores.iter().enumerate() {
        let (store, out) = (Arc::clone(store), out.clone());
        waiters.push(tokio::spawn(async move {
            store.wait_for_work(&["default".to_owned()], Duration::from_secs(30)).await.unwrap();
            out.send(i).unwrap();
        }));
    }
    let client = ::redis::Client::open(server.url()).unwrap();
    let mut raw = client.get_multiplexed_async_connection().await.unwrap();
    let blocked = async |raw: &mut MultiplexedConnection| {
        let info: String = ::redis::cmd("INFO").arg("clients").query_async(raw).await.unwrap();
        info_line(&info, "blocked_clients").unwrap().parse::<u64>().unwrap()
    };
    while blocked(&mut raw).await < 3 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let store = &stores[0];
    store.enqueue(&[vec![new_task(), new_task()]]).await.unwrap();
    let first = tokio::time::timeout(Duration::from_secs(5), woken.recv()).await.unwrap().unwrap();
    assert_eq!(blocked(&mut raw).await, 2, "two tasks, one piece of news, one waiter");
    fetch_n(&*stores[first], &holder("a"), 1, 30_000).await;
    tokio::time::timeout(Duration::from_secs(5), woken.recv()).await.unwrap().unwrap();
    assert_eq!(blocked(&mut raw).await, 1, "what was left behind woke another");
    fetch_n(&**store, &holder("b"), 1, 30_000).await;
    assert_eq!(blocked(&mut raw).await, 1, "nothing was left: nobody is woken");
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn spec_5_2_a_batch_is_one_round_trip_and_few_commands_a_task() {
    let mut rig = rig().await;
    let a = holder("a");
    let calls = async |rig: &mut Rig| -> u64 {
        let stats: String = rig.run(&["INFO", "commandstats"]).await;
        let count = |line: &str| -> Option<u64> {
            line.split("calls=").nth(1)?.split(',').next()?.parse().ok()
        };
        stats.lines().filter_map(count).sum()
    };
    // Loads the scripts and creates the group.
    add(&rig.store, new_task()).await;
    let leased = fetch(&rig.store, &a).await;
    finish(&rig.store, &a, &leased[0], ok("null")).await;
    let before = calls(&mut rig).await;
    rig.store.enqueue(&[(0..100).map(|_| new_task()).collect()]).await.unwrap();
    let enqueued = calls(&mut rig).await;
    let leased = fetch(&rig.store, &a).await;
    assert_eq!(leased.len(), 100);
    let fetched = calls(&mut rig).await;
    let batch: Vec<_> = leased
        .into_iter()
        .map(|leased| Finish { lease: leased.lease, outcome: ok("null") })
        .collect();
    rig.store.finish(&a, &batch).await.unwrap();
    let finished = calls(&mut rig).await;
    let per_task = |from: u64, to: u64| (to - from) as f64 / 100.0;
    assert!(per_task(before, enqueued) <= 2.3, "enqueue: {}", per_task(before, enqueued));
    assert!(per_task(enqueued, fetched) <= 2.4, "fetch: {}", per_task(enqueued, fetched));
    assert!(per_task(fetched, finished) <= 3.3, "finish: {}", per_task(fetched, finished));
}

/// Finished entries are cut off the head of their stream where that is possible: never one that is not
/// finished, and always all that are, whatever the order, also when the group was lost in between.
#[tokio::test]
async fn spec_6_2_depth_is_exact_in_whatever_order_tasks_end() {
    let mut rig = rig().await;
    let a = holder("a");
    let stream = "dtq:stream:default:p5";
    let mut rng = fastrand::Rng::with_seed(5);
    let ids: Vec<_> = (0..600).map(|_| new_task()).collect();
    let all: Vec<_> = ids.iter().map(|task| task.id).collect();
    rig.store.enqueue(&[ids]).await.unwrap();
    let (mut held, mut left) = (Vec::new(), 600);
    while left > 0 {
        if rng.u8(..10) == 0 {
            rig.run::<i64>(&["XGROUP", "DESTROY", stream, "workers"]).await;
        }
        held.extend(fetch_n(&rig.store, &a, rng.usize(1..80), 30_000).await);
        rng.shuffle(&mut held);
        let batch: Vec<_> = held
            .drain(..rng.usize(..=held.len()))
            .map(|leased| Finish { lease: leased.lease, outcome: ok("null") })
            .collect();
        left -= batch.len();
        let answers = rig.store.finish(&a, &batch).await.unwrap();
        assert!(answers.iter().all(|answer| *answer == Finished::Applied(Status::Succeeded)));
        assert_eq!(rig.run::<usize>(&["XLEN", stream]).await, left);
    }
    for id in all {
        assert_eq!(status(&rig.store, id).await, Status::Succeeded);
    }
}

#[tokio::test]
async fn c32_what_is_known_of_a_queue_is_found_again() {
    let mut rig = rig().await;
    let id = add(&rig.store, NewTask { priority: 7, ..new_task() }).await;
    rig.run::<i64>(&["HDEL", "dtq:ready", "default"]).await;
    assert!(fetch(&rig.store, &holder("a")).await.is_empty(), "forgotten");
    // An idle fetch looks, and says so.
    assert_eq!(fetch(&rig.store, &holder("a")).await[0].lease.id, id);

    // So does maintenance, for a queue that nobody fetches from.
    let other = add(&rig.store, NewTask { priority: 3, ..new_task() }).await;
    rig.run::<i64>(&["HDEL", "dtq:ready", "default"]).await;
    rig.store.maintain().await.unwrap();
    assert_eq!(fetch(&rig.store, &holder("a")).await[0].lease.id, other);
}

#[tokio::test]
async fn c38_what_somebody_made_of_the_ready_queues_is_put_right() {
    let mut rig = rig().await;
    let id = add(&rig.store, new_task()).await;
    rig.run::<i64>(&["DEL", "dtq:ready"]).await;
    rig.run::<String>(&["SET", "dtq:ready", "5"]).await;
    assert!(fetch(&rig.store, &holder("a")).await.is_empty(), "forgotten");
    assert_eq!(fetch(&rig.store, &holder("a")).await[0].lease.id, id);
}

#[tokio::test]
async fn spec_5_3_due_times_and_deadlines_are_by_the_servers_clock() {
    let mut rig = rig().await;
    let now = async |rig: &mut Rig| -> u64 {
        let time: Vec<u64> = rig.run(&["TIME"]).await;
        time[0] * 1000 + time[1] / 1000
    };
    let before = now(&mut rig).await;
    let delayed =
        add(&rig.store, NewTask { due: Due::After(5000), ttl: Some(9000), ..new_task() }).await;
    add(&rig.store, new_task()).await;
    let leased = fetch_n(&rig.store, &holder("a"), 1, 7000).await.remove(0);
    let after = now(&mut rig).await;
    let due: u64 = rig.run(&["ZSCORE", "dtq:retry:schedule", &delayed.to_string()]).await;
    let deadline: u64 = rig.run(&["ZSCORE", "dtq:leases", &leased.lease.id.to_string()]).await;
    let expires = info(&rig.store, delayed).await.expires_ms.unwrap();
    for (moment, span) in [(due, 5000), (deadline, 7000), (expires, 9000)] {
        assert!((before + span..=after + span).contains(&moment), "C5: to the millisecond");
    }
}

#[tokio::test]
async fn spec_7_3_entries_that_are_not_their_records_own_are_absorbed_or_dropped() {
    let mut rig = rig().await;
    let a = holder("a");
    let stream = "dtq:stream:default:p5";
    let doubled = async |rig: &mut Rig, id: &str| {
        rig.run::<String>(&["XADD", stream, "*", "v", "1", "i", id, "a", "1"]).await;
    };
    let id = add(&rig.store, new_task()).await.to_string();
    doubled(&mut rig, &id).await;
    let leased = fetch(&rig.store, &a).await;
    assert_eq!(leased.len(), 1, "the double of a queued task is absorbed");
    doubled(&mut rig, &id).await;
    assert!(fetch(&rig.store, &a).await.is_empty(), "and that of a running one");
    assert_eq!(rig.run::<u64>(&["XLEN", stream]).await, 1, "whose own entry is left alone");
    let held = info(&rig.store, leased[0].lease.id).await;
    assert_eq!((held.status, held.attempt), (Status::Running, 1), "its record is not touched");
    finish(&rig.store, &a, &leased[0], ok("1")).await;
    doubled(&mut rig, &id).await;
    assert!(fetch(&rig.store, &a).await.is_empty(), "that of an ended one is dropped");
    assert_eq!(rig.run::<u64>(&["XLEN", stream]).await, 0);
    // One that waits for its backoff has no entry at all: an old one that comes again is none of its own.
    let retrying = add(&rig.store, new_task()).await;
    let leased = fetch(&rig.store, &a).await;
    let error = crate::store::ErrorInfo { class: "E".into(), message: "e".into(), retryable: true };
    finish(&rig.store, &a, &leased[0], Outcome::Retry { delay: 60_000, error }).await;
    doubled(&mut rig, &retrying.to_string()).await;
    assert!(fetch(&rig.store, &a).await.is_empty());
    assert_eq!(status(&rig.store, retrying).await, Status::Retrying, "it is not quarantined");
    assert_eq!(rig.run::<u64>(&["XLEN", stream]).await, 0);
    let cancelled = add(&rig.store, new_task()).await;
    rig.run::<i64>(&["HSET", &format!("dtq:task:{cancelled}"), "c", "1"]).await;
    assert!(fetch(&rig.store, &a).await.is_empty());
    assert_eq!(status(&rig.store, cancelled).await, Status::Cancelled);
}

#[tokio::test]
async fn h2_h3_h4_h5_status_and_follow_up_are_written_together() {
    let mut rig = rig().await;
    let a = holder("a");
    let key = Some(Idempotency { key: "k".to_owned(), fingerprint: "f".to_owned() });
    let id = add(&rig.store, NewTask { idempotency: key, ..new_task() }).await;
    // (status, entries, scheduled, claimed, leases, dead letters, state of the key)
    let seen = async |rig: &mut Rig| -> (Status, u64, u64, u64, u64, u64, String) {
        let key: String = rig.run(&["GET", "dtq:idempotency:default:k"]).await;
        let state = key.split("\"state\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        (
            status(&rig.store, id).await,
            rig.run(&["XLEN", "dtq:stream:default:p5"]).await,
            rig.run(&["ZCARD", "dtq:retry:schedule"]).await,
            rig.run(&["ZCARD", "dtq:retry:claimed"]).await,
            rig.run(&["ZCARD", "dtq:leases"]).await,
            rig.run(&["XLEN", "dtq:stream:dead-letter"]).await,
            state,
        )
    };
    let processing = || "processing".to_owned();
    assert_eq!(seen(&mut rig).await, (Status::Queued, 1, 0, 0, 0, 0, processing()));
    let leased = fetch(&rig.store, &a).await.remove(0);
    assert_eq!(seen(&mut rig).await, (Status::Running, 1, 0, 0, 1, 0, processing()));
    finish(&rig.store, &a, &leased, Outcome::Retry { delay: 0, error: error("x") }).await;
    assert_eq!(seen(&mut rig).await, (Status::Retrying, 0, 1, 0, 0, 0, processing()));
    tokio::time::sleep(Duration::from_millis(2)).await;
    let Claim::Leader { claimed, .. } = rig.store.claim_due("worker-s", 10).await.unwrap() else {
        panic!()
    };
    assert_eq!(seen(&mut rig).await, (Status::Retrying, 0, 0, 1, 0, 0, processing()));
    rig.store.requeue_claimed(&claimed).await.unwrap();
    assert_eq!(seen(&mut rig).await, (Status::Queued, 1, 0, 0, 0, 0, processing()));
    let leased = fetch(&rig.store, &a).await.remove(0);
    finish(&rig.store, &a, &leased, Outcome::Dead { error: error("x") }).await;
    assert_eq!(seen(&mut rig).await, (Status::DeadLettered, 0, 0, 0, 0, 1, "failed".to_owned()));
}

#[tokio::test]
async fn h7_c7_nothing_of_a_live_task_ever_expires() {
    let mut rig = rig_with(&Settings {
        task_retention: 1000,
        result_retention: 1000,
        idempotency_ttl: 1000,
        ..settings()
    })
    .await;
    for stage in [Stage::Pending, Stage::Queued, Stage::Running, Stage::Retrying] {
        let key = Some(Idempotency { key: format!("{stage:?}"), fingerprint: "f".to_owned() });
        let task = NewTask { idempotency: key, retention: Some(10), ..new_task() };
        let record = format!("dtq:task:{}", task.id);
        bring_to(&mut rig, stage, task).await;
        let idempotency = format!("dtq:idempotency:default:{stage:?}");
        for key in [record, idempotency] {
            assert_eq!(rig.run::<i64>(&["PTTL", &key]).await, -1, "{stage:?} {key}");
        }
        rig.settle().await;
    }
}

#[tokio::test]
async fn c15_h27_what_workers_leave_behind_is_bounded() {
    let mut rig = rig().await;
    for n in 0..50 {
        let who = Holder { worker_id: format!("w{n}"), incarnation: format!("i{n}") };
        let beat = Heartbeat {
            holder: who.clone(),
            queues: Vec::new(),
            concurrency: 1,
            in_flight: 0,
            interval: 1,
            pid: 1,
            host: String::new(),
        };
        rig.store.register(&beat, false).await.unwrap();
        add(&rig.store, new_task()).await;
        let leased = fetch_n(&rig.store, &who, 1, 1).await;
        assert_eq!(leased.len(), 1);
        rig.run::<i64>(&["SADD", "dtq:cancelled", &leased[0].lease.id.to_string()]).await;
        finish(&rig.store, &who, &leased[0], ok("1")).await;
    }
    let consumers: Vec<Value> =
        rig.run(&["XINFO", "CONSUMERS", "dtq:stream:default:p5", "workers"]).await;
    assert_eq!(consumers.len(), 1);
    tokio::time::sleep(Duration::from_millis(20)).await;
    rig.store.maintain().await.unwrap();
    assert_eq!(rig.run::<u64>(&["SCARD", "dtq:workers"]).await, 0);
    assert_eq!(rig.run::<u64>(&["SCARD", "dtq:cancelled"]).await, 0);
}

#[tokio::test]
async fn c33_a_purge_goes_in_steps_that_hold_up_nobody() {
    let mut rig = rig().await;
    for _ in 0..3 {
        rig.store.enqueue(&[(0..1000).map(|_| new_task()).collect()]).await.unwrap();
    }
    let ada = Actor("ada".to_owned());
    let (mut purged, mut steps) = (0, 0);
    loop {
        let (n, more) = rig.store.purge_chunk("default", &ada).await.unwrap();
        assert!(n <= 500, "bounded");
        purged += n;
        steps += 1;
        if !more {
            break;
        }
    }
    assert_eq!((purged, steps), (3000, 7));
    assert_eq!(rig.run::<u64>(&["XLEN", "dtq:stream:default:p5"]).await, 0);
}
