//! A TCP proxy of the tests' own between dtq and a server: it loses replies (what the server did is done, and
//! its client does not learn of it), resets, holds back (half-open), slows down and cuts into pieces.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How bytes are passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Passing {
    /// As they come.
    AtOnce = 0,
    /// Not at all, and the connection stays open.
    Held = 1,
    /// After 50 ms.
    Late = 2,
    /// One by one.
    ByteByByte = 3,
    /// New connections are refused.
    Refused = 4,
}

/// Passes connections on to a server until it is told otherwise.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The next reply to a command that contains this is lost, with its connection.
    cut_after: std::sync::Mutex<Option<String>>,
    cuts: AtomicUsize,
    passing: AtomicU8,
    /// Counts up when every connection is to be reset.
    resets: watch::Sender<u64>,
}

impl Shared {
    fn is(&self, passing: Passing) -> bool {
        self.passing.load(Ordering::SeqCst) == passing as u8
    }
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
        let shared = Arc::new(Shared {
            cut_after: std::sync::Mutex::default(),
            cuts: AtomicUsize::new(0),
            passing: AtomicU8::new(Passing::AtOnce as u8),
            resets: watch::Sender::new(0),
        });
        let for_connections = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&for_connections);
                if shared.is(Passing::Refused) {
                    continue;
                }
                let mut reset = shared.resets.subscribe();
                tokio::spawn(async move {
                    if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                        tokio::select! {
                            () = pass(client, server, shared) => {}
                            _ = reset.changed() => {}
                        }
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

    /// Loses the reply to the next request whose bytes contain `text`, and cuts its connection; an empty
    /// text is contained in every request.
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

    /// From now on bytes are passed on like that.
    pub fn pass_on(&self, passing: Passing) {
        self.shared.passing.store(passing as u8, Ordering::SeqCst);
    }

    /// Cuts every connection.
    pub fn reset(&self) {
        self.shared.resets.send_modify(|n| *n += 1);
    }
}

async fn send(to: &mut (impl AsyncWriteExt + Unpin), bytes: &[u8], shared: &Shared) -> bool {
    while shared.is(Passing::Held) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    if shared.is(Passing::Late) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    if shared.is(Passing::ByteByByte) {
        for byte in bytes {
            if to.write_all(&[*byte]).await.is_err() || to.flush().await.is_err() {
                return false;
            }
            tokio::task::yield_now().await;
        }
        return true;
    }
    to.write_all(bytes).await.is_ok()
}

async fn pass(client: TcpStream, server: TcpStream, shared: Arc<Shared>) {
    // Bytes that are passed on one by one arrive one by one.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
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
                    text.is_empty()
                        || buffer[..n].windows(text.len()).any(|window| window == text.as_bytes())
                });
                if hit {
                    *wanted = None;
                    watch.store(true, Ordering::SeqCst);
                }
            }
            if !send(&mut to_server, &buffer[..n], &mark).await {
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
            if !send(&mut to_client, &buffer[..n], &shared).await {
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
