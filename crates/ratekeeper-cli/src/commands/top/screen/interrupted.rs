//! Signals that end the program while a picture is on the terminal.

use super::News;
use super::terminal::restore;
use anyhow::{Context, Result};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that end a program, and that somebody may send to one in a terminal.
const SIGNALS: [fn() -> SignalKind; 4] = [
    SignalKind::terminate,
    SignalKind::hangup,
    SignalKind::interrupt,
    SignalKind::quit,
];

/// The time that the screen has to end by itself: a terminal that is stopped takes nothing.
const PATIENCE: Duration = Duration::from_secs(2);

/// Tells `news` of the first such signal from now on, and ends the program if that has no effect.
///
/// # Errors
/// The system does not let us listen to signals.
pub(super) fn tell(news: SyncSender<News>) -> Result<()> {
    let (listening, is_listening) = sync_channel(1);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let code = { runtime }
            .enable_io()
            .build()
            .map_err(anyhow::Error::from)
            .and_then(|runtime| {
                let signals = runtime.block_on(async { listen() })?;
                let _ = listening.send(Ok(()));
                Ok(runtime.block_on(first(signals)))
            });
        match code {
            Ok(code) => {
                // If it is full, the screen does not move, and is not waited for.
                if news.try_send(News::Interrupted(code)).is_ok() {
                    std::thread::sleep(PATIENCE);
                }
                restore();
                std::process::exit(code.into());
            }
            Err(error) => _ = listening.send(Err(error)),
        }
    });
    is_listening
        .recv()
        .context("signals cannot be listened to")?
        .context("signals cannot be listened to")
}

/// Begins to listen, each signal with the code of a program that it ends.
fn listen() -> std::io::Result<Vec<(u8, Signal)>> {
    let listen = |kind: fn() -> SignalKind| {
        let number = u8::try_from(kind().as_raw_value()).unwrap_or_default();
        Ok((128 + number, signal(kind())?))
    };
    SIGNALS.into_iter().map(listen).collect()
}

/// Waits for the first of them, and returns its code.
async fn first(mut signals: Vec<(u8, Signal)>) -> u8 {
    std::future::poll_fn(|context| {
        for (code, signal) in &mut signals {
            if signal.poll_recv(context).is_ready() {
                return std::task::Poll::Ready(*code);
            }
        }
        std::task::Poll::Pending
    })
    .await
}
