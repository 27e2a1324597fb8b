//! The configuration: read from `DTQ_` variables or built by hand, all of it checked at once (SPEC 11).
//!
//! One table holds every setting; the builder writes into the same table as the environment does.

mod builder;
mod settings;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

pub use self::builder::ConfigBuilder;
use self::settings::SETTINGS;
pub(crate) use self::settings::{QUEUE_NAME, is_queue_name, queues};

use crate::retry::RetryPolicy;
use crate::store::{Millis, Settings};

/// Delays, times to live and other long spans: ten years at most (SPEC 6.1).
pub(crate) const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Everything that can be configured: by the environment ([`from_env`](Self::from_env)), by hand
/// ([`builder`](Self::builder)), or both ([`ConfigBuilder::env`]). The builder's methods tell each
/// setting's variable, meaning and default.
///
/// ```
/// use std::time::Duration;
/// let config = dtq::Config::builder()
///     .url("redis://localhost:6379")
///     .concurrency(64)
///     .visibility_timeout(Duration::from_secs(60))
///     .build()?;
/// # Ok::<(), dtq::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    /// `DTQ_URL`, alias `DTQ_REDIS_URL`: where tasks live.
    pub(crate) url: Option<StoreUrl>,
    pub(crate) key_prefix: String,
    pub(crate) retry: RetryPolicy,
    /// Caps what a task may ask for (SPEC 4.5).
    pub(crate) max_attempts_cap: u32,
    pub(crate) max_payload_bytes: u64,
    pub(crate) max_queue_depth: u64,
    pub(crate) max_scheduled: u64,
    pub(crate) idempotency_ttl: Duration,
    pub(crate) result_retention: Duration,
    pub(crate) task_retention: Duration,
    pub(crate) result_max_bytes: u64,
    pub(crate) events: bool,
    pub(crate) dlq_enabled: bool,
    pub(crate) dlq_maxlen: u64,
    /// For tasks whose attribute sets none.
    pub(crate) task_timeout: Duration,
    pub(crate) concurrency: usize,
    pub(crate) worker_id: Option<String>,
    pub(crate) queues: Option<Vec<QueueChoice>>,
    pub(crate) visibility_timeout: Duration,
    heartbeat_interval: Option<Duration>,
    pub(crate) drain_timeout: Duration,
    pub(crate) unknown_task: UnknownTask,
}

/// A queue that a worker fetches from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueChoice {
    /// A name, or `*` for every known queue.
    pub(crate) name: String,
    /// `None`: strict order. With weights a worker draws the order of its queues for each fetch.
    pub(crate) weight: Option<u32>,
}

/// What to do with a task of a type that the worker does not know (SPEC 3.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownTask {
    /// Dead-letter it, never executed.
    DeadLetter,
    /// Put it off by 60 s, for at most 24 h: for rolling deploys.
    Snooze,
}

/// A URL that never shows its password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoreUrl(pub(crate) String);

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = &self.0;
        let Some((scheme, rest)) = url.split_once("://") else { return f.write_str(url) };
        let (info, host) = rest.rsplit_once('@').map_or((None, rest), |(i, h)| (Some(i), h));
        write!(f, "{scheme}://")?;
        if let Some(info) = info {
            let user = info.split_once(':').map_or("", |(user, _)| user);
            write!(f, "{user}:***@")?;
        }
        // A socket's URL holds its password among the parameters.
        let (place, parameters) = host.split_once('?').map_or((host, None), |(p, q)| (p, Some(q)));
        f.write_str(place)?;
        if let Some(parameters) = parameters {
            let shown: Vec<_> = parameters
                .split('&')
                .map(|p| if p.starts_with("pass") { "pass=***" } else { p })
                .collect();
            write!(f, "?{}", shown.join("&"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Default for Config {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            url: None,
            key_prefix: "dtq".to_owned(),
            retry: RetryPolicy::default(),
            max_attempts_cap: 10,
            max_payload_bytes: 262_144,
            max_queue_depth: 10_000,
            max_scheduled: 1_000_000,
            idempotency_ttl: Duration::from_secs(86_400),
            result_retention: Duration::from_secs(3600),
            task_retention: Duration::from_secs(604_800),
            result_max_bytes: 8192,
            events: true,
            dlq_enabled: true,
            dlq_maxlen: 10_000,
            task_timeout: Duration::from_secs(30),
            concurrency: 4 * cores,
            worker_id: None,
            queues: None,
            visibility_timeout: Duration::from_secs(30),
            heartbeat_interval: None,
            drain_timeout: Duration::from_secs(30),
            unknown_task: UnknownTask::DeadLetter,
        }
    }
}

/// One thing that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigProblem {
    /// The variable.
    pub variable: String,
    /// Its value; passwords are not shown.
    pub value: String,
    /// What is allowed.
    pub allowed: String,
}

/// Everything that is wrong with a configuration, reported together.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigError {
    /// At least one.
    pub problems: Vec<ConfigProblem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration is not valid:")?;
        for ConfigProblem { variable, value, allowed } in &self.problems {
            if value.is_empty() {
                write!(f, "\n  {variable}: {allowed}")?;
            } else {
                write!(f, "\n  {variable}={value}: allowed is {allowed}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// The configuration of the environment's `DTQ_` variables. Unknown ones are warned of.
    ///
    /// # Errors
    ///
    /// All problems together, each with variable, value and what is allowed.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::builder().env().build()
    }

    /// Starts from the defaults, whatever the environment says.
    pub fn builder() -> ConfigBuilder {
        ConfigBuilder::default()
    }

    /// The whole of reading and checking, without the process's environment.
    pub(crate) fn from_variables(variables: &[(String, String)]) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        let mut problems = Vec::new();
        let mut problem = |variable: &str, value: &str, allowed: &str| {
            let value = if variable.ends_with("URL") {
                StoreUrl(value.to_owned()).to_string()
            } else {
                value.chars().take(100).flat_map(char::escape_debug).collect()
            };
            problems.push(ConfigProblem {
                variable: variable.to_owned(),
                value: if value.is_empty() { "(empty)".to_owned() } else { value },
                allowed: allowed.to_owned(),
            });
        };
        let given = |wanted: &str| variables.iter().rev().find(|(name, _)| name == wanted);
        for setting in SETTINGS {
            if let Some((name, value)) = given(setting.name)
                && (setting.set)(&mut config, value).is_none()
            {
                problem(name, value, setting.allowed);
            }
        }
        if let (Some((_, url)), Some((name, alias))) = (given("DTQ_URL"), given("DTQ_REDIS_URL")) {
            if url != alias {
                problem(
                    name,
                    alias,
                    "the same as DTQ_URL, of which it is an alias; set one of them",
                );
            }
            config.url = settings::url(url).or(config.url);
        }
        if config.retry.max < config.retry.base {
            let value = config.retry.max.to_string();
            let allowed = format!("at least DTQ_RETRY_BASE_DELAY, which is {}", config.retry.base);
            problem("DTQ_RETRY_MAX_DELAY", &value, &allowed);
        }
        let third = config.visibility_timeout / 3;
        if let Some(interval) = config.heartbeat_interval
            && interval > third
        {
            let allowed = format!(
                "at most {}, a third of DTQ_VISIBILITY_TIMEOUT_S, which is {}",
                third.as_secs_f64(),
                config.visibility_timeout.as_secs_f64()
            );
            problem("DTQ_HEARTBEAT_INTERVAL_S", &interval.as_secs_f64().to_string(), &allowed);
        }
        if problems.is_empty() { Ok(config) } else { Err(ConfigError { problems }) }
    }

    /// 5 s, or less where the visibility timeout is short: at most a third of it.
    pub(crate) fn heartbeat_interval(&self) -> Duration {
        let longest = self.visibility_timeout / 3;
        self.heartbeat_interval.unwrap_or(Duration::from_secs(5)).min(longest)
    }

    /// Where tasks live. Without a URL: a file beside the program while developing, a refusal in
    /// release builds.
    pub(crate) fn store_url(&self) -> Result<StoreUrl, ConfigError> {
        if let Some(url) = &self.url {
            return Ok(url.clone());
        }
        if cfg!(all(debug_assertions, feature = "sqlite")) {
            static ONCE: std::sync::Once = std::sync::Once::new();
            ONCE.call_once(|| {
                let file = std::path::absolute("dtq.db").unwrap_or_else(|_| "dtq.db".into());
                tracing::warn!(
                    "DTQ_URL is not set: this debug build keeps its tasks in {}; to use Redis set \
                     DTQ_URL=redis://host:6379",
                    file.display()
                );
            });
            return Ok(StoreUrl("sqlite:dtq.db".to_owned()));
        }
        Err(ConfigError {
            problems: vec![ConfigProblem {
                variable: "DTQ_URL".to_owned(),
                value: String::new(),
                allowed: "it is not set, and this build has no default: set it to \
                          redis://host:6379 for a fleet, or to sqlite:PATH for one machine"
                    .to_owned(),
            }],
        })
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            key_prefix: self.key_prefix.clone(),
            max_queue_depth: self.max_queue_depth,
            max_scheduled: self.max_scheduled,
            idempotency_ttl: millis(self.idempotency_ttl),
            dlq_enabled: self.dlq_enabled,
            dlq_maxlen: self.dlq_maxlen,
            result_retention: millis(self.result_retention),
            task_retention: millis(self.task_retention),
            events: self.events,
        }
    }
}

/// Whole milliseconds, saturating.
pub(crate) fn millis(span: Duration) -> Millis {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The environment's `DTQ_` variables; unknown ones are warned of, each once.
fn dtq_variables() -> Vec<(String, String)> {
    static WARNED: std::sync::Mutex<std::collections::BTreeSet<String>> =
        std::sync::Mutex::new(std::collections::BTreeSet::new());
    // A name that is not Unicode is none of ours; a value that is not shows up as a wrong one.
    let variables: Vec<_> = std::env::vars_os()
        .filter_map(|(name, value)| {
            let name = name.into_string().ok().filter(|name| name.starts_with("DTQ_"))?;
            Some((name, value.to_string_lossy().into_owned()))
        })
        .collect();
    let mut warned = WARNED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for warning in unknown_variables(&variables) {
        if !warned.contains(&warning) {
            tracing::warn!("{warning}");
            warned.insert(warning);
        }
    }
    variables
}

/// A warning for each `DTQ_` variable that is none of ours, with the nearest that is.
fn unknown_variables(variables: &[(String, String)]) -> Vec<String> {
    variables
        .iter()
        .filter(|(name, _)| SETTINGS.iter().all(|setting| setting.name != name))
        .map(|(name, _)| {
            let nearest = SETTINGS
                .iter()
                .map(|setting| setting.name)
                .min_by_key(|known| distance(known, name));
            format!(
                "{name} is not a variable of dtq: did you mean {}?",
                nearest.unwrap_or_default()
            )
        })
        .collect()
}

/// Levenshtein's.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
