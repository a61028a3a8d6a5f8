//! Tells when something happened to files.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

use super::writes::Writes;

/// Follows this many symbolic links from the rules' path before it calls them a loop.
const LINKS_MAX: usize = 40;

/// The settings for noticing changes of the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchConfig {
    /// True if changes are watched for; SIGHUP works in either case.
    pub enabled: bool,
    /// The time between two readings of the rules that have to agree. On Linux a file that is open for writing is waited for
    /// too; where the system does not tell, one that is written with longer pauses may be read half-written.
    pub quiet: Duration,
    /// The interval at which the rules are read without a notification, for file systems that send
    /// none.
    pub poll_interval: Duration,
}

impl Default for WatchConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            quiet: Duration::from_millis(200),
            poll_interval: Duration::from_secs(10),
        }
    }
}

/// A watch of the file system. Dropping it ends it.
pub(crate) struct Watch {
    _watcher: RecommendedWatcher,
    is_over: Arc<AtomicBool>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Relaxed: an event that is told a moment too late is one of a moment before.
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Watch {
    /// Calls `wake` on every change at or below `paths`, and of every folder in which one of
    /// their symbolic links lies; `writes` are those that go on. However many paths there are, it is one watch of the system,
    /// which gives few of them.
    pub(super) fn new<'a>(
        paths: impl IntoIterator<Item = &'a Path>,
        wake: &Arc<Notify>,
        writes: &Arc<Writes>,
    ) -> notify::Result<Self> {
        let (wake, writes) = (Arc::clone(wake), Arc::clone(writes));
        let is_over = Arc::new(AtomicBool::new(false));
        let was_over = Arc::clone(&is_over);
        let mut watcher = notify::recommended_watcher(move |event| {
            // The watch that came after it has told of the end of each write by now.
            if !was_over.load(Ordering::Relaxed) {
                match &event {
                    Ok(event) => writes.record(event),
                    Err(_) => writes.forget(),
                }
            }
            if is_change(&event) {
                wake.notify_one();
            }
        })?;
        let paths = paths.into_iter().map(std::path::absolute);
        let paths = paths.collect::<Result<Vec<_>, _>>();
        let paths = paths.map_err(notify::Error::io)?;
        let mut folders = BTreeSet::new();
        for path in &paths {
            folders.extend(folders_above(path));
            for link in links_in(path) {
                folders.extend(folders_above(&link));
            }
        }
        for folder in folders {
            // One that is gone shows as a change of the one above it.
            let _ = watcher.watch(&folder, RecursiveMode::NonRecursive);
        }
        // Last: a folder may be one of the paths and lie above another one.
        for path in &paths {
            match watcher.watch(path, RecursiveMode::Recursive) {
                // It comes back as an entry of the folder above, or of one of the links.
                Err(error) if matches!(error.kind, ErrorKind::PathNotFound) => {}
                watched => watched?,
            }
        }
        Ok(Self {
            _watcher: watcher,
            is_over,
        })
    }
}

/// Opening and reading is no change: it is what a look does itself.
fn is_change(event: &notify::Result<Event>) -> bool {
    match event {
        Ok(event) => match event.kind {
            EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
            _ => true,
        },
        // The kernel's queue overflowed, or a folder vanished: anything may have changed.
        Err(_) => true,
    }
}

/// The folders whose entries decide what `path` leads to: its own, and that of each symbolic
/// link on the way, however often those lead on.
fn folders_above(path: &Path) -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::new();
    let mut links = 0;
    let mut rest: Vec<_> = path.components().rev().map(owned).collect();
    let mut at = PathBuf::new();
    while let Some(component) = rest.pop() {
        if component == Path::new("..") {
            at.pop();
            continue;
        }
        let next = at.join(&component);
        if let Ok(target) = next.read_link() {
            folders.insert(at.clone());
            links += 1;
            if links > LINKS_MAX {
                break;
            }
            rest.extend(target.components().rev().map(owned));
            if target.is_absolute() {
                at = PathBuf::new();
            }
        } else {
            if rest.is_empty() {
                folders.insert(at.clone());
            }
            at = next;
        }
    }
    folders
}

/// The symbolic links directly in a folder, whose targets may lie outside of it.
fn links_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = folder.read_dir() else {
        return Vec::new();
    };
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_symlink())
        .collect()
}

fn owned(component: Component<'_>) -> PathBuf {
    PathBuf::from(component.as_os_str())
}
