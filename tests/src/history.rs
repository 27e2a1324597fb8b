//! What producers, workers and the harness saw, in append-only logs outside of the store, and the checker that
//! decides from them and from the store's final state whether the invariants of SPEC 12 held.
//!
//! The checker knows nothing of how dtq works: it would judge any queue.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dtq::Status;
use serde::{Deserialize, Serialize};

/// One thing that somebody saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "saw", rename_all = "snake_case")]
pub enum Saw {
    /// A producer is about to enqueue the task that it calls `n`.
    Asked {
        /// Its number.
        n: u64,
    },
    /// It was accepted.
    Accepted {
        /// Its number.
        n: u64,
        /// Its id.
        id: String,
        /// Executions at most.
        max_attempts: u32,
        /// Its delay.
        delay_ms: u64,
        /// Its time to live.
        ttl_ms: Option<u64>,
        /// Its idempotency key.
        key: Option<String>,
    },
    /// The key belongs to that task.
    Known {
        /// Its number.
        n: u64,
        /// The key.
        key: String,
        /// Who has it.
        id: String,
    },
    /// It was refused for certain.
    Refused {
        /// Its number.
        n: u64,
    },
    /// The store was away: it may be in or not.
    Unclear {
        /// Its number.
        n: u64,
    },
    /// A cancel is asked for.
    CancelAsked {
        /// Of that task.
        id: String,
    },
    /// A cancel was acknowledged while the task was not running.
    Cancelled {
        /// That task.
        id: String,
    },
    /// An execution begins.
    Start {
        /// The producer's number.
        n: u64,
        /// The task.
        id: String,
        /// The attempt.
        attempt: u32,
    },
    /// It returns that.
    End {
        /// The task.
        id: String,
        /// The attempt.
        attempt: u32,
        /// The result, as JSON.
        result: String,
    },
    /// It returns an error.
    Fail {
        /// The task.
        id: String,
        /// The attempt.
        attempt: u32,
        /// Whether it may be retried.
        retryable: bool,
    },
    /// Its future was dropped.
    Dropped {
        /// The task.
        id: String,
        /// The attempt.
        attempt: u32,
    },
    /// It puts itself off.
    Snooze {
        /// The task.
        id: String,
        /// The attempt.
        attempt: u32,
    },
    /// That process is about to die: nothing that it holds can be renewed any more.
    Dying {
        /// Its process id.
        victim: u32,
    },
    /// For so long leases may have lapsed: of one process, or of all.
    Trouble {
        /// What it was.
        kind: String,
        /// The one process that it was about.
        victim: Option<u32>,
        /// When it began, microseconds since the Unix epoch.
        from: u64,
        /// When it was over.
        to: u64,
        /// Whether a lease may lapse by it.
        leases: bool,
    },
    /// The store said so by an event.
    Event {
        /// The event's type.
        kind: String,
        /// The task.
        id: String,
    },
}

/// A line of a log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Microseconds since the Unix epoch.
    pub at: u64,
    /// Who saw it.
    pub pid: u32,
    /// What.
    #[serde(flatten)]
    pub saw: Saw,
}

/// Microseconds since the Unix epoch.
pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

/// An append-only log: each line is written at once and whole, also when processes share the file.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: Mutex<std::fs::File>,
}

impl Log {
    /// Opens it, or makes it.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(file) })
    }

    /// Writes a line.
    pub fn write(&self, saw: Saw) {
        let line = Line { at: now(), pid: std::process::id(), saw };
        let Ok(mut json) = serde_json::to_vec(&line) else { return };
        json.push(b'\n');
        if let Ok(mut file) = self.file.lock() {
            let _ = file.write_all(&json);
        }
    }

    /// Every line so far, by time.
    ///
    /// # Panics
    ///
    /// If the log cannot be read, or a line is none: then nothing could be concluded from it.
    pub fn read(&self) -> Vec<Line> {
        let text = std::fs::read_to_string(&self.path).expect("the log is readable");
        let mut lines: Vec<Line> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect();
        lines.sort_by_key(|line| line.at);
        lines
    }
}

/// What the store says of an accepted task once all is quiet.
#[derive(Debug, Clone, PartialEq)]
pub struct Final {
    /// Where it stands; `None`: the store knows nothing of it.
    pub status: Option<Status>,
    /// The attempt that it ended with.
    pub attempt: u32,
    /// The class of its last error.
    pub class: Option<String>,
    /// By the store's clock, the start of its latest attempt, and the end of its time to live.
    pub started_and_expires_ms: (Option<u64>, Option<u64>),
    /// When it ended, by the store's clock.
    pub finished_ms: Option<u64>,
    /// Its result, as JSON.
    pub result: Option<String>,
}

/// All that the checker looks at.
#[derive(Debug, Clone)]
pub struct History {
    /// What was seen, by time.
    pub lines: Vec<Line>,
    /// How every accepted task ended.
    pub finals: BTreeMap<String, Final>,
    /// What the store still holds although every task has ended, in words.
    pub left: Vec<String>,
    /// For how long a lease is good, of every worker.
    pub visibility: Duration,
}

/// An invariant that did not hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// `I1` to `I7`, or `5.1` for what is left behind, `10` for events.
    pub invariant: &'static str,
    /// Of which task, and how.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.text)
    }
}

/// An execution as the log tells it.
#[derive(Debug, Clone)]
struct Run<'a> {
    at: u64,
    pid: u32,
    attempt: u32,
    /// When and how it ended; `None`: nobody saw that.
    end: Option<(u64, &'a Saw)>,
}

#[derive(Debug, Default)]
struct Told<'a> {
    runs: Vec<Run<'a>>,
    cancel_asked: bool,
    cancelled_at: Option<u64>,
    events: Vec<&'a str>,
}

const ENDINGS: [&str; 5] =
    ["TASK_SUCCEEDED", "TASK_FAILED", "TASK_DEAD_LETTERED", "TASK_CANCELLED", "TASK_EXPIRED"];

impl History {
    /// Every violation of the invariants, by invariant.
    pub fn check(&self) -> Vec<Violation> {
        let mut judge = Judge::of(self);
        let told = judge.sort_out();
        judge.keys();
        judge.only_what_was_asked_for();
        for line in &self.lines {
            if let Saw::Accepted { n, id, max_attempts, delay_ms, .. } = &line.saw {
                let asked = judge.asked.get(n).copied().unwrap_or(line.at);
                let nothing = Told::default();
                let told = told.get(id.as_str()).unwrap_or(&nothing);
                judge.executions(asked, id, *max_attempts, *delay_ms, told);
                match self.finals.get(id) {
                    Some(end) => {
                        judge.ending(id, end, *max_attempts, told);
                        judge.lost_attempts(asked, id, end, told);
                    }
                    None => judge.say("I2", format!("nobody asked how {id} ended")),
                }
            }
        }
        for left in &self.left {
            judge.say("5.1", left.clone());
        }
        judge.found.into_iter().collect()
    }

    /// How many executions there were.
    pub fn executions(&self) -> usize {
        self.lines.iter().filter(|line| matches!(line.saw, Saw::Start { .. })).count()
    }

    /// How many tasks were accepted.
    pub fn accepted(&self) -> usize {
        self.lines.iter().filter(|line| matches!(line.saw, Saw::Accepted { .. })).count()
    }

    /// How often each kind of trouble was made.
    pub fn troubles(&self) -> BTreeMap<String, usize> {
        let mut troubles = BTreeMap::new();
        for line in &self.lines {
            if let Saw::Trouble { kind, .. } = &line.saw {
                *troubles.entry(kind.clone()).or_default() += 1;
            }
        }
        troubles
    }

    /// The longest time from the end of a trouble to the next execution that came to an end.
    pub fn longest_recovery(&self) -> Duration {
        let ends: Vec<u64> = self
            .lines
            .iter()
            .filter(|line| matches!(line.saw, Saw::End { .. } | Saw::Fail { .. }))
            .map(|line| line.at)
            .collect();
        let recovery = |to: u64| {
            let next = ends.get(ends.partition_point(|at| *at < to))?;
            Some(next - to)
        };
        let longest = self.lines.iter().filter_map(|line| match &line.saw {
            Saw::Trouble { to, .. } => recovery(*to),
            _ => None,
        });
        Duration::from_micros(longest.max().unwrap_or(0))
    }
}

struct Judge<'a> {
    history: &'a History,
    /// When each task was asked for.
    asked: HashMap<u64, u64>,
    /// By whom leases may have been lost: of whom (`None`: of all), from when to when.
    excuses: Vec<(Option<u32>, u64, u64)>,
    found: BTreeSet<Violation>,
}

impl<'a> Judge<'a> {
    fn of(history: &'a History) -> Self {
        let mut judge =
            Self { history, asked: HashMap::new(), excuses: Vec::new(), found: BTreeSet::new() };
        for line in &history.lines {
            match &line.saw {
                Saw::Asked { n } => {
                    judge.asked.entry(*n).or_insert(line.at);
                }
                Saw::Dying { victim } => judge.excuses.push((Some(*victim), line.at, u64::MAX)),
                Saw::Trouble { victim, from, to, leases: true, .. } => {
                    judge.excuses.push((*victim, *from, *to));
                }
                _ => {}
            }
        }
        judge
    }

    fn say(&mut self, invariant: &'static str, text: String) {
        self.found.insert(Violation { invariant, text });
    }

    /// The lines of each task.
    fn sort_out(&mut self) -> HashMap<&'a str, Told<'a>> {
        let history = self.history;
        let mut told: HashMap<&str, Told<'_>> = HashMap::new();
        for line in &history.lines {
            match &line.saw {
                Saw::Start { id, attempt, .. } => {
                    let (at, pid, attempt) = (line.at, line.pid, *attempt);
                    let run = Run { at, pid, attempt, end: None };
                    told.entry(id).or_default().runs.push(run);
                }
                Saw::End { id, attempt, .. }
                | Saw::Fail { id, attempt, .. }
                | Saw::Dropped { id, attempt }
                | Saw::Snooze { id, attempt } => {
                    let runs = &mut told.entry(id).or_default().runs;
                    let own = |run: &&mut Run<'_>| {
                        run.pid == line.pid && run.attempt == *attempt && run.end.is_none()
                    };
                    match runs.iter_mut().rev().find(own) {
                        Some(run) => run.end = Some((line.at, &line.saw)),
                        None => self.say("log", format!("{line:?} ends what did not begin")),
                    }
                }
                Saw::CancelAsked { id } => told.entry(id).or_default().cancel_asked = true,
                Saw::Cancelled { id } => told.entry(id).or_default().cancelled_at = Some(line.at),
                Saw::Event { kind, id } => told.entry(id).or_default().events.push(kind),
                _ => {}
            }
        }
        told
    }

    /// I6: as long as records stay, a key maps to one task, and everybody is told the same.
    fn keys(&mut self) {
        let mut owners: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for line in &self.history.lines {
            match &line.saw {
                Saw::Accepted { id, key: Some(key), .. } | Saw::Known { id, key, .. } => {
                    owners.entry(key).or_default().insert(id);
                }
                _ => {}
            }
        }
        for (key, ids) in owners {
            if ids.len() > 1 {
                self.say("I6", format!("the key {key} maps to {ids:?}"));
            }
        }
    }

    /// Nothing runs that nobody asked for, or that was refused.
    fn only_what_was_asked_for(&mut self) {
        let mut asked: HashMap<u64, Option<&str>> = HashMap::new();
        let mut refused = BTreeSet::new();
        for line in &self.history.lines {
            match &line.saw {
                Saw::Asked { n } => {
                    asked.entry(*n).or_default();
                }
                Saw::Accepted { n, id, .. } => {
                    asked.insert(*n, Some(id));
                }
                Saw::Refused { n } => {
                    refused.insert(*n);
                }
                _ => {}
            }
        }
        for line in &self.history.lines {
            let Saw::Start { n, id, .. } = &line.saw else { continue };
            match asked.get(n) {
                None => self.say("I2", format!("{id} ran, which nobody asked for")),
                Some(None) if refused.contains(n) => {
                    self.say("I2", format!("{id} ran, which had been refused"));
                }
                Some(Some(known)) if known != id => {
                    self.say("I2", format!("task {n} was accepted as {known} and ran as {id}"));
                }
                Some(_) => {}
            }
        }
    }

    /// Whether leases of that process may have lapsed between the two moments.
    fn excused(&self, pid: u32, from: u64, to: u64) -> bool {
        self.excuses.iter().any(|(victim, began, over)| {
            victim.is_none_or(|victim| victim == pid) && *began <= to && *over >= from
        })
    }

    fn executions(
        &mut self,
        asked: u64,
        id: &str,
        max_attempts: u32,
        delay_ms: u64,
        told: &Told<'_>,
    ) {
        let earliest = asked + delay_ms * 1000;
        let visibility = u64::try_from(self.history.visibility.as_micros()).unwrap_or(u64::MAX);
        for (at, run) in told.runs.iter().enumerate() {
            // The store counts in whole milliseconds.
            if run.at + 1000 < earliest {
                let early = earliest - run.at;
                self.say("I5", format!("{id} ran {early} us before it was due"));
            }
            if told.cancelled_at.is_some_and(|cancelled| run.at > cancelled) {
                self.say("I5", format!("{id} ran after its cancel was acknowledged"));
            }
            if run.attempt > max_attempts {
                let text = format!("{id} ran attempt {} of {max_attempts}", run.attempt);
                self.say("I4", text);
            }
            for later in &told.runs[at + 1..] {
                // An execution that begins late, in a process that was stopped after its fetch, says nothing
                // of attempts.
                let late = self.excused(later.pid, run.at.saturating_sub(visibility), later.at);
                if later.attempt < run.attempt && !late {
                    let text = format!("{id}: attempt {} after {}", later.attempt, run.attempt);
                    self.say("I4", text);
                }
                let handed_back =
                    matches!(run.end, Some((_, Saw::Dropped { .. } | Saw::Snooze { .. })));
                if later.attempt == run.attempt && !handed_back {
                    self.say("I3", format!("{id}: attempt {} ran twice", run.attempt));
                }
                let overlaps = run.end.is_none_or(|(end, _)| end > later.at);
                let since = later.at.saturating_sub(visibility + 1_000_000);
                if later.attempt > run.attempt
                    && overlaps
                    && !self.excused(run.pid, since, later.at)
                {
                    self.say(
                        "I3",
                        format!(
                            "{id}: attempt {} began while {} ran in a healthy process",
                            later.attempt, run.attempt
                        ),
                    );
                }
            }
        }
    }

    fn ending(&mut self, id: &str, end: &Final, max_attempts: u32, told: &Told<'_>) {
        let Some(status) = end.status else {
            return self.say("I2", format!("{id} was accepted, and the store knows nothing of it"));
        };
        if status.is_live() {
            self.say("I1", format!("{id} is {status} although nothing is left to be done"));
        }
        let of_attempt = |wanted: &dyn Fn(&Saw) -> bool| {
            told.runs.iter().any(|run| {
                run.attempt == end.attempt && run.end.is_some_and(|(_, saw)| wanted(saw))
            })
        };
        match status {
            Status::Succeeded => {
                let returned = |saw: &Saw| match saw {
                    Saw::End { result, .. } => Some(result) == end.result.as_ref(),
                    _ => false,
                };
                if !of_attempt(&returned) {
                    self.say(
                        "I7",
                        format!(
                            "{id} has the result {:?} of attempt {}, which returned none such",
                            end.result, end.attempt
                        ),
                    );
                }
            }
            Status::DeadLettered | Status::Failed => {
                let lost = end.class.as_deref() == Some("worker_lost");
                let failed = |saw: &Saw| match saw {
                    Saw::Fail { retryable, .. } => !retryable || end.attempt >= max_attempts,
                    _ => false,
                };
                if lost && end.attempt < max_attempts {
                    let text = format!("{id} was given up at attempt {}", end.attempt);
                    self.say("I4", format!("{text} of {max_attempts}"));
                }
                if !lost && !of_attempt(&failed) {
                    self.say("I1", format!("{id} is {status} ({:?}) and did not fail", end.class));
                }
            }
            Status::Cancelled if !told.cancel_asked => {
                self.say("I1", format!("{id} is cancelled and nobody asked for that"));
            }
            _ => {}
        }
        if told.cancelled_at.is_some() && status != Status::Cancelled {
            self.say("I1", format!("{id} is {status} after its cancel was acknowledged"));
        }
        if let (Some(started), Some(expires)) = end.started_and_expires_ms
            && started >= expires
        {
            self.say("I5", format!("{id} was started {} ms after it expired", started - expires));
        }
        let endings = told.events.iter().filter(|kind| ENDINGS.contains(kind)).count();
        if endings > 1 {
            self.say("10", format!("{id} ended {endings} times: {:?}", told.events));
        }
    }

    /// An attempt is used up by an execution, or by the death or trouble of a process, and by nothing else.
    fn lost_attempts(&mut self, asked: u64, id: &str, end: &Final, told: &Told<'_>) {
        // By the store's clock, which is this host's.
        let over = end.finished_ms.unwrap_or(u64::MAX / 1000) * 1000;
        let trouble = self.excuses.iter().any(|(_, from, to)| *from <= over && *to >= asked);
        let ran: BTreeSet<u32> = told.runs.iter().map(|run| run.attempt).collect();
        let started = !matches!(end.status, Some(Status::Cancelled | Status::Expired) | None);
        if !trouble && started {
            for attempt in (1..=end.attempt).filter(|attempt| !ran.contains(attempt)) {
                self.say("I4", format!("attempt {attempt} of {id} was used up and never ran"));
            }
        }
    }
}
