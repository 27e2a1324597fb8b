//! Learns of what other processes have written to the file.
//!
//! Every commit writes to the log beside the file (`-wal`). Where the kernel tells of such writes (inotify)
//! this thread sleeps until it does, and an idle process costs next to nothing. Elsewhere the log's size
//! and time are looked at often. What counts is SQLite's own answer, whether somebody else has
//! committed: the kernel tells of the write, and the commit is seen a moment after it.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OpenFlags};
use tokio::sync::watch;

/// How often the log is looked at where nobody tells of writes.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often SQLite is asked when nothing was heard: what was missed is found by then.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// Waits between the times at which SQLite is asked after something was heard: its commit may be on its way,
/// and one that waits for its disk is so for a while. Also a bound on what a busy file costs, since
/// [`SLEPT`] of them are slept, whatever is heard meanwhile.
const AFTER_NEWS: [Duration; 5] = {
    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }
    [ms(1), ms(4), ms(10), ms(20), ms(40)]
};
const SLEPT: usize = 2;
/// Commits of this process between two looks from which on it counts as busy: its own commits wake those
/// who listen anyway.
const BUSY: u64 = 10;

/// Tells of other processes' commits until nobody listens.
pub(super) fn watch(path: &Path, news: &watch::Sender<u64>) {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let mut ear = Ear::new(log.into());
    let mut connection: Option<Connection> = None;
    let mut seen = 0;
    let (mut quiet, mut told) = (0, 0);
    // The sender itself is kept by the store: one receiver less than senders means that it is gone.
    while news.sender_count() > 1 {
        let now = *news.borrow();
        if now - told > BUSY {
            std::thread::sleep(LOOK_EVERY);
        }
        told = now;
        quiet = if ear.heard(quiet) { 0 } else { quiet + 1 };
        match version(&mut connection, path) {
            Some(version) if version != seen => {
                seen = version;
                news.send_modify(|n| *n += 1);
            }
            _ => {}
        }
    }
}

/// A number that changes when somebody else has committed.
fn version(connection: &mut Option<Connection>, path: &Path) -> Option<i64> {
    if connection.is_none() && path.exists() {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        *connection = Connection::open_with_flags(path, flags).ok();
    }
    let version = connection
        .as_ref()?
        .prepare_cached("PRAGMA data_version")
        .and_then(|mut asking| asking.query_row([], |row| row.get::<_, i64>(0)));
    if version.is_err() {
        *connection = None;
    }
    version.ok()
}

/// Hears of writes to a file.
struct Ear {
    file: PathBuf,
    #[cfg(target_os = "linux")]
    told: Option<told::Told>,
    /// Of the last look.
    stamp: Option<(SystemTime, u64)>,
}

impl Ear {
    fn new(file: PathBuf) -> Self {
        Self {
            file,
            #[cfg(target_os = "linux")]
            told: told::Told::new(),
            stamp: None,
        }
    }

    /// Waits for a write, or until it is time to ask in any case; `quiet` is how often nothing was heard.
    fn heard(&mut self, quiet: usize) -> bool {
        let wait = AFTER_NEWS.get(quiet).copied().unwrap_or(ASK_EVERY);
        if quiet < SLEPT {
            std::thread::sleep(wait);
            return false;
        }
        #[cfg(target_os = "linux")]
        if let Some(told) = &self.told
            && let Some(heard) = told.wait(&self.file, wait)
        {
            return heard;
        }
        self.looked(wait)
    }

    fn looked(&mut self, wait: Duration) -> bool {
        let looks = wait.as_millis() / LOOK_EVERY.as_millis();
        for _ in 0..looks.max(1) {
            std::thread::sleep(LOOK_EVERY);
            let log = std::fs::metadata(&self.file).ok();
            let stamp = log.and_then(|log| Some((log.modified().ok()?, log.len())));
            if stamp != self.stamp {
                self.stamp = stamp;
                return true;
            }
        }
        false
    }
}

#[cfg(target_os = "linux")]
mod told {
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};

    /// The kernel's word.
    pub(super) struct Told(OwnedFd);

    impl Told {
        /// `None`: a user may have only so many of these (`fs.inotify.max_user_instances`).
        pub(super) fn new() -> Option<Self> {
            init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok().map(Self)
        }

        /// Whether the file was written to before the time was over. `None`, at once: it is not there, or
        /// cannot be watched.
        pub(super) fn wait(&self, file: &Path, time: Duration) -> Option<bool> {
            // Each time: the file may be another one by now. Of one that is watched it changes nothing.
            add_watch(&self.0, file, WatchFlags::MODIFY).ok()?;
            let time = time.try_into().ok()?;
            let heard = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&time)).ok()? > 0;
            let mut events = [0; 4096];
            while rustix::io::read(&self.0, &mut events).is_ok_and(|bytes| bytes > 0) {}
            Some(heard)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("dtq-news-{name}-{}", std::process::id()))
    }

    /// The waits after news take too long to be hit by accident.
    const LONG: usize = AFTER_NEWS.len();

    #[test]
    fn a_write_is_heard_of_and_silence_is_not() {
        for told in [true, false] {
            let file = file(&format!("heard-{told}"));
            std::fs::write(&file, "a").unwrap();
            let mut ear = Ear::new(file.clone());
            #[cfg(target_os = "linux")]
            if !told {
                ear.told = None;
            }
            // The first wait begins to watch, or takes the first stamp.
            let _ = ear.heard(LONG);
            assert!(!ear.heard(LONG), "nobody wrote");
            std::thread::scope(|scope| {
                let writing = scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(20));
                    std::fs::write(&file, "abc").unwrap();
                });
                let heard = (0..100).any(|_| ear.heard(LONG));
                writing.join().unwrap();
                assert!(heard);
            });
            std::fs::remove_file(file).unwrap();
        }
    }

    #[test]
    fn a_file_that_is_made_later_or_made_anew_is_heard_of() {
        let file = file("anew");
        let mut ear = Ear::new(file.clone());
        assert!(!ear.heard(LONG), "there is none");
        for _ in 0..3 {
            std::fs::write(&file, "a").unwrap();
            let _ = ear.heard(LONG);
            std::fs::write(&file, "bc").unwrap();
            assert!((0..3).any(|_| ear.heard(LONG)));
            std::fs::remove_file(&file).unwrap();
            let _ = ear.heard(LONG);
        }
    }
}
