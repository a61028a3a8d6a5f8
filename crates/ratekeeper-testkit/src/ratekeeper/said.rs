//! Runs of a program to its end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::Args;
use crate::assert_contains;

/// Writes a file and returns its path.
///
/// # Panics
/// If it cannot be written.
pub fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).expect("a folder can be made");
    }
    fs::write(&path, text).expect("a file can be written");
    path
}

/// A program in `folder`, with nothing but PATH from this process's environment.
#[must_use]
pub fn command(program: impl AsRef<Path>, folder: &Path, args: &(impl Args + ?Sized)) -> Command {
    let mut command = Command::new(program.as_ref());
    command
        .current_dir(folder)
        .args(args.words())
        .env_clear()
        .stdin(Stdio::null());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

/// The exit code and the output of a run to its end.
#[derive(Clone, Debug)]
pub struct Said {
    /// [`None`] if a signal ended it.
    pub code: Option<i32>,
    /// Its output.
    pub out: String,
    /// Its complaints.
    pub err: String,
}

impl Said {
    /// Requires that it ended well, and returns its output.
    ///
    /// # Panics
    /// If it did not.
    #[track_caller]
    pub fn succeeded(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self.out
    }

    /// Requires that it failed, and complained of `part`; returns its complaints.
    ///
    /// # Panics
    /// If it did not.
    #[track_caller]
    pub fn refused(self, part: &str) -> String {
        assert_eq!(self.code, Some(1), "{}{}", self.out, self.err);
        assert_contains(&self.err, part);
        self.err
    }
}

impl From<Output> for Said {
    /// # Panics
    /// If the output is not UTF-8.
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).expect("it prints UTF-8"),
            err: String::from_utf8(output.stderr).expect("it complains in UTF-8"),
        }
    }
}

/// Runs a command to its end.
///
/// # Panics
/// If it does not start, or prints anything but UTF-8.
#[must_use]
pub fn run(command: &mut Command) -> Said {
    command.output().expect("the program starts").into()
}
