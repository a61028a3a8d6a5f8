//! A settable wall clock for a server, by preloading libfaketime.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The wall clock of one server. Its monotonic clock is not affected.
#[derive(Debug)]
pub(super) struct Clock {
    file: PathBuf,
}

impl Clock {
    /// A correct clock, controlled by a file in `folder`.
    pub(super) fn new(folder: &Path) -> Self {
        let clock = Self {
            file: folder.join("clock"),
        };
        clock.set(0);
        clock
    }

    /// Sets it this many seconds ahead of the machine's clock, or behind it.
    pub(super) fn set(&self, seconds: i64) {
        // Replaced atomically: the server may read it at any moment.
        let fresh = self.file.with_extension("new");
        fs::write(&fresh, format!("{seconds:+}\n")).expect("a file can be written");
        fs::rename(&fresh, &self.file).expect("a file can be replaced");
    }

    /// Makes `command` use this clock.
    pub(super) fn preload(&self, command: &mut Command) {
        // libc first, so that its allocator is used: jemalloc reads the time before libfaketime is
        // ready.
        let preload = format!("{} libc.so.6", library().display());
        command
            .env("LD_PRELOAD", preload)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_NO_CACHE", "1")
            .env("DONT_FAKE_MONOTONIC", "1");
    }
}

/// The library's path: Debian has a library folder for each architecture.
fn library() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut files = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    let found = files.find(|file| file.is_file());
    found.expect(
        "libfaketime is not on this machine, and this test needs it: `cargo xtask test` installs it",
    )
}
