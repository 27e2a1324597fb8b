//! The one place that builds key names (SPEC 5): for Rust, and, printed as Lua, for the scripts.

use std::fmt::Write as _;

use super::scripts::lua_string;
use crate::id::TaskId;

/// Key names of one deployment, all under its prefix.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    prefix: String,
}

/// (name in Lua, what follows the prefix). Those that end in a colon are prefixes themselves.
const NAMES: &[(&str, &str)] = &[
    ("stream", ":stream:"),
    ("schedule", ":retry:schedule"),
    ("claimed", ":retry:claimed"),
    ("task", ":task:"),
    ("leases", ":leases"),
    ("result", ":result:"),
    ("idempotency", ":idempotency:"),
    ("dead_letters", ":stream:dead-letter"),
    ("audit", ":stream:audit"),
    ("cancelled", ":cancelled"),
    ("recent", ":tasks:recent"),
    ("workers", ":workers"),
    ("worker", ":worker:"),
    ("queues", ":queues"),
    ("ready", ":ready"),
    ("queue", ":queue:"),
    ("lock", ":lock:scheduler"),
    ("meta", ":meta"),
    ("fetch", ":fetch:"),
    ("events", ":events"),
    ("done", ":done:"),
    ("notify", ":notify"),
    ("moving", ":moving"),
    ("moved", ":moved"),
];

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// A key, or a key's prefix, by its name in [`NAMES`].
    pub(crate) fn of(&self, name: &str) -> String {
        let suffix = NAMES.iter().find(|(known, _)| *known == name).map(|(_, suffix)| *suffix);
        debug_assert!(suffix.is_some(), "no key is named {name}");
        format!("{}{}", self.prefix, suffix.unwrap_or_default())
    }

    pub(crate) fn task(&self, id: impl std::fmt::Display) -> String {
        format!("{}:task:{id}", self.prefix)
    }

    pub(crate) fn result(&self, id: TaskId) -> String {
        format!("{}:result:{id}", self.prefix)
    }

    pub(crate) fn done(&self, id: TaskId) -> String {
        format!("{}:done:{id}", self.prefix)
    }

    pub(crate) fn stream(&self, queue: &str, priority: u8) -> String {
        format!("{}:stream:{queue}:p{priority}", self.prefix)
    }

    pub(crate) fn wake(&self, queue: &str) -> String {
        format!("{}:queue:{queue}:wake", self.prefix)
    }

    pub(crate) fn stats(&self, queue: &str) -> String {
        format!("{}:queue:{queue}:stats", self.prefix)
    }

    pub(crate) fn paused(&self, queue: &str) -> String {
        format!("{}:queue:{queue}:paused", self.prefix)
    }

    pub(crate) fn worker(&self, id: &str) -> String {
        format!("{}:worker:{id}", self.prefix)
    }

    pub(crate) fn notify(&self, incarnation: &str) -> String {
        format!("{}:notify:{incarnation}", self.prefix)
    }

    /// The table `K` of the scripts.
    pub(crate) fn to_lua(&self) -> String {
        let mut lua = "local K = {".to_owned();
        for (name, suffix) in NAMES {
            let key = lua_string(&format!("{}{suffix}", self.prefix));
            let _ = write!(lua, "{name}={key},");
        }
        lua.push_str("}\n");
        lua
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_5_names_are_those_of_the_table() {
        let keys = Keys::new("dtq");
        let names: Vec<_> =
            ["schedule", "claimed", "leases", "lock"].map(|name| keys.of(name)).into();
        assert_eq!(
            names,
            ["dtq:retry:schedule", "dtq:retry:claimed", "dtq:leases", "dtq:lock:scheduler"]
        );
        assert_eq!(keys.stream("mail", 9), "dtq:stream:mail:p9");
        assert!(keys.to_lua().contains("dead_letters='dtq:stream:dead-letter'"));
    }

    #[test]
    fn c29_a_prefix_is_only_ever_a_prefix() {
        let lua = Keys::new("a'b\\").to_lua();
        assert!(lua.contains("task='a\\'b\\\\:task:'"), "{lua}");
    }
}
