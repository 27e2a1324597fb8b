//! A TCP proxy of the tests' own that loses replies: what the server did is done, and its client
//! does not learn of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Passes connections on to a server until it is told to cut.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The next reply to a command that contains this is lost, with its connection.
    cut_after: std::sync::Mutex<Option<String>>,
    cuts: AtomicUsize,
    refuse: AtomicBool,
}

impl Proxy {
    /// A proxy before the server at `port`.
    ///
    /// # Panics
    ///
    /// If there is no free port.
    pub async fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let own = listener.local_addr().expect("its number").port();
        let shared = Arc::new(Shared::default());
        let for_connections = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&for_connections);
                if shared.refuse.load(Ordering::SeqCst) {
                    continue;
                }
                tokio::spawn(async move {
                    if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                        pass(client, server, shared).await;
                    }
                });
            }
        });
        Self { port: own, shared }
    }

    /// `redis://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Loses the reply to the next request whose bytes contain `text`, and cuts its connection.
    ///
    /// # Panics
    ///
    /// Never.
    pub fn lose_reply_to(&self, text: &str) {
        *self.shared.cut_after.lock().expect("no panic holds it") = Some(text.to_owned());
    }

    /// How many replies were lost.
    pub fn cuts(&self) -> usize {
        self.shared.cuts.load(Ordering::SeqCst)
    }
}

async fn pass(client: TcpStream, server: TcpStream, shared: Arc<Shared>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let doomed = Arc::new(AtomicBool::new(false));
    let (mark, watch) = (Arc::clone(&shared), Arc::clone(&doomed));
    let up = async move {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(n) = from_client.read(&mut buffer).await {
            if n == 0 {
                return;
            }
            {
                let mut wanted = mark.cut_after.lock().expect("no panic holds it");
                let hit = wanted.as_ref().is_some_and(|text| {
                    buffer[..n].windows(text.len()).any(|window| window == text.as_bytes())
                });
                if hit {
                    *wanted = None;
                    watch.store(true, Ordering::SeqCst);
                }
            }
            if to_server.write_all(&buffer[..n]).await.is_err() {
                return;
            }
        }
    };
    let down = async move {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(n) = from_server.read(&mut buffer).await {
            if n == 0 {
                return;
            }
            if doomed.load(Ordering::SeqCst) {
                shared.cuts.fetch_add(1, Ordering::SeqCst);
                return;
            }
            if to_client.write_all(&buffer[..n]).await.is_err() {
                return;
            }
        }
    };
    // Either end closes both.
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}
