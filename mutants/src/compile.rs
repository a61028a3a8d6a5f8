//! Cargo, and what it tells of a build.

use crate::program::Program;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The end of a build.
pub(crate) struct Build {
    pub(crate) succeeded: bool,
    pub(crate) errors: Vec<Diagnostic>,
    pub(crate) programs: Vec<Program>,
}

/// An error of the compiler.
#[derive(Debug, Deserialize)]
pub(crate) struct Diagnostic {
    level: String,
    pub(crate) message: String,
    pub(crate) code: Option<Code>,
    pub(crate) spans: Vec<Place>,
    pub(crate) rendered: Option<String>,
}

/// The number of an error, such as E0308.
#[derive(Debug, Deserialize)]
pub(crate) struct Code {
    pub(crate) code: String,
}

/// A place that an error is about.
#[derive(Debug, Deserialize)]
pub(crate) struct Place {
    /// From the root of the workspace.
    pub(crate) file_name: String,
    pub(crate) byte_start: usize,
    pub(crate) byte_end: usize,
    pub(crate) is_primary: bool,
}

/// A line of cargo's output.
#[derive(Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
enum Line {
    CompilerMessage {
        message: Diagnostic,
    },
    CompilerArtifact {
        executable: Option<PathBuf>,
        manifest_path: PathBuf,
        profile: Profile,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// A cargo command in `folder`, without the variables that `cargo run` has set for this program.
pub(crate) fn cargo(folder: &Path) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command.current_dir(folder);
    command
}

/// Builds the test programs of a package. Its build's own output is passed through.
pub(crate) fn tests(tree: &Path, package: &str, target: &Path) -> Result<Build> {
    let mut command = cargo(tree);
    command.args(["test", "--package", package, "--lib", "--tests", "--no-run"]);
    command.args(["--message-format", "json"]);
    command.env("CARGO_TARGET_DIR", target);
    command.env("CARGO_PROFILE_DEV_DEBUG", "0");
    command.env("CARGO_INCREMENTAL", "1");
    // Random histories take long without it.
    command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
    // Code behind switches is full of what lints forbid.
    command.env("RUSTFLAGS", "--cap-lints=allow");
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.context("cannot start cargo")?;
    let text = String::from_utf8(output.stdout).context("cargo's output is not UTF-8")?;
    let mut build = Build {
        succeeded: output.status.success(),
        errors: Vec::new(),
        programs: Vec::new(),
    };
    for line in text.lines().filter(|line| line.starts_with('{')) {
        build.read(line)?;
    }
    Ok(build)
}

impl Build {
    fn read(&mut self, line: &str) -> Result<()> {
        match serde_json::from_str(line).context("cargo's output has another form")? {
            Line::CompilerMessage { message } if message.is_error() => self.errors.push(message),
            Line::CompilerArtifact {
                executable: Some(path),
                manifest_path,
                profile: Profile { test: true },
            } => {
                let folder = manifest_path
                    .parent()
                    .context("a manifest is in a folder")?;
                let folder = folder.to_path_buf();
                self.programs.push(Program { path, folder });
            }
            _ => {}
        }
        Ok(())
    }
}

impl Diagnostic {
    /// Returns false for warnings, and for the error that only counts the others.
    fn is_error(&self) -> bool {
        self.level == "error" && !self.message.starts_with("aborting due to")
    }

    pub(crate) fn has_code(&self, codes: &[&str]) -> bool {
        let code = self.code.as_ref();
        code.is_some_and(|it| codes.contains(&it.code.as_str()))
    }
}
