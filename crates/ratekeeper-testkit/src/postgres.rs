//! Real PostgreSQL servers for tests, each in its own folder and on a free port.
//!
//! PostgreSQL does not run as root: as root, a test runs it as the user `nobody`.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;
use tempfile::TempDir;

use crate::process::{Process, free_port, output_of};

/// The id of the user and the group `nobody` on Debian.
const NOBODY: u32 = 65_534;

/// A running server; ended on drop.
#[derive(Debug)]
pub struct Server {
    port: u16,
    folder: TempDir,
    process: Process,
}

impl Server {
    /// Makes a new cluster and starts its server.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        if geteuid().is_root() {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).expect("root may give a folder away");
        }
        let mut initdb = program("initdb", folder.path());
        initdb.arg("--pgdata").arg(folder.path().join("data"));
        initdb.args(["--username", "postgres", "--auth", "trust", "--no-sync"]);
        output_of(initdb.args(["--encoding", "UTF8", "--locale", "C"]));
        let port = free_port();
        Self {
            port,
            process: launch(port, &folder),
            folder,
        }
    }

    /// The port of the loopback interface on which it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The address of the database `name`: `postgres` exists, others are [made](Self::create).
    #[must_use]
    pub fn url(&self, name: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{name}", self.port)
    }

    /// Makes a database and returns its address.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn create(&self, name: &str) -> String {
        let mut createdb = program("createdb", self.folder.path());
        createdb.args(["--host", "127.0.0.1", "--username", "postgres"]);
        output_of(createdb.args(["--port", &self.port.to_string(), name]));
        self.url(name)
    }

    /// Runs one statement in the database `name` and returns what psql prints.
    ///
    /// # Panics
    /// If it fails.
    #[must_use]
    pub fn run(&self, name: &str, statement: &str) -> String {
        let mut psql = program("psql", self.folder.path());
        psql.args(["--host", "127.0.0.1", "--username", "postgres"]);
        psql.args(["--port", &self.port.to_string(), "--dbname", name]);
        psql.args(["--no-psqlrc", "--tuples-only", "--no-align"]);
        let printed = output_of(psql.args(["--command", statement]));
        printed.trim().to_owned()
    }

    /// Kills the server at once, with all of its connections; what was committed is kept.
    pub fn kill(&mut self) {
        self.process.quit();
    }

    /// Starts it again on the same port after it was killed.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.process.quit();
        self.process = launch(self.port, &self.folder);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ended by itself it leaves no shared memory behind.
        self.process.quit();
    }
}

fn launch(port: u16, folder: &TempDir) -> Process {
    let mut command = program("postgres", folder.path());
    command
        .arg("-D")
        .arg(folder.path().join("data"))
        .arg("-k")
        .arg(folder.path())
        .args(["-p", &port.to_string()])
        .args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]);
    let mut process = Process::spawn(&format!("PostgreSQL on port {port}"), command);
    process.wait_for_output("database system is ready to accept connections");
    process
}

/// A program of the newest PostgreSQL in the system's packages, as a user that it runs as.
fn program(name: &str, folder: &Path) -> Command {
    let mut command = Command::new(newest(name));
    command.current_dir(folder).env_remove("PGDATA");
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn newest(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql");
    let versions = versions.into_iter().flatten().flatten();
    let found = versions.filter_map(|entry| {
        let version: u32 = entry.file_name().to_str()?.parse().ok()?;
        let program = entry.path().join("bin").join(name);
        program.is_file().then_some((version, program))
    });
    let newest = found.max_by_key(|(version, _)| *version);
    newest.map_or_else(|| PathBuf::from(name), |(_, program)| program)
}
