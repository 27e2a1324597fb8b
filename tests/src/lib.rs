//! What the tests share: servers of their own, clients, waiting for signals instead of sleeping.

pub mod history;
mod proxy;
mod server;

pub use proxy::{Passing, Proxy};
pub use server::{Raw, RedisServer, SqliteFile};

use std::time::{Duration, Instant};

/// Long enough for a busy machine; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `holds`; panics with `what` after [`PATIENCE`].
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < PATIENCE, "{what} did not come true");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A configuration for tests: short windows, nothing from the environment.
pub fn config(url: &str) -> dtq::ConfigBuilder {
    dtq::Config::builder()
        .url(url)
        .visibility_timeout(Duration::from_millis(1500))
        .retry_base_delay(Duration::from_millis(5))
        .retry_max_delay(Duration::from_millis(50))
        .drain_timeout(Duration::from_secs(5))
        .concurrency(8)
}

/// A client of that configuration.
///
/// # Panics
///
/// If it is not valid.
pub fn client(config: dtq::ConfigBuilder) -> dtq::Client {
    let config = config.build().expect("the test's configuration is valid");
    dtq::Client::builder().config(config).build().expect("a client")
}
