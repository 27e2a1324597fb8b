//! SIGTERM and SIGINT: the first shuts the worker down, the second ends the process (SPEC 7.8).

use crate::worker::Stopper;

#[cfg(unix)]
pub(crate) async fn shut_down_on_signals(stop: Stopper) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        tracing::warn!("signals cannot be received: the worker does not shut down by them");
        return;
    };
    loop {
        let code = tokio::select! {
            _ = terminate.recv() => 143,
            _ = interrupt.recv() => 130,
        };
        first_or_exit(&stop, code);
    }
}

#[cfg(not(unix))]
pub(crate) async fn shut_down_on_signals(stop: Stopper) {
    while tokio::signal::ctrl_c().await.is_ok() {
        first_or_exit(&stop, 130);
    }
}

/// Also when the worker has ended by itself: the process is on its way out, and something holds it up.
fn first_or_exit(stop: &Stopper, code: i32) {
    if stop.is_stopped() {
        std::process::exit(code);
    }
    tracing::info!("signal received: finishing what runs; another signal ends at once");
    stop.stop();
}
