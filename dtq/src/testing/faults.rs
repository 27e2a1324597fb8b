//! A store that does what a test wants to go wrong.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::id::TaskId;
use crate::store::sqlite::SqliteStore;
use crate::store::*;
use crate::worker::Stopper;

/// What is asked of a store, as far as faults tell it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Enqueue,
    /// A fetch that brought something, once it has.
    Fetched,
    Finish,
    /// A claim of something, once it is done.
    Claimed,
    Other,
}

/// What is to go wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// It never arrives.
    Unavailable,
    /// It is done, and its answer is lost.
    ReplyLost,
    /// The worker dies before it, or after it.
    CrashBefore,
    CrashAfter,
}

/// Decides what goes wrong, and keeps what a test asks about.
pub(crate) struct Plan {
    decide: Mutex<Box<dyn FnMut(Op) -> Fault + Send>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    lose_leases: u32,
    enqueued: Vec<NewTask>,
    counts: Counts,
}

/// What workers wrote.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) fetched: u64,
    pub(crate) succeeded: u64,
    pub(crate) retried: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    pub(crate) lost: u64,
}

impl Plan {
    pub(crate) fn new(decide: impl FnMut(Op) -> Fault + Send + 'static) -> Self {
        Self { decide: Mutex::new(Box::new(decide)), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(&self, op: Op) -> Fault {
        self.decide.lock().unwrap_or_else(PoisonError::into_inner)(op)
    }

    pub(crate) fn counts(&self) -> Counts {
        self.state().counts
    }

    pub(crate) fn lose_leases(&self, tasks: u32) {
        self.state().lose_leases += tasks;
    }

    pub(crate) fn enqueued(&self) -> Vec<NewTask> {
        self.state().enqueued.clone()
    }

    fn note_accepted(&self, unit: &[NewTask], answers: &[Accepted]) {
        let mut state = self.state();
        for (task, answer) in unit.iter().zip(answers) {
            let known = || state.enqueued.iter().any(|other| other.id == task.id);
            if *answer == Accepted::New && !known() {
                state.enqueued.push(task.clone());
            }
        }
    }

    /// Whether the task is to lose its lease.
    fn note_fetched(&self) -> bool {
        let mut state = self.state();
        state.counts.fetched += 1;
        let lose = state.lose_leases > 0;
        state.lose_leases -= u32::from(lose);
        lose
    }

    fn note_finished(&self, answers: &[Finished]) {
        let counts = &mut self.state().counts;
        for answer in answers {
            match answer {
                Finished::Applied(status) => match status {
                    crate::Status::Succeeded => counts.succeeded += 1,
                    crate::Status::Retrying => counts.retried += 1,
                    crate::Status::DeadLettered | crate::Status::Failed => counts.failed += 1,
                    crate::Status::Cancelled => counts.cancelled += 1,
                    _ => {}
                },
                Finished::Already => {}
                Finished::Lost => counts.lost += 1,
            }
        }
    }
}

/// The store as a producer or one worker sees it.
pub(crate) struct Faulty {
    inner: Arc<SqliteStore>,
    plan: Arc<Plan>,
    /// The worker's; a producer never dies of a fault.
    worker: Option<OnceLock<Stopper>>,
    dead: AtomicBool,
}

impl Faulty {
    pub(crate) fn of_producer(inner: Arc<SqliteStore>, plan: Arc<Plan>) -> Self {
        Self { inner, plan, worker: None, dead: AtomicBool::new(false) }
    }

    pub(crate) fn of_worker(inner: Arc<SqliteStore>, plan: Arc<Plan>) -> Self {
        Self { inner, plan, worker: Some(OnceLock::new()), dead: AtomicBool::new(false) }
    }

    /// Who is to die of a crash.
    pub(crate) fn belongs_to(&self, stopper: Stopper) {
        if let Some(worker) = &self.worker {
            let _ = worker.set(stopper);
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// The process is gone: none of its calls is answered any more.
    pub(crate) async fn crash(&self) {
        self.dead.store(true, Ordering::Release);
        if let Some(stopper) = self.worker.as_ref().and_then(OnceLock::get) {
            stopper.kill();
        }
        std::future::pending().await
    }

    async fn through<T>(
        &self,
        op: Op,
        call: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
        let fault = self.plan.decide(op);
        let away = || StoreError::Unavailable("a fault of the test".to_owned());
        let mortal = self.worker.is_some();
        match fault {
            Fault::Unavailable => return Err(away()),
            Fault::CrashBefore if mortal => self.crash().await,
            _ => {}
        }
        let answer = call.await?;
        match fault {
            Fault::ReplyLost => return Err(away()),
            Fault::CrashAfter if mortal => self.crash().await,
            _ => {}
        }
        Ok(answer)
    }
}

/// Methods that no fault tells apart.
macro_rules! store {
    ({ $($own:tt)* } $(async fn $name:ident(&self $(, $arg:ident: $type:ty)*) -> $out:ty;)*) => {
        #[async_trait]
        impl Store for Faulty {
            $($own)*
            $(async fn $name(&self $(, $arg: $type)*) -> StoreResult<$out> {
                self.through(Op::Other, self.inner.$name($($arg),*)).await
            })*
        }
    };
}

store! {
    {
        async fn enqueue(
            &self,
            units: &[Vec<NewTask>],
        ) -> StoreResult<Vec<std::result::Result<Vec<Accepted>, Refusal>>> {
            let call = async {
                let answers = self.inner.enqueue(units).await?;
                for (unit, answer) in units.iter().zip(&answers) {
                    if let Ok(accepted) = answer {
                        self.plan.note_accepted(unit, accepted);
                    }
                }
                Ok(answers)
            };
            self.through(Op::Enqueue, call).await
        }

        async fn fetch(&self, request: &FetchRequest) -> StoreResult<Fetched> {
            let call = async {
                let fetched = self.inner.fetch(request).await?;
                for leased in &fetched.leased {
                    if self.plan.note_fetched() {
                        self.inner.take_lease_away(leased.lease.id).await?;
                    }
                }
                Ok(fetched)
            };
            let fetched = self.through(Op::Other, call).await?;
            if !fetched.leased.is_empty() {
                self.through(Op::Fetched, std::future::ready(Ok(()))).await?;
            }
            Ok(fetched)
        }

        async fn finish(&self, holder: &Holder, batch: &[Finish]) -> StoreResult<Vec<Finished>> {
            let call = async {
                let answers = self.inner.finish(holder, batch).await?;
                self.plan.note_finished(&answers);
                Ok(answers)
            };
            self.through(Op::Finish, call).await
        }

        async fn claim_due(&self, worker_id: &str, limit: usize) -> StoreResult<Claim> {
            let mut claimed = false;
            let call = async {
                let claim = self.inner.claim_due(worker_id, limit).await?;
                claimed = matches!(&claim, Claim::Leader { claimed, .. } if !claimed.is_empty());
                Ok(claim)
            };
            let claim = self.through(Op::Other, call).await?;
            if claimed {
                self.through(Op::Claimed, std::future::ready(Ok(()))).await?;
            }
            Ok(claim)
        }

        fn notices(
            &self,
            holder: Option<&Holder>,
        ) -> tokio::sync::mpsc::UnboundedReceiver<Notice> {
            self.inner.notices(holder)
        }

        fn events(&self) -> tokio::sync::mpsc::UnboundedReceiver<String> {
            self.inner.events()
        }
    }
    async fn wait_for_work(&self, queues: &[String], timeout: Duration) -> ();
    async fn renew(&self, holder: &Holder, visibility: Millis, leases: &[Lease]) -> Vec<Renewed>;
    async fn requeue_claimed(&self, ids: &[TaskId]) -> Requeued;
    async fn requeue_stale_claims(&self, older_than: Millis) -> usize;
    async fn step_down(&self, worker_id: &str) -> ();
    async fn reap(&self, limit: usize) -> Reaped;
    async fn maintain(&self) -> Vec<Note>;
    async fn register(&self, beat: &Heartbeat, take_over: bool) -> Registered;
    async fn heartbeat(&self, beat: &Heartbeat) -> ();
    async fn deregister(&self, holder: &Holder) -> ();
    async fn watch(&self, id: TaskId) -> Option<crate::Status>;
    async fn task(&self, id: TaskId) -> Option<crate::inspect::TaskInfo>;
    async fn cancel(&self, id: TaskId) -> Cancelled;
    async fn tasks(&self, filter: &crate::inspect::TaskFilter, cursor: Option<&str>, limit: usize) -> Page<crate::inspect::TaskInfo>;
    async fn queues(&self) -> Vec<crate::inspect::QueueInfo>;
    async fn queue_names(&self) -> Vec<String>;
    async fn workers(&self) -> Vec<crate::inspect::WorkerInfo>;
    async fn set_paused(&self, queue: &str, paused: bool, actor: &Actor) -> ();
    async fn purge_chunk(&self, queue: &str, actor: &Actor) -> (u64, bool);
    async fn dead_letters(&self, filter: &DeadLetterFilter, cursor: Option<&str>, limit: usize) -> Page<crate::inspect::DeadLetter>;
    async fn resurrect(&self, ids: &[TaskId], actor: &Actor) -> Vec<std::result::Result<(), Resurrection>>;
    async fn discard(&self, ids: &[TaskId], keep_records: bool, actor: &Actor) -> Vec<bool>;
    async fn audit(&self, actor: &Actor, action: &str, target: &str, count: u64) -> ();
    async fn audit_trail(&self, limit: usize) -> Vec<crate::inspect::AuditEntry>;
    async fn take_out(&self, limit: usize) -> TakenOut;
    async fn put_in(&self, moved: &[Moved]) -> ();
    async fn drop_taken(&self, marks: &[String]) -> ();
    async fn forget_marks(&self, marks: &[String]) -> ();
    async fn ping(&self) -> ();
}
