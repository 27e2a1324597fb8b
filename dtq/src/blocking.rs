//! Threads for task functions without `async`: as many as there are slots, so that a hung one
//! never keeps another from starting (H24).

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long a thread waits for more before it ends.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// Threads made on demand and reused. The worker's slots bound how many jobs there are at once.
#[derive(Clone, Default)]
pub(crate) struct Pool(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    jobs: std::collections::VecDeque<Job>,
    idle: usize,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Pool {
    /// Runs `job` on a thread that is idle, or on a new one. The job must not panic.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.jobs.push_back(Box::new(job));
        if state.idle >= state.jobs.len() {
            self.0.more.notify_one();
            return Ok(());
        }
        drop(state);
        let shared = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name("dtq-blocking".to_owned());
        match thread.spawn(move || shared.work()) {
            Ok(_) => Ok(()),
            Err(error) => {
                // Out of threads: taken back, unless another thread has it already.
                let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
                if state.jobs.pop_back().is_some() { Err(error) } else { Ok(()) }
            }
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.idle += 1;
            let (again, waited) =
                self.more.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = again;
            state.idle -= 1;
            if waited.timed_out() && state.jobs.is_empty() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn h24_hung_jobs_never_keep_another_from_starting() {
        let pool = Pool::default();
        let (release, hang) = mpsc::channel::<()>();
        let hang = Arc::new(Mutex::new(hang));
        for _ in 0..7 {
            let hang = Arc::clone(&hang);
            pool.run(move || assert!(hang.lock().unwrap().recv().is_err())).unwrap();
        }
        let (done, wait) = mpsc::channel();
        pool.run(move || done.send(()).unwrap()).unwrap();
        wait.recv_timeout(Duration::from_secs(10)).expect("the eighth starts");
        drop(release);
    }
}
