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
    let mut code = 0;
    for seen in 0.. {
        tokio::select! {
            _ = terminate.recv() => code = 143,
            _ = interrupt.recv() => code = 130,
        }
        if seen == 0 {
            tracing::info!("signal received: finishing what runs; another signal ends at once");
            stop.stop();
        } else {
            break;
        }
    }
    std::process::exit(code);
}

#[cfg(not(unix))]
pub(crate) async fn shut_down_on_signals(stop: Stopper) {
    if tokio::signal::ctrl_c().await.is_ok() {
        stop.stop();
    }
    if tokio::signal::ctrl_c().await.is_ok() {
        std::process::exit(130);
    }
}
