//! Programs that tests need, and ports for them.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// A command for a program from the system's packages, also if it is not on the PATH.
#[must_use]
pub fn system(program: &str) -> Command {
    // Servers are in folders that are on the PATH of root alone.
    let elsewhere = ["/usr/sbin", "/usr/local/sbin"];
    let mut paths = elsewhere
        .iter()
        .map(|folder| Path::new(folder).join(program));
    paths
        .find(|path| path.is_file())
        .map_or_else(|| Command::new(program), Command::new)
}

/// A command for a program that `cargo xtask test` installs below the target folder.
///
/// # Panics
/// If it is not installed.
#[must_use]
pub fn tool(program: &str) -> Command {
    let path = tool_folder(program).join(program);
    assert!(path.is_file(), "{}", missing(program));
    Command::new(path)
}

/// The folder into which `cargo xtask test` installs a tool below the target folder.
///
/// # Panics
/// If it is not installed.
#[must_use]
pub fn tool_folder(tool: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it lies");
    let found = test
        .ancestors()
        .map(|folder| folder.join("tools").join(tool))
        .find(|path| path.is_dir());
    found.unwrap_or_else(|| panic!("{}", missing(tool)))
}

pub(super) fn missing(program: &str) -> String {
    format!(
        "{program} is not on this machine, and this test needs it: `cargo xtask test` installs it"
    )
}

/// A port of the loopback interface that nothing listens on.
///
/// It is below the range of ephemeral ports, so that no connection of a concurrent test can get it, and so is the port
/// 10,000 above it, which is never returned: nodes of a cluster of Redis 6.2 talk to each other there. Calls in one
/// process do not return the same port again soon.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn free_port() -> u16 {
    const FIRST: u16 = 12_000;
    const COUNT: u16 = 10_000;
    static START: OnceLock<u16> = OnceLock::new();
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Several processes search at once, so each starts at a different port.
    let start = *START.get_or_init(|| (RandomState::new().hash_one(0) % u64::from(COUNT)) as u16);
    for _ in 0..COUNT {
        // Relaxed: all that matters is that each call gets a different port.
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = FIRST + (start + step) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port from {FIRST} on is free");
}
