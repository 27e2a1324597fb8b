//! What task functions can do to whoever runs them, on a redis-server.

use dtq_tests::RedisServer as Server;

#[path = "cases/executor.rs"]
mod cases;
