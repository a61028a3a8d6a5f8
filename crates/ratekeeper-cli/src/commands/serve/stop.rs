//! Signals to stop: the first SIGTERM or SIGINT stops gracefully, another one faster. SIGHUP never does.

use crate::logging;
use anyhow::{Context, Result};
use parking_lot::Mutex;
use std::future::Future;
use std::process;
use std::sync::Arc;
use std::thread;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing::info;

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
pub(crate) struct Signals {
    seen: watch::Receiver<u8>,
    phase: Arc<Mutex<Phase>>,
}

/// The part of its life that the process is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing is served yet: a signal ends the process where it stands.
    Starting,
    Serving,
}

impl Signals {
    /// Listens from now on, on a thread of its own: a start reads and compiles rules and opens databases, and looks at
    /// nothing else meanwhile. To be called before that: a process that is the first of its container gets no signal that
    /// it does not listen to.
    ///
    /// # Errors
    /// The system does not let us listen to signals, or has no thread for it.
    pub(crate) fn listen() -> Result<Signals> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?;
        let (mut term, mut int) = {
            let _entered = runtime.enter();
            (
                listen(SignalKind::terminate())?,
                listen(SignalKind::interrupt())?,
            )
        };
        let (count, seen) = watch::channel(0_u8);
        let phase = Arc::new(Mutex::new(Phase::Starting));
        let signals = Signals {
            seen,
            phase: Arc::clone(&phase),
        };
        let counting = async move {
            loop {
                tokio::select! {
                    _ = term.recv() => {}
                    _ = int.recv() => {}
                }
                end_start(&phase);
                count.send_modify(|count| *count = count.saturating_add(1));
            }
        };
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || runtime.block_on(counting))?;
        Ok(signals)
    }

    /// Ends the start: from now on a signal asks for a drain.
    pub(crate) fn serve(&self) {
        *self.phase.lock() = Phase::Serving;
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

    fn reached(&self, wanted: u8) -> impl Future<Output = ()> + use<> {
        let mut seen = self.seen.clone();
        async move {
            if seen.wait_for(|count| *count >= wanted).await.is_err() {
                // The thread that counts never ends: there is nothing to wait for.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Ends the process if it is still starting, which may stop at any point, as it may by a loss of power.
fn end_start(phase: &Mutex<Phase>) {
    // Held until the end: nothing is to be served any more.
    let phase = phase.lock();
    if *phase == Phase::Starting {
        info!("stopped before anything was served");
        logging::finish();
        process::exit(0);
    }
}
