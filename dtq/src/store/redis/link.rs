//! Connections to the server, and the one place where a call meets what can go wrong with it:
//! scripts the server has forgotten, replies that do not come, a server that loads or follows.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, Value};
use tokio::sync::Mutex;

use super::scripts::{Args, Script};
use crate::store::{StoreError, StoreResult};

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a reply may take. A server that is stopped or unplugged answers nothing at all: the
/// call is repeated on a new connection, which every operation allows. Long enough for the
/// slowest script on a busy machine; the client library's own half second is not.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// What is asked of a new connection before anything else runs on it.
pub(super) type Greeting =
    fn(MultiplexedConnection, String) -> futures_util::future::BoxFuture<'static, StoreResult<()>>;

/// The server, and the connection that all calls which do not block share.
pub(super) struct Link {
    client: Client,
    /// A call that fails for the connection takes it out of here; the next one makes a new one.
    shared: Mutex<Option<(u64, MultiplexedConnection)>>,
    /// Connections for blocking reads that are not in use: each read has one of its own, so that two
    /// workers of one process do not wait for each other.
    blocking: Mutex<Vec<MultiplexedConnection>>,
    greeting: Greeting,
    /// The key that tells layout and shards.
    meta_key: String,
    /// `KEYS[1]` of every script: on a cluster it names the shard's slot.
    anchor: String,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the client: its address holds the password.
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl Link {
    pub(super) fn new(client: Client, greeting: Greeting, meta_key: String) -> Arc<Self> {
        Arc::new(Self {
            client,
            shared: Mutex::new(None),
            blocking: Mutex::new(Vec::new()),
            greeting,
            anchor: meta_key.clone(),
            meta_key,
        })
    }

    async fn connect(&self, response: Option<Duration>) -> StoreResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(response);
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        // Once more around the whole: a server that accepts and then says nothing also hangs the
        // handshake.
        let connection = tokio::time::timeout(2 * CONNECT_TIMEOUT, connecting)
            .await
            .map_err(|_| StoreError::Unavailable("connecting took too long".to_owned()))?
            .map_err(to_store_error)?;
        (self.greeting)(connection.clone(), self.meta_key.clone()).await?;
        Ok(connection)
    }

    async fn shared(&self) -> StoreResult<(u64, MultiplexedConnection)> {
        let mut shared = self.shared.lock().await;
        if let Some((generation, connection)) = &*shared {
            return Ok((*generation, connection.clone()));
        }
        let connection = self.connect(Some(RESPONSE_TIMEOUT)).await?;
        let generation = fastrand::u64(..);
        *shared = Some((generation, connection.clone()));
        Ok((generation, connection))
    }

    /// Runs one exchange on the shared connection; a failure of the connection retires it.
    async fn exchange<T>(
        &self,
        ask: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, RedisError>,
    ) -> StoreResult<T> {
        let (generation, mut connection) = self.shared().await?;
        match ask(&mut connection).await {
            Ok(answer) => Ok(answer),
            Err(error) => {
                if spoils_connection(&error) {
                    let mut shared = self.shared.lock().await;
                    if shared.as_ref().is_some_and(|(current, _)| *current == generation) {
                        *shared = None;
                    }
                }
                Err(to_store_error(error))
            }
        }
    }

    /// A single command.
    pub(super) async fn command(&self, command: &Cmd) -> StoreResult<Value> {
        self.exchange(async |connection| {
            connection.send_packed_command(command).await.and_then(Value::extract_error)
        })
        .await
    }

    /// Commands in one round trip; the first that fails fails all.
    pub(super) async fn pipeline(&self, pipeline: &redis::Pipeline) -> StoreResult<Vec<Value>> {
        self.exchange(async |connection| pipeline.query_async(connection).await).await
    }

    /// A script by its digest; one that the server does not have is sent whole.
    pub(super) async fn script(&self, script: &Script, args: Args) -> StoreResult<Value> {
        let result = self
            .exchange(async |connection| {
                let command = args.call("EVALSHA", &script.sha, &self.anchor);
                match connection.send_packed_command(&command).await.and_then(Value::extract_error)
                {
                    Err(error) if error.code() == Some("NOSCRIPT") => {
                        let command = args.call("EVAL", &script.text, &self.anchor);
                        connection
                            .send_packed_command(&command)
                            .await
                            .and_then(Value::extract_error)
                    }
                    answer => answer,
                }
            })
            .await;
        result.map_err(|error| match error {
            StoreError::Failed(text) => {
                StoreError::Failed(format!("script {}: {text}", script.name))
            }
            other => other,
        })
    }

    /// A command that blocks on the server for up to `timeout`. A caller that gives up closes the
    /// connection: the server then takes nothing out of a list on its behalf.
    pub(super) async fn block(&self, command: &Cmd, timeout: Duration) -> StoreResult<Value> {
        let idle = self.blocking.lock().await.pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.connect(None).await?,
        };
        let answer = tokio::time::timeout(
            timeout + RESPONSE_TIMEOUT,
            connection.send_packed_command(command),
        )
        .await
        .map_err(|_| StoreError::Unavailable("a blocking read got no answer".to_owned()))?
        .and_then(Value::extract_error);
        match answer {
            Ok(answer) => {
                self.blocking.lock().await.push(connection);
                Ok(answer)
            }
            Err(error) => Err(to_store_error(error)),
        }
    }

    /// A connection that subscribes.
    pub(super) async fn pubsub(&self) -> StoreResult<PubSub> {
        tokio::time::timeout(CONNECT_TIMEOUT, self.client.get_async_pubsub())
            .await
            .map_err(|_| StoreError::Unavailable("connecting took too long".to_owned()))?
            .map_err(to_store_error)
    }
}

/// Whether the connection is of no more use: cut, silent, or to a server that follows another.
fn spoils_connection(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_timeout()
        || error.is_connection_dropped()
        || error.is_connection_refusal()
        || error.is_unrecoverable_error()
        || matches!(error.code(), Some("READONLY" | "MASTERDOWN"))
        || error.to_string().contains("READONLY")
}

/// Whether an error of a task function is a lost connection to the store (SPEC 3.1).
pub(crate) fn is_connection_error(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<RedisError>().is_some_and(|error| {
        error.is_io_error()
            || error.is_timeout()
            || error.is_connection_dropped()
            || error.is_connection_refusal()
    })
}

/// Codes of a server that is there but cannot serve just now.
const AWAY: &[&str] = &["LOADING", "READONLY", "MASTERDOWN", "BUSY", "TRYAGAIN", "CLUSTERDOWN"];
/// Codes of a server that has no room for writes.
const NO_ROOM: &[&str] = &["OOM", "MISCONF", "NOREPLICAS"];

pub(super) fn to_store_error(error: RedisError) -> StoreError {
    let text = error.to_string();
    // A refusal inside a script carries the code in its text.
    let says = |codes: &[&str]| {
        error.code().is_some_and(|code| codes.contains(&code))
            || codes
                .iter()
                .any(|code| text.contains(&format!("-{code} ")) || text.starts_with(code))
    };
    if says(NO_ROOM) || text.contains("OOM command not allowed") {
        StoreError::Refused(text)
    } else if says(AWAY)
        || text.contains("READONLY")
        || error.is_io_error()
        || error.is_timeout()
        || error.is_connection_dropped()
        || error.is_connection_refusal()
    {
        StoreError::Unavailable(text)
    } else {
        StoreError::Failed(text)
    }
}
