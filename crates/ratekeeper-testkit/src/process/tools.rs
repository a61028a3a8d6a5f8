//! Programs that tests need.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Process;

impl Process {
    /// Starts Envoy with the configuration in that file, and waits until it listens on these ports.
    ///
    /// # Panics
    /// If it does not, or is not installed.
    #[must_use]
    pub fn envoy(config: &Path, ports: &[u16]) -> Self {
        let mut command = tool("envoy");
        command.arg("-c").arg(config);
        command.args(["--disable-hot-restart", "--concurrency", "1"]);
        command.args(["--log-level", "warning"]);
        let mut envoy = Self::spawn("envoy", command);
        ports.iter().for_each(|port| envoy.wait_for_port(*port));
        envoy
    }
}

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

/// The output of a program, which has to succeed.
///
/// # Panics
/// If it cannot be started, or fails; the message has all that it printed.
pub fn output_of(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?} fails:\n{out}{err}");
    out
}

/// Keeps all threads of a process on `processors`, such as `0` or `0-3`.
///
/// # Panics
/// If that fails: what is measured would mean nothing.
pub fn pin(id: u32, processors: &str) {
    output_of(system("taskset").args(["-apc", processors, &id.to_string()]));
}

pub(super) fn missing(program: &str) -> String {
    format!(
        "{program} is not on this machine, and this test needs it: `cargo xtask test` installs it"
    )
}
