//! The wall clock of a server, which a test can set: libfaketime, preloaded.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The wall clock of one server. Its monotonic clock stays as it is.
#[derive(Debug)]
pub(super) struct Clock {
    file: PathBuf,
}

impl Clock {
    /// A clock that is right, kept by a file in `folder`.
    pub(super) fn new(folder: &Path) -> Self {
        let clock = Self {
            file: folder.join("clock"),
        };
        clock.set(0);
        clock
    }

    /// Sets it that many seconds ahead of the machine's clock, or behind it.
    pub(super) fn set(&self, seconds: i64) {
        // Replaced whole: the server may read it at any moment.
        let fresh = self.file.with_extension("new");
        fs::write(&fresh, format!("{seconds:+}\n")).expect("a file can be written");
        fs::rename(&fresh, &self.file).expect("a file can be replaced");
    }

    /// Has `command` live by this clock.
    pub(super) fn preload(&self, command: &mut Command) {
        // libc first, so that its allocator is used: jemalloc asks for the time before libfaketime is ready.
        let preload = format!("{} libc.so.6", library().display());
        command
            .env("LD_PRELOAD", preload)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_NO_CACHE", "1")
            .env("DONT_FAKE_MONOTONIC", "1");
    }
}

/// Debian has a folder of libraries for each kind of processor.
fn library() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut files = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    let found = files.find(|file| file.is_file());
    found.expect(
        "libfaketime is not on this machine, and this test needs it: `cargo xtask test` installs it",
    )
}
