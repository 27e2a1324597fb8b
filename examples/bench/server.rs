//! The store that is measured: a redis-server of the program's own, or a file; both are gone afterwards.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;

use super::figures::Figures;
use super::{Settings, StoreKind};

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq)]
pub(crate) enum Aof {
    Off,
    Everysec,
    Always,
}

/// Where the tasks live.
pub(crate) struct Place {
    dir: PathBuf,
    url: String,
    redis: Option<(Child, redis::aio::MultiplexedConnection)>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((server, _)) = &mut self.redis {
            let _ = server.kill();
            let _ = server.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// What was used up so far.
pub(crate) struct Cost {
    /// Microseconds of the server's CPU, its calls of scripts and the commands that clients sent.
    server: Option<(f64, f64, f64)>,
    /// Microseconds of this process.
    own: f64,
}

impl Cost {
    /// Notes what each of `tasks` has cost since `before`.
    pub(crate) fn since(&self, before: &Self, tasks: f64, what: &str, figures: &mut Figures) {
        if let (Some(now), Some(then)) = (self.server, before.server) {
            figures.set(&format!("{what}: Redis CPU us a task"), (now.0 - then.0) / tasks);
            figures.set(&format!("{what}: tasks a round trip"), tasks / (now.1 - then.1));
            figures.set(&format!("{what}: commands a task"), (now.2 - then.2) / tasks);
        }
        figures.set(&format!("{what}: own CPU us a task"), (self.own - before.own) / tasks);
    }

    /// Notes what an idle worker has cost since `before`.
    pub(crate) fn idle(&self, before: &Self, seconds: f64, figures: &mut Figures) {
        if let (Some(now), Some(then)) = (self.server, before.server) {
            figures.set("idle worker: commands /s", (now.2 - then.2) / seconds);
        }
        figures.set("idle worker: CPU % of a core", (self.own - before.own) / seconds / 1e4);
    }

    /// Microseconds of the server's CPU a task since `before`; of this process without a server.
    pub(crate) fn each(&self, before: &Self, tasks: f64) -> f64 {
        match (self.server, before.server) {
            (Some(now), Some(then)) => (now.0 - then.0) / tasks,
            _ => (self.own - before.own) / tasks,
        }
    }
}

impl Place {
    pub(crate) async fn open(settings: &Settings) -> anyhow::Result<Self> {
        let dir = std::env::temp_dir().join(format!("dtq-bench-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let mut place = Self { url: String::new(), redis: None, dir };
        if settings.store == StoreKind::Sqlite {
            let file = place.dir.join("bench.db");
            place.url = format!("sqlite:{}?synchronous={}", file.display(), settings.synchronous);
            return Ok(place);
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let server = pinned("0", "redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()])
            .args(["--appendonly", if settings.aof == Aof::Off { "no" } else { "yes" }])
            .args([
                "--appendfsync",
                if settings.aof == Aof::Always { "always" } else { "everysec" },
            ])
            .arg("--dir")
            .arg(&place.dir)
            .stdout(Stdio::null())
            .spawn()?;
        place.url = format!("redis://127.0.0.1:{port}");
        let client = redis::Client::open(place.url.as_str())?;
        let started = Instant::now();
        let connection = loop {
            match client.get_multiplexed_async_connection().await {
                Ok(connection) => break connection,
                Err(error) if started.elapsed() > Duration::from_secs(20) => {
                    return Err(error.into());
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        place.redis = Some((server, connection));
        // This program on the other core, all of its threads.
        let _ = Command::new("taskset")
            .args(["-a", "-p", "-c", "1", &std::process::id().to_string()])
            .stdout(Stdio::null())
            .status();
        Ok(place)
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    async fn info(&mut self, section: &str) -> anyhow::Result<Option<String>> {
        let Some((_, redis)) = &mut self.redis else { return Ok(None) };
        Ok(Some(redis::cmd("INFO").arg(section).query_async(redis).await?))
    }

    pub(crate) async fn cost(&mut self) -> anyhow::Result<Cost> {
        let own = own_cpu();
        let Some(cpu) = self.info("cpu").await? else { return Ok(Cost { server: None, own }) };
        let stats = self.info("commandstats").await?.unwrap_or_default();
        let calls = |line: &str| -> Option<f64> {
            line.split("calls=").nth(1)?.split(',').next()?.parse().ok()
        };
        let scripts = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:"));
        let used = number(&cpu, "used_cpu_user:") + number(&cpu, "used_cpu_sys:");
        // What scripts call counts under its own name: only these come from clients here.
        let sent = |line: &&str| {
            let name = line.strip_prefix("cmdstat_").and_then(|line| line.split(':').next());
            let of_clients = ["evalsha", "eval", "blpop", "subscribe", "ping", "smembers"];
            name.is_some_and(|name| of_clients.contains(&name))
        };
        let all = stats.lines().filter(sent).filter_map(calls).sum();
        Ok(Cost { server: Some((used * 1e6, scripts.and_then(calls).unwrap_or(0.0), all)), own })
    }

    /// Bytes that the tasks take: of the server's memory, or of the file.
    pub(crate) async fn bytes(&mut self) -> anyhow::Result<f64> {
        if let Some(memory) = self.info("memory").await? {
            return Ok(number(&memory, "used_memory:"));
        }
        // What the file holds or will hold; its log beside it is a few MB, however many tasks there are.
        let file = rusqlite::Connection::open(self.dir.join("bench.db"))?;
        let pages: f64 = file.query_row("PRAGMA page_count", [], |row| row.get(0))?;
        let size: f64 = file.query_row("PRAGMA page_size", [], |row| row.get(0))?;
        Ok(pages * size)
    }

    /// Round trips a second of a connection that asks nothing.
    pub(crate) async fn ping(&mut self, times: u32) -> anyhow::Result<Option<f64>> {
        let Some((_, redis)) = &mut self.redis else { return Ok(None) };
        let before = Instant::now();
        for _ in 0..times {
            redis::cmd("PING").query_async::<()>(redis).await?;
        }
        Ok(Some(f64::from(times) / before.elapsed().as_secs_f64()))
    }
}

fn number(info: &str, name: &str) -> f64 {
    let value = info.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0.0)
}

/// Microseconds of CPU of this process, threads that have ended included.
fn own_cpu() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.tv_sec as f64 * 1e6 + used.tv_nsec as f64 / 1000.0
}

fn has_taskset() -> bool {
    Command::new("taskset").arg("-V").stdout(Stdio::null()).status().is_ok()
}

fn pinned(core: &str, program: &str) -> Command {
    if !has_taskset() {
        return Command::new(program);
    }
    let mut command = Command::new("taskset");
    command.args(["-c", core, program]);
    command
}

/// The machine, the versions and the settings, in a few lines.
pub(crate) fn machine(settings: &Settings) -> anyhow::Result<String> {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cores = std::thread::available_parallelism()?;
    let version = Command::new("redis-server").arg("--version").output();
    let version = version.map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
    let version = version.unwrap_or_default();
    let version = version.split(' ').find_map(|word| word.strip_prefix("v=")).unwrap_or("none");
    let pinned = if has_taskset() { "pinned" } else { "not pinned" };
    Ok(format!(
        "dtq {}, {} ({cores} cores, {pinned}), redis-server {version}\n{settings:?}\n",
        env!("CARGO_PKG_VERSION"),
        model.unwrap_or("unknown CPU"),
    ))
}
