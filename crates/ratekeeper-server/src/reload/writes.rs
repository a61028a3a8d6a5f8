//! Files that are being written.
//!
//! A writer that pauses is not done: its file is whole once it is closed. Linux tells of writes and of closing; where nothing
//! does, two readings that agree have to do.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::blocking::blocking;

/// The most files that are followed. One that is written beside so many others is taken as soon as two readings agree.
const FILES_MAX: usize = 1_000;

/// The longest pause of a writer. One that keeps its file open for longer has forgotten it, or does not mean to close it.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Files that were written and not closed yet.
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// The time of the last write to each.
    open: Mutex<HashMap<PathBuf, Instant>>,
    closed: Notify,
}

impl Writes {
    /// Takes note of what the system tells.
    pub(super) fn record(&self, event: &Event) {
        if !cfg!(any(target_os = "linux", target_os = "android")) {
            return;
        }
        if event.need_rescan() {
            return self.forget();
        }
        match event.kind {
            EventKind::Modify(ModifyKind::Data(_)) => {
                for path in &event.paths {
                    self.record_write(named(path));
                }
            }
            EventKind::Access(AccessKind::Close(AccessMode::Write))
            | EventKind::Modify(ModifyKind::Name(_))
            | EventKind::Remove(_) => {
                for path in &event.paths {
                    self.open.lock().remove(&named(path));
                }
                self.closed.notify_waiters();
            }
            _ => {}
        }
    }

    /// Forgets all of them: events were lost, or there are none any more.
    pub(super) fn forget(&self) {
        self.open.lock().clear();
        self.closed.notify_waiters();
    }

    fn record_write(&self, path: PathBuf) {
        let mut open = self.open.lock();
        if open.len() < FILES_MAX || open.contains_key(&path) {
            open.insert(path, Instant::now());
        }
    }

    /// Waits until none of `files` is being written.
    pub(super) async fn settled(&self, files: Vec<PathBuf>) {
        if self.open.lock().is_empty() {
            return;
        }
        let files = blocking(move || files.iter().map(|path| named(path)).collect::<Vec<_>>());
        let files = files.await;
        loop {
            // Before the look: what is closed from here on ends the wait.
            let closed = self.closed.notified();
            let Some((path, left)) = self.open_among(&files) else {
                return;
            };
            if left.is_zero() {
                let path = path.display();
                warn!(%path, "a file is still open for writing, and is taken as it is");
                continue;
            }
            tokio::select! {
                () = closed => {}
                () = sleep(left) => {}
            }
        }
    }

    /// The first of `files` that is open, and the time for which it is waited for; it is forgotten if that is over.
    fn open_among<'a>(&self, files: &'a [PathBuf]) -> Option<(&'a Path, Duration)> {
        let mut open = self.open.lock();
        let (path, written) = files
            .iter()
            .find_map(|path| Some((path, *open.get(path)?)))?;
        let left = PAUSE_MAX.saturating_sub(written.elapsed());
        if left.is_zero() {
            open.remove(path);
        }
        Some((path.as_path(), left))
    }
}

/// The one name of a file, whatever links lead to it; also of one that is gone.
fn named(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    match (path.parent().map(Path::canonicalize), path.file_name()) {
        (Some(Ok(folder)), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use notify::event::{DataChange, Flag, RemoveKind};

    use super::*;

    const WRITTEN: EventKind = EventKind::Modify(ModifyKind::Data(DataChange::Any));
    const CLOSED: EventKind = EventKind::Access(AccessKind::Close(AccessMode::Write));

    fn tell(writes: &Writes, kind: EventKind, path: &str) {
        writes.record(&Event::new(kind).add_path(path.into()));
    }

    /// The seconds for which `files` are waited for.
    async fn waited(writes: &Writes, files: &[&str]) -> u64 {
        let begun = Instant::now();
        writes
            .settled(files.iter().map(PathBuf::from).collect())
            .await;
        begun.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_is_waited_for_until_it_is_closed_or_forgotten() {
        let writes = Writes::default();
        assert_eq!(waited(&writes, &["/none/a"]).await, 0);
        tell(&writes, WRITTEN, "/none/a");
        let (waited_for, ()) = tokio::join!(waited(&writes, &["/none/b", "/none/a"]), async {
            sleep(Duration::from_secs(8)).await;
            tell(&writes, WRITTEN, "/none/a");
            sleep(Duration::from_secs(8)).await;
            tell(&writes, CLOSED, "/none/a");
        });
        assert_eq!(waited_for, 16);
        assert_eq!(waited(&writes, &["/none/a"]).await, 0);

        tell(&writes, WRITTEN, "/none/a");
        assert_eq!(waited(&writes, &["/none/a"]).await, 10, "once");
        assert_eq!(waited(&writes, &["/none/a"]).await, 0, "and not again");
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_is_read_is_waited_for_and_only_while_it_is_there() {
        let writes = Writes::default();
        tell(&writes, WRITTEN, "/none/log");
        assert_eq!(waited(&writes, &["/none/a"]).await, 0);
        tell(&writes, WRITTEN, "/none/a");
        tell(&writes, EventKind::Remove(RemoveKind::File), "/none/a");
        assert_eq!(waited(&writes, &["/none/a"]).await, 0);
        tell(&writes, WRITTEN, "/none/a");
        writes.record(&Event::new(EventKind::Other).set_flag(Flag::Rescan));
        assert_eq!(waited(&writes, &["/none/a"]).await, 0);
        for file in 0..2 * FILES_MAX {
            tell(&writes, WRITTEN, &format!("/none/{file}"));
        }
        assert_eq!(writes.open.lock().len(), FILES_MAX);
    }
}
