//! Bugs to be planted, so that the fault tests can show that they would find them: never part of a build
//! that does not ask for the feature `__planted_bugs`, and asleep unless the environment names one.
//!
//! Each is a mistake that is easily made in the protocol. A script's is a replacement in its text, which
//! must fit: a bug that cannot be planted any more fails the start, rather than passing unnoticed.

use std::sync::OnceLock;

/// The variable that names the bug.
const VARIABLE: &str = "PLANTED_BUG";

/// Of a bug: its name, the scripts that it is in, and what stands there instead of what.
#[cfg(feature = "redis")]
const IN_SCRIPTS: &[(&str, &[&str], &str, &str)] = &[
    ("finish without the fence", &["finish"], "if not mine then return -2 end", ""),
    (
        "finish without the fence",
        &["finish"],
        "local may_be_plain = keep and not is_listened_to()",
        "local may_be_plain = false",
    ),
    (
        "a release that does not look whose the lease is",
        &["finish"],
        "if not mine then return -2 end",
        "if not mine and outcome ~= 'released' then return -2 end",
    ),
    (
        "no lease number: a redelivery keeps the old one",
        &["reap"],
        "r.l = (r.l or 0) + 1",
        "r.l = 1",
    ),
    ("no lease number: a redelivery keeps the old one", &["fetch"], "r.l = r.l + 1", "r.l = 1"),
    (
        "an acknowledgement that is left for later, and never comes",
        &["finish", "reap", "fetch", "requeue", "cancel"],
        "for stream, entries in pairs(acks) do remove(stream, entries) end",
        "",
    ),
    (
        "an entry that is not compared with the record's",
        &["fetch"],
        "if r.e and r.e ~= entry then",
        "r.e = entry\n  if false then",
    ),
    (
        "a group's second delivery that is run",
        &["fetch"],
        "if r.s == RUNNING then return end",
        "if r.s == RUNNING then r.s = QUEUED end",
    ),
    (
        "a repeated fetch that leases anew",
        &["fetch"],
        "if before and string.sub(before, 1, #nonce + 1) == nonce .. '\\n' then",
        "if false then",
    ),
    (
        "a repeated enqueue that adds a second entry",
        &["enqueue"],
        "if repeated and call('EXISTS', K.task .. t.id) == 1 then",
        "if false then",
    ),
    (
        "an idempotency key that is looked at and not taken",
        &["enqueue"],
        "call('SET', idempotency_key(t.q, t.i), idempotency_value(t.id, 'processing', t.g))",
        "",
    ),
    (
        "a retry whose schedule is written later, and never is",
        &["finish"],
        "if not move(r, RETRYING, 'E', error, 'D', delay, 'd', int(due)) then return false end\n    \
         schedule(r.id, r.q, due)",
        "if not move(r, RETRYING, 'E', error, 'D', delay, 'd', int(due)) then return false end",
    ),
    (
        "a claim that is taken from the schedule and noted nowhere",
        &["claim"],
        "if #claims > 0 then call('ZADD', K.claimed, unpack(claims)) end",
        "",
    ),
    (
        "a scheduler that takes what is not due yet",
        &["claim"],
        "local due = call('ZRANGEBYSCORE', K.schedule, '-inf', now_text, 'LIMIT', 0, limit)",
        "local due = call('ZRANGEBYSCORE', K.schedule, '-inf', int(now + 300), 'LIMIT', 0, limit)",
    ),
    (
        "a reaper that does not wait for the deadline",
        &["reap"],
        "local lapsed = call('ZRANGEBYSCORE', K.leases, '-inf', now_text, 'LIMIT', 0, limit)",
        "local lapsed = call('ZRANGEBYSCORE', K.leases, '-inf', int(now + 2500), 'LIMIT', 0, limit)",
    ),
    ("a redelivery of the same attempt", &["reap"], "r.a = r.a + 1", ""),
    (
        "a redelivery beyond the last attempt",
        &["reap"],
        "elseif r.a >= r.m then",
        "elseif false then",
    ),
    ("a reaper that ends what it should redeliver", &["reap"], "elseif r.a >= r.m then", "else"),
    (
        "a cancel that leaves the task in its queue",
        &["cancel"],
        "finish(r, CANCELLED)",
        "emit('TASK_CANCELLED', r)",
    ),
    ("a fetch of what has expired", &["fetch"], "if r.x and now >= r.x then", "if false then"),
    ("a renewal that does not extend", &["renew"], "push(leases_new, deadline, id)", ""),
    (
        "a result that is kept under another task's name",
        &["finish"],
        "call('SET', K.result .. r.id, value, 'PX', int(keep))",
        "call('SET', K.result .. (answers.last or r.id), value, 'PX', int(keep)) answers.last = r.id",
    ),
];

/// Those in the worker, each asked for where it is.
pub(crate) const NO_RENEWAL_WHILE_DRAINING: &str = "leases that are not renewed while draining";

fn planted() -> Option<&'static str> {
    static PLANTED: OnceLock<Option<String>> = OnceLock::new();
    PLANTED.get_or_init(|| std::env::var(VARIABLE).ok()).as_deref()
}

/// Whether that bug is planted.
pub(crate) fn is(bug: &str) -> bool {
    planted() == Some(bug)
}

/// The script's text with the bug that is planted.
///
/// # Panics
///
/// If it is in this script and does not fit its text.
#[cfg(feature = "redis")]
pub(crate) fn plant(script: &str, text: String) -> String {
    IN_SCRIPTS.iter().filter(|(bug, scripts, ..)| is(bug) && scripts.contains(&script)).fold(
        text,
        |text, (bug, _, from, to)| {
            assert_eq!(text.matches(from).count(), 1, "`{bug}` does not fit {script}: {from}");
            text.replace(from, to)
        },
    )
}

/// The names of every bug, for who plants them one by one.
pub fn bugs() -> Vec<&'static str> {
    let mut bugs = Vec::new();
    #[cfg(feature = "redis")]
    bugs.extend(IN_SCRIPTS.iter().map(|(bug, ..)| *bug));
    bugs.push(NO_RENEWAL_WHILE_DRAINING);
    bugs.dedup();
    bugs
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use super::*;

    #[test]
    fn each_bug_fits_the_scripts_that_it_is_in() {
        let scripts = crate::store::redis::script_texts();
        for (bug, names, from, _) in IN_SCRIPTS {
            for name in *names {
                let (_, text) = scripts.iter().find(|(known, _)| known == name).expect(name);
                assert_eq!(text.matches(from).count(), 1, "`{bug}` does not fit {name}");
            }
        }
    }
}
