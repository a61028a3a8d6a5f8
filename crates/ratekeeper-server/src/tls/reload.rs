//! Certificates are renewed while the service runs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::files::{self, Files, Fingerprint};
use super::{Tls, TlsError};
use crate::config::WatchConfig;
use crate::reload::{Watch, blocking};

/// What the files read as: their fingerprint, or why they cannot be read.
type Seen = Result<Fingerprint, String>;

/// Follows a listener's files for ever: new connections get what they say, and what makes no
/// sense leaves the last good ones in force. A nudge of `wake` makes it look, as a change does.
pub(crate) async fn follow(tls: Arc<Tls>, config: WatchConfig, wake: Arc<Notify>) {
    let mut known: Seen = Ok(tls.first);
    let mut is_blind = false;
    loop {
        // Folders that were swapped are other folders now, so each round watches anew; and
        // what happens from here on wakes us again.
        let watches = watch(&tls, &wake, &mut is_blind);
        known = look(&tls, known, config.quiet).await;
        let period = config.poll_interval.max(Duration::from_millis(10));
        tokio::select! {
            () = wake.notified() => {}
            () = sleep(period) => {}
        }
        drop(watches);
    }
}

fn watch(tls: &Tls, wake: &Arc<Notify>, is_blind: &mut bool) -> Vec<Watch> {
    let paths = tls.config.paths();
    let watches: Result<Vec<_>, _> = paths.map(|path| Watch::new(path, wake)).collect();
    match watches {
        Ok(watches) => {
            *is_blind = false;
            watches
        }
        Err(error) => {
            if !std::mem::replace(is_blind, true) {
                warn!(%error, listener = tls.listener, "the file system does not tell of new certificates; polling for them instead");
            }
            Vec::new()
        }
    }
}

/// Reads the files until two readings a quiet time apart agree, and takes what is not known.
/// Answers what is known then.
async fn look(tls: &Arc<Tls>, known: Seen, quiet: Duration) -> Seen {
    let (mut files, mut seen) = read(tls).await;
    while seen != known {
        sleep(quiet).await;
        let before = std::mem::replace(&mut seen, Err(String::new()));
        (files, seen) = read(tls).await;
        if seen == before {
            break;
        }
    }
    if seen != known {
        take(tls, files).await;
    }
    seen
}

async fn read(tls: &Arc<Tls>) -> (Result<Files, TlsError>, Seen) {
    let tls = Arc::clone(tls);
    blocking(move || {
        let files = files::read(&tls.config);
        let seen = match &files {
            Ok(files) => Ok(files.fingerprint()),
            Err(error) => Err(error.to_string()),
        };
        (files, seen)
    })
    .await
}

async fn take(tls: &Arc<Tls>, files: Result<Files, TlsError>) {
    let understood = {
        let tls = Arc::clone(tls);
        blocking(move || files::understand(&files?, &tls.config, tls.protocol)).await
    };
    match understood {
        Ok(config) => {
            tls.in_force.store(Arc::new(config));
            tls.counts.accepted.fetch_add(1, Ordering::Relaxed);
            info!(
                listener = tls.listener,
                "a new certificate is in force for new connections"
            );
        }
        Err(error) => {
            tls.counts.refused.fetch_add(1, Ordering::Relaxed);
            error!(%error, listener = tls.listener, "a new certificate is refused; the last good one stays in force");
        }
    }
}
