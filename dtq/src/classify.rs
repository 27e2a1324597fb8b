//! Which errors retry: a closed list (SPEC 3). What is not recognised is a bug in the task function
//! and fails permanently.

use std::error::Error as StdError;
use std::time::Duration;

use crate::store::{self, ErrorInfo};
use crate::task_error::{Carried, Marked, Say, TaskError};

/// Longest message that is kept (SPEC 3.6).
const MESSAGE_CHARS: usize = 500;
/// An error whose chain is longer is a loop.
const LONGEST_CHAIN: usize = 64;

/// What an enum with `#[derive(dtq::Retryable)]` says of one of its values.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Derived {
    Retry { after_ms: Option<u64> },
    Permanent,
    Inherit,
}

/// Asks an error whether it is of a type with `#[derive(dtq::Retryable)]`.
#[doc(hidden)]
pub type DerivedProbe = fn(&(dyn StdError + 'static)) -> Option<Derived>;

/// Every derived type's probe, gathered at link time.
#[doc(hidden)]
#[linkme::distributed_slice]
pub static DERIVED: [DerivedProbe];

/// Types that `retry_on` names.
pub(crate) type RetryOn = [fn(&(dyn StdError + 'static)) -> bool];

/// What an error means for its task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Snooze(Duration),
    Fail { info: ErrorInfo, retry_after: Option<Duration> },
}

/// Decides what `error` means: explicit words first, the outermost of them; otherwise anything in
/// the chain that is on the list.
pub(crate) fn classify(error: &TaskError, retry_on: &RetryOn) -> Verdict {
    let say = error.own_say().or_else(|| said_in_chain(error.as_dyn()));
    let (retryable, retry_after) = match say {
        Some(Say::Snooze(delay)) => return Verdict::Snooze(delay),
        Some(Say::Retry { after }) => (true, after),
        Some(Say::Permanent) => (false, None),
        None => (chain(error.as_dyn()).any(|link| is_listed(link, retry_on)), None),
    };
    Verdict::Fail { info: info(&class_of(error), &error.to_string(), retryable), retry_after }
}

/// The links of an error's chain. What stands inside an `io::Error` is a link too: its `source`
/// skips it.
fn chain<'a>(
    top: Option<&'a (dyn StdError + 'static)>,
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(
        top,
        |link: &&'a (dyn StdError + 'static)| -> Option<&'a (dyn StdError + 'static)> {
            let link = *link;
            match link.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
                Some(inside) => Some(inside),
                None => link.source(),
            }
        },
    )
    .take(LONGEST_CHAIN)
}

fn said_in_chain(top: Option<&(dyn StdError + 'static)>) -> Option<Say> {
    chain(top).find_map(|link| {
        if let Some(marked) = link.downcast_ref::<Marked>() {
            return marked.task_error().own_say();
        }
        if let Some(carried) = link.downcast_ref::<Carried>() {
            return carried.task_error().own_say();
        }
        match DERIVED.iter().find_map(|probe| probe(link))? {
            Derived::Retry { after_ms } => {
                Some(Say::Retry { after: after_ms.map(Duration::from_millis) })
            }
            Derived::Permanent => Some(Say::Permanent),
            Derived::Inherit => None,
        }
    })
}

/// SPEC 3.1 and 3.4.
fn is_listed(link: &(dyn StdError + 'static), retry_on: &RetryOn) -> bool {
    link.is::<tokio::time::error::Elapsed>()
        || link
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::TimedOut)
        || store::is_connection_error(link)
        || retry_on.iter().any(|is_one| is_one(link))
}

fn class_of(error: &TaskError) -> String {
    // A mark is not what went wrong: the class is that of the error below it.
    let marked = error.as_dyn().and_then(|top| top.downcast_ref::<Marked>());
    match marked {
        Some(marked) => class_of(marked.task_error()),
        None => error.class().map_or_else(|| "Error".to_owned(), without_paths),
    }
}

/// `a::b::Failed<c::D>` as `Failed<D>`.
fn without_paths(type_name: &str) -> String {
    let mut short = String::new();
    let mut word = String::new();
    for c in type_name.chars() {
        if c == ':' {
            word.clear();
        } else if c.is_alphanumeric() || c == '_' {
            word.push(c);
        } else {
            short.push_str(&std::mem::take(&mut word));
            short.push(c);
        }
    }
    short.push_str(&word);
    short
}

/// Cuts to 500 characters, replaces control characters; an empty text becomes the class (SPEC 3.6).
fn tidy(message: &str, class: &str) -> String {
    let text: String = message
        .chars()
        .take(MESSAGE_CHARS)
        .map(|c| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c })
        .collect();
    if text.trim().is_empty() { class.to_owned() } else { text }
}

/// An error as records, logs and events tell it.
pub(crate) fn info(class: &str, message: &str, retryable: bool) -> ErrorInfo {
    let class = tidy(class, "Error");
    ErrorInfo { message: tidy(message, &class), class, retryable }
}

/// A task function that took longer than its timeout: retryable (SPEC 3.1).
pub(crate) fn timeout(limit: Duration) -> Verdict {
    let message = format!("the attempt took longer than its timeout of {limit:?}");
    Verdict::Fail { info: info("timeout", &message, true), retry_after: None }
}

/// A panic: permanent, with its message and where it was (SPEC 7.7).
pub(crate) fn panic(message: &str) -> Verdict {
    Verdict::Fail { info: info("panic", message, false), retry_after: None }
}

/// A type that no task function of this worker has: never executed (SPEC 3.2).
pub(crate) fn unknown_type(name: &str) -> ErrorInfo {
    info("UnknownTaskType", &format!("unknown_task_type:{name}"), false)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;
    use crate::task_error::{BoxError, Mark};

    #[derive(Debug, thiserror::Error)]
    #[error("wraps")]
    struct Wraps<T: StdError + 'static>(#[source] T);

    #[derive(Debug, thiserror::Error)]
    #[error(transparent)]
    struct Transparent(#[from] Marked);

    #[derive(Debug, thiserror::Error)]
    #[error("plain")]
    struct Plain;

    fn retryable(error: impl Into<TaskError>) -> bool {
        retryable_on(&error.into(), &[])
    }

    fn retryable_on(error: &TaskError, retry_on: &RetryOn) -> bool {
        match classify(error, retry_on) {
            Verdict::Fail { info, .. } => info.retryable,
            Verdict::Snooze(_) => panic!("not put off"),
        }
    }

    fn timed_out() -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, "slow")
    }

    #[test]
    fn spec_3_1_timeouts_are_retryable_wherever_they_stand_in_the_chain() {
        assert!(retryable(timed_out()));
        assert!(retryable(Wraps(Wraps(timed_out()))));
        assert!(retryable(io::Error::other(Wraps(timed_out()))));
    }

    #[tokio::test]
    async fn spec_3_1_elapsed_is_retryable() {
        let pending = std::future::pending::<()>();
        let elapsed = tokio::time::timeout(Duration::from_millis(1), pending).await.unwrap_err();
        assert!(retryable(elapsed));
    }

    #[cfg(feature = "redis")]
    #[test]
    fn spec_3_1_a_lost_connection_to_the_store_is_retryable() {
        let lost = redis::RedisError::from(io::Error::from(io::ErrorKind::ConnectionReset));
        assert!(retryable(Wraps(lost)));
        let wrong = redis::RedisError::from((redis::ErrorKind::Parse, "garbage"));
        assert!(!retryable(wrong));
    }

    #[test]
    fn spec_3_2_and_3_3_what_is_not_recognised_is_permanent() {
        assert!(!retryable(Plain));
        assert!(!retryable(io::Error::from(io::ErrorKind::ConnectionRefused)));
        assert!(!retryable(io::Error::from(io::ErrorKind::ConnectionReset)));
        assert!(!retryable("x".parse::<u8>().unwrap_err()));
    }

    #[test]
    fn spec_3_3_an_explicit_mark_wins_the_outermost_first() {
        assert!(!retryable_on(&TaskError::permanent(timed_out()), &[]));
        assert!(retryable_on(&TaskError::retryable(Plain), &[]));
        let inner: Result<(), Marked> = Err::<(), _>(Plain).permanent();
        let outer = Err::<(), _>(Wraps(inner.unwrap_err())).retryable().unwrap_err();
        assert!(retryable(outer));
        let inner = Err::<(), _>(Plain).retryable().unwrap_err();
        assert!(!retryable_on(&TaskError::permanent(inner), &[]));
    }

    #[test]
    fn spec_3_3_marks_survive_wrappers() {
        let marked = || Err::<(), _>(Plain).retryable().unwrap_err();
        assert!(retryable(Transparent(marked())));
        assert!(retryable(io::Error::other(marked())));
        assert!(retryable(Arc::new(marked())));
        assert!(retryable(Wraps(Arc::new(marked()))));
        assert!(retryable(Wraps(io::Error::other(Transparent(marked())))));
        let boxed: BoxError = TaskError::retryable(Plain).into();
        assert!(retryable_on(&crate::task_error::IntoTaskError::into_task_error(boxed), &[]));
    }

    #[cfg(feature = "anyhow")]
    #[test]
    fn spec_3_3_the_chain_inside_anyhow_is_looked_through() {
        use anyhow::Context as _;
        let through = |error: anyhow::Error| {
            retryable_on(&crate::task_error::IntoTaskError::into_task_error(error), &[])
        };
        assert!(through(anyhow::Error::new(timed_out()).context("while waiting")));
        assert!(!through(anyhow::anyhow!("plain")));
        let marked = Err::<(), _>(Plain).retryable().context("outer").unwrap_err();
        assert!(through(marked));
        let there_and_back: anyhow::Error = TaskError::retryable(anyhow::anyhow!("x")).into();
        assert!(through(there_and_back));
        let after: Result<(), Marked> =
            Err::<(), _>(anyhow::anyhow!("x")).retry_after(Duration::from_secs(3));
        let verdict = classify(&after.unwrap_err().into(), &[]);
        assert!(matches!(verdict, Verdict::Fail { retry_after: Some(d), .. } if d.as_secs() == 3));
    }

    #[test]
    fn spec_3_4_retry_on_widens_the_list_by_type() {
        let probe: fn(&(dyn StdError + 'static)) -> bool = |error| error.is::<Plain>();
        assert!(retryable_on(&Wraps(Plain).into(), &[probe]));
        assert!(!retryable_on(&TaskError::permanent(Plain), &[probe]));
    }

    #[test]
    fn spec_3_6_messages_are_cut_tidied_and_never_empty() {
        let long = "ä".repeat(600);
        assert_eq!(info("A", &long, false).message.chars().count(), 500);
        assert_eq!(info("A", "a\u{1b}[31mb\nc\0", false).message, "a [31mb c ");
        assert_eq!(info("A", " \n", false).message, "A");
        assert_eq!(info("", "", false).message, "Error");
    }

    #[test]
    fn spec_3_6_the_class_is_the_types_name_without_its_path() {
        let class = |error: TaskError| match classify(&error, &[]) {
            Verdict::Fail { info, .. } => info.class,
            Verdict::Snooze(_) => unreachable!(),
        };
        assert_eq!(class(Plain.into()), "Plain");
        assert_eq!(class(Wraps(io::Error::other("x")).into()), "Wraps<Error>");
        assert_eq!(class(Err::<(), _>(Plain).retryable().unwrap_err().into()), "Plain");
        assert_eq!(class(TaskError::retryable(Plain)), "Plain");
        assert_eq!(class(crate::retryable!("x {}", 1)), "Error");
        assert_eq!(
            without_paths("core::result::Result<(), alloc::string::String>"),
            "Result<(), String>"
        );
    }

    #[test]
    fn spec_3_8_a_snooze_is_no_failure() {
        let day = Duration::from_secs(86400);
        assert_eq!(classify(&TaskError::snooze(day), &[]), Verdict::Snooze(day));
        let boxed: BoxError = TaskError::snooze(day).into();
        let again = crate::task_error::IntoTaskError::into_task_error(boxed);
        assert_eq!(classify(&again, &[]), Verdict::Snooze(day), "also through a box");
    }
}
