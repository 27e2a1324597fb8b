//! Time of a test's own: one thread, on which all of a queue under test runs, with a clock that stands
//! still until it is told to move, and then jumps from one thing to the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use crate::io::{Io, Pending};

/// Something to be done while the clock may move.
type Job = Box<dyn FnOnce(Time) -> BoxFuture<'static, ()> + Send>;

/// The thread and its clock; it ends when this is dropped.
pub(super) struct Engine {
    handle: Handle,
    jobs: mpsc::UnboundedSender<Job>,
}

/// Says when nothing can go on before the clock moves: asked by setting `want`.
#[derive(Default)]
struct Parks {
    /// Parks of the thread until `idle` is told; 0: nobody asks.
    want: AtomicU8,
    idle: Notify,
}

impl Engine {
    /// `pending` is run whenever somebody waits for something and no job is under way.
    pub(super) fn start<F>(prepare: impl FnOnce(Io) -> F + Send + 'static) -> std::io::Result<Self>
    where
        F: Fn(Time) -> BoxFuture<'static, ()> + Send + 'static,
    {
        let parks = Arc::new(Parks::default());
        let asked = Arc::clone(&parks);
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(true).on_thread_park(move || {
            match asked.want.load(Ordering::Acquire) {
                0 => {}
                1 => {
                    asked.want.store(0, Ordering::Release);
                    asked.idle.notify_one();
                }
                more => asked.want.store(more - 1, Ordering::Release),
            }
        });
        let runtime = builder.build()?;
        let handle = runtime.handle().clone();
        let pending = Arc::new(Pending::default());
        let io = Io::of_test(handle.clone(), Arc::clone(&pending));
        let (jobs, receiver) = mpsc::unbounded_channel();
        std::thread::Builder::new().name("dtq-test".to_owned()).spawn(move || {
            runtime.block_on(async {
                let on_pending = prepare(io);
                let time = Time { parks, pending };
                // A task: the hook of the runtime sees those, not the future that it is given.
                let _ = tokio::spawn(control(time, receiver, on_pending)).await;
            });
            // Task functions that block are not waited for.
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, jobs })
    }

    /// The clock's moment.
    pub(super) fn instant(&self) -> Instant {
        let _runtime = self.handle.enter();
        Instant::now()
    }

    /// Does `job` on the thread, with the clock let loose; one job after another.
    pub(super) fn run<T, F>(
        &self,
        job: impl FnOnce(Time) -> F + Send + 'static,
    ) -> oneshot::Receiver<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |time| {
            Box::pin(async move {
                let _ = reply.send(job(time).await);
            })
        });
        let _ = self.jobs.send(job);
        answer
    }
}

async fn control<F>(time: Time, mut jobs: mpsc::UnboundedReceiver<Job>, on_pending: F)
where
    F: Fn(Time) -> BoxFuture<'static, ()>,
{
    loop {
        let stand = Standstill::begin();
        tokio::select! {
            biased;
            job = jobs.recv() => {
                let Some(job) = job else { return };
                stand.end().await;
                job(time.clone()).await;
            }
            () = time.pending.began.notified() => {
                stand.end().await;
                on_pending(time.clone()).await;
            }
        }
    }
}

/// While it lives the clock stands: a paused clock of tokio's moves by itself when everything waits,
/// unless a blocking task is under way.
struct Standstill {
    end: std::sync::mpsc::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Standstill {
    fn begin() -> Self {
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let task = tokio::task::spawn_blocking(move || {
            let _ = wait.recv();
        });
        Self { end, task }
    }

    async fn end(self) {
        drop(self.end);
        let _ = self.task.await;
    }
}

/// The clock, for who decides when it moves.
#[derive(Clone)]
pub(super) struct Time {
    parks: Arc<Parks>,
    pending: Arc<Pending>,
}

impl Time {
    /// Waits until nothing can go on before the clock moves.
    pub(super) async fn idle(&self) {
        self.after_parks(1).await;
    }

    /// Lets the clock jump to the next timer, or waits for news from outside; then as [`Self::idle`].
    pub(super) async fn step(&self) {
        self.after_parks(2).await;
    }

    async fn after_parks(&self, parks: u8) {
        self.parks.want.store(parks, Ordering::Release);
        self.parks.idle.notified().await;
    }

    /// Holds the clock for so long by real time, for what comes from outside.
    pub(super) async fn hold(&self, real: Duration) {
        let _ = tokio::task::spawn_blocking(move || std::thread::sleep(real)).await;
    }

    /// Lets the clock move on to that moment.
    pub(super) async fn until(&self, moment: Instant) {
        tokio::time::sleep_until(moment).await;
    }

    /// Calls that are under way, and those who wait for a task.
    pub(super) fn pending(&self) -> (usize, usize) {
        let pending = &self.pending;
        (pending.calls.load(Ordering::Acquire), pending.waits.load(Ordering::Acquire))
    }
}
