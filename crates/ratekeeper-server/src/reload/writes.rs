//! Files that are being written.
//!
//! A writer that pauses is not done: its file is whole once it is closed. Linux tells of writes and of closing; where nothing
//! does, two readings that agree have to do.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, CreateKind, ModifyKind};
use notify::{Event, EventKind};
use parking_lot::Mutex;
use tokio::sync::watch as channel;
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
    /// Told when one of them is done.
    closed: channel::Sender<()>,
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
            EventKind::Create(CreateKind::File) => {
                for path in event.paths.iter().filter(|path| is_new(path)) {
                    self.record_write(named(path));
                }
            }
            EventKind::Access(AccessKind::Close(AccessMode::Write))
            | EventKind::Modify(ModifyKind::Name(_))
            | EventKind::Remove(_) => {
                for path in &event.paths {
                    self.open.lock().remove(&named(path));
                }
                self.closed.send_replace(());
            }
            _ => {}
        }
    }

    /// Forgets all of them: events were lost, or there are none any more.
    pub(super) fn forget(&self) {
        self.open.lock().clear();
        self.closed.send_replace(());
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
            let mut closed = self.closed.subscribe();
            let Some((path, left)) = self.open_among(&files) else {
                return;
            };
            if left.is_zero() {
                let path = path.display();
                warn!(%path, "a file is still open for writing, and is taken as it is");
                continue;
            }
            tokio::select! {
                _ = closed.changed() => {}
                () = sleep(left) => {}
            }
        }
    }

    /// True if a reading waits for a writer.
    #[cfg(test)]
    pub(super) fn are_waited_for(&self) -> bool {
        self.closed.receiver_count() > 0
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

/// True if a file that has appeared is one that was opened to be written: it is empty yet. A link to another one is not, and
/// nothing would tell of its closing.
fn is_new(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    let found = path.symlink_metadata();
    found.is_ok_and(|it| it.is_file() && it.len() == 0 && it.nlink() == 1)
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
    const CREATED: EventKind = EventKind::Create(CreateKind::File);
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
    async fn a_new_file_that_is_empty_yet_is_waited_for() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let at = |name: &str| folder.path().join(name);
        let writes = Writes::default();
        let wait = async |name: &str| {
            let path = at(name);
            let path = path.to_str().expect("it is Unicode");
            tell(&writes, CREATED, path);
            let waited_for = waited(&writes, &[path]).await;
            tell(&writes, CLOSED, path);
            waited_for
        };
        std::fs::write(at("open"), "").expect("it can be written");
        assert_eq!(wait("open").await, 10);
        std::fs::write(at("written"), "domain: d").expect("it can be written");
        assert_eq!(wait("written").await, 0, "its writes are told of");
        std::fs::hard_link(at("open"), at("link")).expect("links can be made");
        assert_eq!(wait("link").await, 0, "nobody closes a link");
        std::os::unix::fs::symlink(at("open"), at("pointer")).expect("links can be made");
        assert_eq!(wait("pointer").await, 0);
        assert_eq!(wait("gone").await, 0);
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
