//! What is checked before a worker starts; everything that is wrong is reported together.

use std::collections::BTreeSet;

use crate::config::{Config, QUEUE_NAME, QueueChoice, queues};
use crate::task::{Definition, States};

/// The tasks that the worker runs; each name of `wanted` that is none is a problem.
pub(super) fn select(
    all: &[&'static Definition],
    wanted: Option<&[String]>,
    problems: &mut Vec<String>,
) -> Vec<&'static Definition> {
    let Some(wanted) = wanted else { return all.to_vec() };
    for name in wanted {
        if !all.iter().any(|task| task.name == name) {
            let known: BTreeSet<_> = all.iter().map(|task| task.name).collect();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            problems.push(format!("no task is called `{name}`: the program has {known}"));
        }
    }
    all.iter().copied().filter(|task| wanted.iter().any(|name| name == task.name)).collect()
}

pub(super) fn check_tasks(
    tasks: &[&'static Definition],
    config: &Config,
    states: &States,
    problems: &mut Vec<String>,
) {
    for task in tasks {
        let place = format!("task `{}` ({}:{})", task.name, task.file, task.line);
        for need in task.states {
            if !states.contains((need.type_id)()) {
                let name = (need.type_name)();
                problems.push(format!(
                    "{place} wants a state of type {name}: give it with Worker::builder().state(..)"
                ));
            }
        }
        if let Some(attempts) = task.options.max_attempts
            && attempts > config.max_attempts_cap
        {
            let cap = config.max_attempts_cap;
            problems.push(format!(
                "{place} asks for {attempts} attempts: the deployment allows {cap} (DTQ_MAX_ATTEMPTS)"
            ));
        }
        let policy = config.retry.overridden(&task.options.backoff);
        if let Err(error) = policy.validate() {
            problems.push(format!(
                "{place} has a backoff that does not fit the configuration: {error}"
            ));
        }
    }
}

pub(super) fn choose_queues(
    named: Option<&[String]>,
    config: &Config,
    tasks: &[&'static Definition],
    problems: &mut Vec<String>,
) -> Vec<QueueChoice> {
    let plain = |name: &str| QueueChoice { name: name.to_owned(), weight: None };
    if let Some(named) = named {
        if let Some(choices) = queues(&named.join(",")) {
            return choices;
        }
        let wrong: Vec<_> = named.iter().filter(|name| queues(name).is_none()).collect();
        for name in &wrong {
            problems.push(format!(
                "queue {name:?} is not allowed: it must be {QUEUE_NAME}, or *, with a weight (`name=3`) \
                 or without"
            ));
        }
        if wrong.is_empty() {
            problems.push(format!(
                "queues {named:?}: there must be at least one, each named once, all with weights or none"
            ));
        }
        return Vec::new();
    }
    if let Some(choices) = &config.queues {
        return choices.clone();
    }
    let mut own: BTreeSet<&str> = tasks.iter().map(|task| task.options.queue).collect();
    own.remove("default");
    std::iter::once("default").chain(own).map(plain).collect()
}
