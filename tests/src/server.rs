//! A redis-server of the test's own, in a directory of its own, stopped by its process id.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server; it stops when this is dropped.
#[derive(Debug)]
pub struct RedisServer {
    child: Option<Child>,
    dir: PathBuf,
    port: u16,
    arguments: Vec<String>,
}

impl RedisServer {
    /// A server without persistence.
    pub fn start() -> Self {
        Self::start_with(&["--save", "", "--appendonly", "no"])
    }

    /// A server with these further arguments.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn start_with(arguments: &[&str]) -> Self {
        let name = format!("dtq-tests-{}-{:x}", std::process::id(), fastrand::u64(..));
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).expect("a temporary directory");
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let mut server = Self { child: None, dir, port: 0, arguments };
        // Another process may take the port in between: then another is tried.
        for _ in 0..20 {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            server.port = listener.local_addr().expect("its number").port();
            drop(listener);
            if server.launch() {
                return server;
            }
        }
        panic!("redis-server does not start");
    }

    fn launch(&mut self) -> bool {
        let child = Command::new("redis-server")
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--dir"])
            .arg(&self.dir)
            .args(&self.arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is installed (tests/run does it)");
        self.child = Some(child);
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(20) {
            if std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return true;
            }
            if self.child.as_mut().is_none_or(|c| matches!(c.try_wait(), Ok(Some(_)))) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// `redis://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its process id.
    ///
    /// # Panics
    ///
    /// If it is stopped.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Kills it, as `kill -9` does.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again, on the same port and in the same directory.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn restart(&mut self) {
        self.kill();
        let started = Instant::now();
        while !self.launch() {
            assert!(
                started.elapsed() < Duration::from_secs(30),
                "redis-server does not start again"
            );
        }
    }

    /// A connection of the test's own.
    ///
    /// # Panics
    ///
    /// If there is none to be had.
    pub async fn raw(&self) -> Raw {
        let client = redis::Client::open(self.url()).expect("a URL");
        let connection = client.get_multiplexed_async_connection().await.expect("a connection");
        Raw(connection)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Talks to the server past dtq.
#[derive(Clone)]
pub struct Raw(redis::aio::MultiplexedConnection);

impl std::fmt::Debug for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Raw")
    }
}

impl Raw {
    /// Runs a command.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub async fn run<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut self.0).await.expect("the command succeeds")
    }

    /// Commands that clients have sent so far, scripts counted as one.
    ///
    /// # Panics
    ///
    /// If the server does not tell.
    pub async fn commands(&mut self) -> u64 {
        let stats: String = self.run(&["INFO", "commandstats"]).await;
        let from_clients = |line: &str| -> Option<u64> {
            let name = line.strip_prefix("cmdstat_")?.split(':').next()?;
            // What scripts call counts under its own name: only these come from clients here.
            let counted = ["evalsha", "eval", "blpop", "subscribe", "ping", "smembers"];
            counted.contains(&name).then_some(())?;
            line.split("calls=").nth(1)?.split(',').next()?.parse().ok()
        };
        stats.lines().filter_map(from_clients).sum()
    }
}

/// A file of the test's own for the embedded store.
#[derive(Debug)]
pub struct SqliteFile {
    dir: PathBuf,
}

impl SqliteFile {
    /// A directory for the file, which the first call makes.
    ///
    /// # Panics
    ///
    /// If there is no room for it.
    pub fn start() -> Self {
        let name = format!("dtq-tests-{}-{:x}", std::process::id(), fastrand::u64(..));
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).expect("a temporary directory");
        Self { dir }
    }

    /// `sqlite:PATH`.
    pub fn url(&self) -> String {
        format!("sqlite:{}", self.dir.join("dtq.db").display())
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for SqliteFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
