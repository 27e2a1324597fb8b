//! The file: opening it, the one thread that writes, and what SQLite's errors mean.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};
use tokio::sync::{oneshot, watch};

use crate::store::{Millis, StoreError, StoreResult};

/// The schema that this code reads and writes.
const SCHEMA: i64 = MIGRATIONS.len() as i64;
/// What makes each version of the version before it; none may ever be changed.
const MIGRATIONS: [&str; 3] =
    [include_str!("schema.sql"), include_str!("schema-2.sql"), include_str!("schema-3.sql")];
/// How long a writer waits for another process's transaction, which is over in milliseconds.
const BUSY: Duration = Duration::from_secs(4);
/// What a URL says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    /// `None`: in memory.
    path: Option<PathBuf>,
    full_sync: bool,
}

impl Place {
    /// `sqlite:PATH[?synchronous=normal|full]` or `sqlite::memory:`. A namespace other than `dtq` is a file
    /// of its own beside it.
    pub(super) fn parse(url: &str, prefix: &str) -> StoreResult<Self> {
        let rest = url.strip_prefix("sqlite:").unwrap_or(url);
        let (path, options) =
            rest.split_once('?').map_or((rest, ""), |(path, options)| (path, options));
        let full_sync = match options {
            "" | "synchronous=normal" => false,
            "synchronous=full" => true,
            other => {
                return Err(StoreError::Failed(format!(
                    "`{other}` is not an option of sqlite: allowed are synchronous=normal and synchronous=full"
                )));
            }
        };
        if path == ":memory:" {
            return Ok(Self { path: None, full_sync });
        }
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() {
            return Err(StoreError::Failed("the URL names no file: write sqlite:PATH".to_owned()));
        }
        let path = if prefix == "dtq" {
            path.to_owned()
        } else {
            format!("{path}.{}", prefix.replace(':', "_"))
        };
        Ok(Self { path: Some(PathBuf::from(path)), full_sync })
    }
}

/// A piece of work for the writing thread.
type Job = Box<dyn FnOnce(&mut Option<Connection>, &Place) + Send>;

/// Who runs the work.
#[derive(Debug)]
enum Hands {
    /// A thread that owns the connection.
    Thread(mpsc::Sender<Job>),
    /// Whoever calls, at once: a test's own thread, whose clock is tokio's.
    #[cfg(feature = "testing")]
    Caller { place: Place, connection: std::sync::Mutex<Option<Connection>>, clock: TestClock },
}

/// A clock that moves as the runtime's does.
#[cfg(feature = "testing")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct TestClock {
    pub(crate) start: tokio::time::Instant,
    pub(crate) start_ms: Millis,
}

#[cfg(feature = "testing")]
impl TestClock {
    pub(crate) fn now(self) -> Millis {
        self.start_ms + u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Hands work to who owns the connection.
#[derive(Debug)]
pub(super) struct Db {
    hands: Hands,
    /// Bumped after every write, of this process or another.
    pub(super) changed: watch::Sender<u64>,
}

impl Db {
    pub(super) fn start(place: Place) -> StoreResult<Self> {
        let (jobs, receiver) = mpsc::channel::<Job>();
        let changed = watch::Sender::new(0);
        let thread = std::thread::Builder::new().name("dtq-sqlite".to_owned());
        let look_at = place.path.clone();
        thread
            .spawn(move || {
                // Opened by the first call, which tells what is wrong with it; tried again by the next.
                let mut connection = None;
                while let Ok(job) = receiver.recv() {
                    job(&mut connection, &place);
                }
            })
            .map_err(|error| StoreError::Failed(format!("no thread for the file: {error}")))?;
        if let Some(path) = look_at {
            let news = changed.clone();
            let thread = std::thread::Builder::new().name("dtq-sqlite-watch".to_owned());
            thread
                .spawn(move || super::news::watch(&path, &news))
                .map_err(|error| StoreError::Failed(format!("no thread for the file: {error}")))?;
        }
        Ok(Self { hands: Hands::Thread(jobs), changed })
    }

    /// In memory, worked at by the caller. Its calls are to be made on the runtime of the clock.
    #[cfg(feature = "testing")]
    pub(super) fn of_test(clock: TestClock) -> Self {
        let place = Place { path: None, full_sync: false };
        let hands = Hands::Caller { place, connection: std::sync::Mutex::default(), clock };
        Self { hands, changed: watch::Sender::new(0) }
    }

    /// The time by which rows are written.
    fn clock(&self) -> impl Fn() -> Millis + Send + 'static {
        #[cfg(feature = "testing")]
        let clock = match &self.hands {
            Hands::Thread(_) => None,
            Hands::Caller { clock, .. } => Some(*clock),
        };
        move || {
            #[cfg(feature = "testing")]
            if let Some(clock) = clock {
                return clock.now();
            }
            now()
        }
    }

    /// Runs `work` in one transaction, which is committed if it succeeds. The clock is read inside.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>, Millis) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let clock = self.clock();
        let result = self
            .on_thread(move |connection| {
                let tx = connection
                    .transaction_with_behavior(TransactionBehavior::Immediate)
                    .map_err(to_store_error)?;
                let value = work(&tx, clock())?;
                tx.commit().map_err(to_store_error)?;
                Ok(value)
            })
            .await;
        if result.is_ok() {
            self.changed.send_modify(|n| *n += 1);
        }
        result
    }

    /// Reads; one snapshot for all that `work` asks.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>, Millis) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let clock = self.clock();
        self.on_thread(move |connection| {
            let tx = connection.transaction().map_err(to_store_error)?;
            work(&tx, clock())
        })
        .await
    }

    async fn on_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |slot, place| {
            let opened = match slot.take() {
                Some(connection) => Ok(connection),
                None => open(place),
            };
            let result = opened.and_then(|mut connection| {
                let result = work(&mut connection);
                *slot = Some(connection);
                result.map_err(|error| name_the_file(error, place.path.as_deref()))
            });
            let _ = reply.send(result);
        });
        let gone = || StoreError::Failed("the file's thread has ended".to_owned());
        match &self.hands {
            Hands::Thread(jobs) => jobs.send(job).map_err(|_| gone())?,
            #[cfg(feature = "testing")]
            Hands::Caller { place, connection, .. } => {
                job(
                    &mut connection.lock().unwrap_or_else(std::sync::PoisonError::into_inner),
                    place,
                );
            }
        }
        answer.await.map_err(|_| gone())?
    }
}

pub(super) fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn open(place: &Place) -> StoreResult<Connection> {
    let connection = match &place.path {
        None => Connection::open_in_memory(),
        Some(path) => Connection::open(path),
    };
    let named =
        |error: rusqlite::Error| name_the_file(to_store_error(error), place.path.as_deref());
    let mut connection = connection.map_err(named)?;
    connection.busy_timeout(BUSY).map_err(named)?;
    let mode: String = connection
        .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
        .map_err(named)?;
    if place.path.is_some() && !mode.eq_ignore_ascii_case("wal") {
        let why = format!(
            "the filesystem cannot lock or share memory as SQLite's WAL needs (it offers `{mode}`)"
        );
        return Err(name_the_file(StoreError::Failed(why), place.path.as_deref()));
    }
    let sync = if place.full_sync { "FULL" } else { "NORMAL" };
    connection.pragma_update(None, "synchronous", sync).map_err(named)?;
    connection.pragma_update(None, "temp_store", "MEMORY").map_err(named)?;
    connection.set_prepared_statement_cache_capacity(128);
    migrate(&mut connection).map_err(|error| name_the_file(error, place.path.as_deref()))?;
    Ok(connection)
}

/// Brings the schema up to this version; several processes may try at once.
fn migrate(connection: &mut Connection) -> StoreResult<()> {
    let tx = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(to_store_error)?;
    let version: i64 =
        tx.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(to_store_error)?;
    if version > SCHEMA {
        return Err(StoreError::Incompatible(format!(
            "the file has schema {version}, this version of dtq knows schemas up to {SCHEMA}: upgrade this process"
        )));
    }
    for step in MIGRATIONS.iter().skip(usize::try_from(version).unwrap_or(0)) {
        tx.execute_batch(step).map_err(to_store_error)?;
    }
    if version < SCHEMA {
        tx.pragma_update(None, "user_version", SCHEMA).map_err(to_store_error)?;
    }
    tx.commit().map_err(to_store_error)
}

fn name_the_file(error: StoreError, path: Option<&Path>) -> StoreError {
    let Some(path) = path else { return error };
    let add = |text: String| format!("{text} (the file is {})", path.display());
    match error {
        StoreError::Unavailable(text) => StoreError::Unavailable(add(text)),
        StoreError::Refused(text) => StoreError::Refused(add(text)),
        StoreError::Incompatible(text) => StoreError::Incompatible(add(text)),
        StoreError::Failed(text) => StoreError::Failed(add(text)),
    }
}

pub(super) fn to_store_error(error: rusqlite::Error) -> StoreError {
    let text = error.to_string();
    let code = error.sqlite_error_code();
    match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::Unavailable(format!("another process is writing: {text}"))
        }
        Some(ErrorCode::DiskFull) => StoreError::Refused(format!("the disk is full: {text}")),
        Some(ErrorCode::ReadOnly) => {
            StoreError::Failed(format!("the file cannot be written to: {text}"))
        }
        Some(ErrorCode::CannotOpen) => {
            StoreError::Failed(format!("the file cannot be opened or made: {text}"))
        }
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            StoreError::Failed(format!("the file is damaged or no SQLite file: {text}"))
        }
        Some(ErrorCode::SystemIoFailure | ErrorCode::FileLockingProtocolFailed) => {
            StoreError::Failed(format!("the filesystem fails, or cannot lock: {text}"))
        }
        _ => StoreError::Failed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir() -> PathBuf {
        let dir = std::env::temp_dir().join(format!("dtq-file-{:x}", fastrand::u64(..)));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn place(path: PathBuf) -> Place {
        Place { path: Some(path), full_sync: false }
    }

    #[test]
    fn c48_a_filesystem_that_cannot_lock_is_said_so() {
        let dir = dir();
        // Locks by a file beside it, which cannot carry WAL: as on a network filesystem.
        let uri = format!("file:{}?vfs=unix-dotfile", dir.join("dtq.db").display());
        let error = open(&place(uri.into())).unwrap_err().to_string();
        assert!(
            error.contains("cannot lock or share memory") && error.contains("dtq.db"),
            "{error}"
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[tokio::test]
    async fn c48_a_full_disk_refuses_and_loses_nothing() {
        let dir = dir();
        let db = Db::start(place(dir.join("dtq.db"))).unwrap();
        // SQLite's own limit fails as the disk does.
        let limit = async |pages: u64| {
            let set = move |tx: &Transaction<'_>, _| {
                let set = format!("PRAGMA max_page_count = {pages}");
                tx.query_row(&set, [], |_| Ok(())).map_err(to_store_error)
            };
            db.write(set).await.unwrap();
        };
        let insert = async || {
            let write = |tx: &Transaction<'_>, _| {
                let event = "INSERT INTO event (at, text) VALUES (1, hex(randomblob(2000)))";
                tx.execute(event, []).map_err(to_store_error)
            };
            db.write(write).await
        };
        limit(60).await;
        let mut written = 0i64;
        let error = loop {
            match insert().await {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
        };
        assert!(written > 0);
        assert!(matches!(&error, StoreError::Refused(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("the disk is full") && text.contains("dtq.db"), "{text}");
        limit(1000).await;
        insert().await.unwrap();
        let count = |tx: &Transaction<'_>, _| {
            let count = "SELECT COUNT(*) FROM event";
            tx.query_row(count, [], |row| row.get::<_, i64>(0)).map_err(to_store_error)
        };
        assert_eq!(db.read(count).await.unwrap(), written + 1);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_file_of_every_past_schema_is_brought_forward() {
        for version in 1..=MIGRATIONS.len() {
            let dir = dir();
            let path = dir.join("dtq.db");
            let raw = Connection::open(&path).unwrap();
            for step in &MIGRATIONS[..version] {
                raw.execute_batch(step).unwrap();
            }
            raw.pragma_update(None, "user_version", version as i64).unwrap();
            raw.execute_batch("INSERT INTO queue (name, depth) VALUES ('old', 7)").unwrap();
            drop(raw);
            let schema = |connection: &Connection| -> Vec<(String, String)> {
                let mut all = connection
                    .prepare(
                        "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name",
                    )
                    .unwrap();
                let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
                rows.collect::<Result<_, _>>().unwrap()
            };
            let fresh = open(&Place { path: None, full_sync: false }).unwrap();
            let brought = open(&place(path)).unwrap();
            assert_eq!(schema(&brought), schema(&fresh), "from version {version}");
            let depth = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
            assert_eq!(brought.query_row("SELECT depth FROM queue", [], depth).unwrap(), 7);
            let now = brought.query_row("PRAGMA user_version", [], depth).unwrap();
            assert_eq!(now, SCHEMA);
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
}
