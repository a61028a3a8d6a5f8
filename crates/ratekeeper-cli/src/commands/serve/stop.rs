//! Signals to stop: the first SIGTERM or SIGINT stops gracefully, another one faster. SIGHUP never does.

use anyhow::{Context, Result};
use std::future::Future;
use std::process::ExitCode;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing::info;

/// The end of a start that we were asked to give up.
pub(super) fn before_serving() -> ExitCode {
    info!("stopped before anything was served");
    ExitCode::SUCCESS
}

/// Keeps SIGHUP from ending the process, which is its default, from now on; must be called in a runtime. The server
/// looks at all files as it begins to run, and listens to the signal itself from then on: one that comes before asks for
/// nothing more.
///
/// # Errors
/// The system does not let us listen to signals.
pub(crate) fn survive_hangups() -> Result<()> {
    // What is installed for the first listener stays, also without any.
    listen(SignalKind::hangup()).map(drop)
}

fn listen(kind: SignalKind) -> Result<Signal> {
    signal(kind).context("signals cannot be listened to")
}

/// The number of times we have been asked to stop.
pub(crate) struct Signals(watch::Receiver<u8>);

impl Signals {
    /// Listens from now on; must be called in a runtime, and before anything is waited for: a process that is the first
    /// of its container gets no signal that it does not listen to.
    ///
    /// # Errors
    /// The system does not let us listen to signals.
    pub(crate) fn listen() -> Result<Signals> {
        let (mut term, mut int) = (
            listen(SignalKind::terminate())?,
            listen(SignalKind::interrupt())?,
        );
        let (count, seen) = watch::channel(0_u8);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = term.recv() => {}
                    _ = int.recv() => {}
                }
                count.send_modify(|count| *count = count.saturating_add(1));
            }
        });
        Ok(Signals(seen))
    }

    /// Completes once we have been asked to stop.
    pub(crate) fn first(&self) -> impl Future<Output = ()> + use<> {
        self.reached(1)
    }

    /// Completes once we have been asked to stop again.
    pub(crate) fn second(&self) -> impl Future<Output = ()> + use<> {
        self.reached(2)
    }

    /// Completes once we have been asked to stop a third time.
    pub(crate) fn third(&self) -> impl Future<Output = ()> + use<> {
        self.reached(3)
    }

    /// Does `start`; None if we are asked to stop before it is done, or have been.
    pub(crate) async fn unless_stopped<T>(&self, start: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.first() => None,
            started = start => Some(started),
        }
    }

    fn reached(&self, wanted: u8) -> impl Future<Output = ()> + use<> {
        let mut seen = self.0.clone();
        async move {
            if seen.wait_for(|count| *count >= wanted).await.is_err() {
                // The task that counts ends with the runtime only: there is nothing to wait for.
                std::future::pending::<()>().await;
            }
        }
    }
}
