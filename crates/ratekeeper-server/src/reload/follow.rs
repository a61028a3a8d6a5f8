//! Files that are read again while the service runs: certificates, routes.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::warn;

use super::watch::{Watch, WatchConfig};
use super::writes::Writes;
use crate::blocking::blocking;
use crate::figures::families::{Families, by};
use crate::figures::monitored::Monitored;

/// Files that stay in force until they change and make sense.
pub trait Followed: fmt::Debug + Send + Sync + 'static {
    /// Their name in the log, such as `the certificate of grpc`.
    fn name(&self) -> String;

    /// Their name in metrics, such as `grpc certificate`.
    fn label(&self) -> String;

    /// The reason that what was read last is not in force; None if it is.
    fn refused(&self) -> Option<String>;

    /// The paths to read.
    fn paths(&self) -> Vec<PathBuf>;

    /// The fingerprint of the files in force.
    fn known(&self) -> u64;

    /// Reads the files; blocks.
    fn read(self: Arc<Self>) -> FilesRead;
}

/// The result of one reading of the files, even if they could not be read.
pub struct FilesRead {
    /// Differs between two readings if the files did.
    pub fingerprint: u64,
    /// Puts the reading in force, or logs the reason it cannot and keeps the last good files;
    /// blocks.
    pub take: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for FilesRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What was read may be secret.
        f.debug_struct("FilesRead")
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

/// The state of all files that are followed, for operators.
#[derive(Debug)]
pub(crate) struct FollowedFiles(pub(crate) Vec<Arc<dyn Followed>>);

impl Monitored for FollowedFiles {
    fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        let told = self.0.iter().map(|files| {
            let is_good = files.refused().is_none();
            (files.label(), i64::from(is_good))
        });
        let told: Vec<_> = told.collect();
        if told.is_empty() {
            return Ok(());
        }
        let told = told.iter().map(|(label, good)| (label.as_str(), *good));
        let help = "1 if the files are in force as they were last read, 0 if they were refused";
        let name = "ratelimit_files_last_reload_successful";
        families.gauges(name, help, by("files", told))
    }

    fn faults(&self) -> Vec<String> {
        let refused = self
            .0
            .iter()
            .filter_map(|files| Some((files.name(), files.refused()?)));
        refused
            .map(|(name, why)| format!("{name}: refused, the last good stays in use: {why}"))
            .collect()
    }

    fn subject(&self) -> &'static str {
        "certificate or routes"
    }
}

/// Follows files forever. A nudge of `wake` makes it look, as a change does.
pub(crate) async fn follow(files: Arc<dyn Followed>, config: WatchConfig, wake: Arc<Notify>) {
    let mut known = files.known();
    let mut is_blind = false;
    let writes = Arc::new(Writes::default());
    let mut watched = None;
    loop {
        // Folders that were swapped are other folders now, so each round watches again; and
        // what happens from here on wakes us again.
        let now = watch(&*files, &wake, &writes, &mut is_blind);
        let before = std::mem::replace(&mut watched, now);
        known = look(&files, known, config.quiet, &writes).await;
        // However much happens beside the files: no more than one look a quiet time.
        sleep(config.quiet).await;
        // Not earlier: of files that were closed meanwhile, only these may tell.
        drop(before);
        let period = config.poll_interval.max(Duration::from_millis(10));
        tokio::select! {
            () = wake.notified() => {}
            () = sleep(period) => {}
        }
    }
}

fn watch(
    files: &dyn Followed,
    wake: &Arc<Notify>,
    writes: &Arc<Writes>,
    is_blind: &mut bool,
) -> Option<Watch> {
    let paths = files.paths();
    match Watch::new(paths.iter().map(PathBuf::as_path), wake, writes) {
        Ok(watch) => {
            *is_blind = false;
            Some(watch)
        }
        Err(error) => {
            writes.forget();
            if !std::mem::replace(is_blind, true) {
                warn!(%error, files = files.name(), "the file system does not report changes; polling instead");
            }
            None
        }
    }
}

/// Reads the files until two readings a quiet time apart agree and none of them is being written, and takes them if they
/// are new. Returns the fingerprint that is known then.
async fn look(files: &Arc<dyn Followed>, known: u64, quiet: Duration, writes: &Writes) -> u64 {
    let mut read = read_once(files).await;
    while read.fingerprint != known {
        sleep(quiet).await;
        writes.settled(files.paths()).await;
        let before = read.fingerprint;
        read = read_once(files).await;
        if read.fingerprint == before {
            break;
        }
    }
    let fingerprint = read.fingerprint;
    if fingerprint != known {
        blocking(read.take).await;
    }
    fingerprint
}

async fn read_once(files: &Arc<dyn Followed>) -> FilesRead {
    let files = Arc::clone(files);
    blocking(move || files.read()).await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::time::Instant;

    use super::*;

    /// A file beside which something happens each time it is read, such as a log that is written.
    #[derive(Debug)]
    struct Crowded {
        wake: Arc<Notify>,
        /// The looks to come.
        left: AtomicU32,
        done: Notify,
    }

    impl Followed for Crowded {
        fn name(&self) -> String {
            "a file".to_owned()
        }

        fn label(&self) -> String {
            "file".to_owned()
        }

        fn refused(&self) -> Option<String> {
            None
        }

        fn paths(&self) -> Vec<PathBuf> {
            Vec::new()
        }

        fn known(&self) -> u64 {
            7
        }

        fn read(self: Arc<Self>) -> FilesRead {
            match self.left.fetch_sub(1, Ordering::Relaxed) {
                1 => self.done.notify_one(),
                _ => self.wake.notify_one(),
            }
            FilesRead {
                fingerprint: 7,
                take: Box::new(|| {}),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_no_more_than_one_look_a_quiet_time() {
        let wake = Arc::new(Notify::new());
        let files = Arc::new(Crowded {
            wake: Arc::clone(&wake),
            left: AtomicU32::new(10),
            done: Notify::new(),
        });
        let config = WatchConfig::default();
        let begun = Instant::now();
        tokio::select! {
            () = follow(Arc::clone(&files) as Arc<dyn Followed>, config, wake) => {}
            () = files.done.notified() => {}
        }
        assert!(begun.elapsed() >= config.quiet * 9, "{:?}", begun.elapsed());
    }
}
