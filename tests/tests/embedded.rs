//! The embedded store as several processes use it, and files that cannot be used (C48).

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dtq::{Client, Status, Worker};
use dtq_tests::{PATIENCE, SqliteFile, client, config, until};

#[dtq::task]
async fn here(n: u32) -> u32 {
    n
}

fn spawn(file: &SqliteFile) -> Child {
    Command::new(env!("CARGO_BIN_EXE_fault-worker"))
        .arg(file.dir().join("attempts.log"))
        .env("DTQ_URL", file.url())
        .env("DTQ_VISIBILITY_TIMEOUT_S", "1.5")
        .env("DTQ_WORKER_CONCURRENCY", "8")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the worker's program starts")
}

struct Killed(Vec<Child>);

impl Drop for Killed {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c48_killed_processes_on_one_file_lose_and_double_nothing() {
    let file = SqliteFile::start();
    let client = client(config(&file.url()));
    let mut workers = Killed(vec![spawn(&file), spawn(&file)]);
    let mut ids = Vec::new();
    let started = Instant::now();
    for round in 0..20u64 {
        // A producer and an inspector beside the workers: neither sees a lock error.
        for n in 0..50 {
            let payload = format!(r#"{{"n":{},"ms":{}}}"#, round * 50 + n, n % 20);
            ids.push(client.enqueue_raw("work", payload).max_attempts(10).await.unwrap().id());
        }
        client.inspect().tasks(&Default::default(), None, 1000).await.unwrap();
        client.inspect().queues().await.unwrap();
        if round % 3 == 0 {
            let at = fastrand::usize(0..2);
            workers.0[at].kill().unwrap();
            workers.0[at].wait().unwrap();
            workers.0[at] = spawn(&file);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for id in ids {
        until("it ends", async || {
            client.inspect().task(id).await.unwrap().unwrap().status.is_terminal()
        })
        .await;
        assert_eq!(client.inspect().task(id).await.unwrap().unwrap().status, Status::Succeeded);
    }
    assert!(started.elapsed() < PATIENCE * 4);
    let log = std::fs::read_to_string(file.dir().join("attempts.log")).unwrap();
    let mut starts: Vec<(&str, &str)> = log
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|words| words.len() == 5 && words[3] == "start")
        .map(|words| (words[1], words[2]))
        .collect();
    let all = starts.len();
    starts.sort_unstable();
    starts.dedup();
    assert_eq!(starts.len(), all, "no attempt ran twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_in_another_process_is_woken_and_its_result_arrives() {
    let file = SqliteFile::start();
    let client = client(config(&file.url()));
    let _worker = Killed(vec![spawn(&file)]);
    until("it registers", async || !client.inspect().workers().await.unwrap().is_empty()).await;
    for n in 0..5 {
        let handle =
            client.enqueue_raw("work", format!(r#"{{"n":{},"ms":0}}"#, n * 7 + 1)).await.unwrap();
        assert_eq!(handle.result_within(PATIENCE).await.unwrap().as_str(), (n * 7 + 1).to_string());
    }
}

#[tokio::test]
async fn files_that_cannot_be_used_say_why() {
    let file = SqliteFile::start();
    let refused = async |url: String| -> String {
        let client = Client::connect(url).unwrap();
        client.inspect().ping().await.unwrap_err().to_string()
    };
    let garbage = file.dir().join("garbage.db");
    std::fs::write(&garbage, "this is no database, whatever its name says").unwrap();
    let error = refused(format!("sqlite:{}", garbage.display())).await;
    assert!(error.contains("no SQLite file") && error.contains("garbage.db"), "{error}");
    let error = refused(format!("sqlite:{}/no/such/dir/x.db", file.dir().display())).await;
    assert!(error.contains("cannot be opened") && error.contains("no/such/dir"), "{error}");
    let client = client(config(&file.url()));
    Here::enqueue(1).on(&client).await.unwrap();
    let raw = rusqlite::Connection::open(file.dir().join("dtq.db")).unwrap();
    raw.pragma_update(None, "user_version", 99).unwrap();
    drop(raw);
    let error = refused(file.url()).await;
    assert!(error.contains("schema 99") && error.contains("upgrade"), "{error}");
    let error = Client::connect("sqlite:x.db?synchronous=off").unwrap_err().to_string();
    assert!(error.contains("synchronous=normal and synchronous=full"), "{error}");
}

#[tokio::test]
async fn memory_lives_as_long_as_its_client() {
    let client = client(config("sqlite::memory:"));
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    let handle = Here::enqueue(7).on(&client).await.unwrap();
    assert_eq!(handle.result_within(PATIENCE).await.unwrap(), 7);
    worker.shutdown();
    worker.join().await.unwrap();
}

/// The file's pages, those that are free included.
fn pages(file: &SqliteFile) -> u64 {
    let raw = rusqlite::Connection::open(file.dir().join("dtq.db")).unwrap();
    raw.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap()
}

async fn run_many(client: &Client, tasks: u32) {
    client.enqueue_all((0..tasks).map(Here::enqueue)).await.unwrap();
    let worker = Worker::builder().client(client.clone()).concurrency(64).start().await.unwrap();
    until("all have ended", async || {
        client.inspect().queues().await.unwrap().iter().all(|queue| queue.depth == 0)
    })
    .await;
    worker.shutdown();
    worker.join().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finished_task_takes_at_most_250_bytes() {
    let file = SqliteFile::start();
    let client = client(config(&file.url()));
    client.inspect().ping().await.unwrap();
    let empty = pages(&file);
    let tasks = 5000;
    run_many(&client, tasks).await;
    let bytes = (pages(&file) - empty) * 4096 / u64::from(tasks);
    assert!(bytes <= 250, "{bytes} bytes a task");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn room_of_tasks_that_have_left_is_used_again() {
    let file = SqliteFile::start();
    let client = client(config(&file.url()).result_retention(Duration::from_millis(1)));
    run_many(&client, 2000).await;
    let once = pages(&file);
    for _ in 0..4 {
        run_many(&client, 2000).await;
    }
    // Each round removes what the round before has left.
    let five = pages(&file);
    assert!(five <= once * 2, "{once} pages after 2000 tasks, {five} after 10000");
}

/// Runs `poke` as a user who is not the superuser, to whom permissions mean nothing.
fn poke(file: &SqliteFile, path: &std::path::Path) -> String {
    use std::os::unix::process::CommandExt as _;
    let program = file.dir().join("poke");
    std::fs::copy(env!("CARGO_BIN_EXE_poke"), &program).unwrap();
    let mut command = Command::new(&program);
    command.arg(format!("sqlite:{}", path.display()));
    if std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0)
    {
        command.uid(65534).gid(65534);
    }
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[tokio::test]
async fn c48_a_file_that_may_not_be_written_to_is_said_so() {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let file = SqliteFile::start();
    let path = file.dir().join("dtq.db");
    {
        let client = client(config(&file.url()));
        Here::enqueue(1).on(&client).await.unwrap();
    }
    mode(file.dir(), 0o755);
    mode(&path, 0o444);
    let error = poke(&file, &path);
    assert!(error.contains("cannot be written to") && error.contains("dtq.db"), "{error}");
    // A directory in which it could be made.
    let error = poke(&file, &file.dir().join("new.db"));
    assert!(error.contains("cannot be opened or made") && error.contains("new.db"), "{error}");
    // The same program, where it may.
    let open = file.dir().join("open");
    std::fs::create_dir(&open).unwrap();
    mode(&open, 0o777);
    assert_eq!(poke(&file, &open.join("new.db")), "accepted\n");
}

#[tokio::test]
async fn c48_a_file_damaged_in_the_middle_is_said_so() {
    let file = SqliteFile::start();
    let path = file.dir().join("dtq.db");
    {
        let client = client(config(&file.url()));
        client.enqueue_all((0..200).map(Here::enqueue)).await.unwrap();
    }
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(raw);
    let mut bytes = std::fs::read(&path).unwrap();
    // The header stays, and the schema; everything behind it is garbage.
    bytes[8192..].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();
    let client = client(config(&file.url()));
    let error = Here::enqueue(1).on(&client).await.unwrap_err().to_string();
    assert!(error.contains("damaged") && error.contains("dtq.db"), "{error}");
}
