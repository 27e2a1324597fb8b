//! The guides: how it works, and why.

/// The life of a task: statuses, and the way from call to result.
pub mod lifecycle {
    #![doc = include_str!("guide/lifecycle.md")]
}

/// Retries: which errors retry, how long they wait, how attempts are counted.
pub mod retries {
    #![doc = include_str!("guide/retries.md")]
}

/// Delivery: what happens when something is killed.
pub mod delivery {
    #![doc = include_str!("guide/delivery.md")]
}

/// Configuration: every variable.
pub mod configuration {
    #![doc = include_str!("guide/configuration.md")]
}

/// What dtq keeps in Redis.
pub mod redis_layout {
    #![doc = include_str!("guide/redis-layout.md")]
}

/// The embedded store: tasks in an SQLite file.
pub mod embedded {
    #![doc = include_str!("guide/embedded.md")]
}

/// What dtq costs, where the time goes, and what to turn.
pub mod performance {
    #![doc = include_str!("guide/performance.md")]
}

/// How tasks are found, and what to do when one is not.
pub mod registration {
    #![doc = include_str!("guide/registration.md")]
}
