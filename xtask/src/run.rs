//! `cargo xtask build`, the release binary, and `cargo xtask run`, a binary that is built sooner.

use crate::dashboard;
use crate::steps::{Steps, cargo, root, target};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// A set of cargo's build settings, by its name in the workspace's `Cargo.toml`.
#[derive(Clone, Copy)]
enum Profile {
    /// Optimised in full: what users install and what benchmarks measure.
    Release,
    /// Not optimised, and built in about half the time.
    Quick,
}

impl Profile {
    /// The profile's name, which is also the name of its folder in `target/`.
    fn name(self) -> &'static str {
        match self {
            Profile::Release => "release",
            Profile::Quick => "quick",
        }
    }

    /// The flags that choose features. A first look needs neither traces nor terminal graphics, which take as long to
    /// build as many other crates.
    fn features(self) -> &'static [&'static str] {
        match self {
            Profile::Release => &[],
            Profile::Quick => &["--no-default-features"],
        }
    }
}

/// Builds the release binary and prints its path.
pub(crate) fn build() -> Result<()> {
    let binary = release_binary()?;
    eprintln!("the binary is {}", binary.display());
    Ok(())
}

/// Builds the binary without optimisation and runs it at the root of the repository; without arguments it serves
/// `config/` there.
pub(crate) fn run(args: &[String]) -> Result<()> {
    eprintln!(
        "building ratekeeper without optimisation, which takes two to three minutes the first time; \
         `cargo xtask build` makes the fast one"
    );
    let binary = binary(Profile::Quick)?;
    let root = root();
    // The shorter name is what the binary prints in the commands to try.
    let binary = binary
        .strip_prefix(&root)
        .map_or(binary.clone(), |path| PathBuf::from(".").join(path));
    eprintln!();
    let mut command = Command::new(&binary);
    command.current_dir(&root).args(args);
    Err(become_it(&mut command)).with_context(|| format!("cannot start {}", binary.display()))
}

/// Replaces this process by the command, so that Ctrl-C and the parent process reach it. Returns
/// only the error if that fails.
#[cfg(unix)]
fn become_it(command: &mut Command) -> std::io::Error {
    std::os::unix::process::CommandExt::exec(command)
}

#[cfg(not(unix))]
fn become_it(command: &mut Command) -> std::io::Error {
    match command.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => error,
    }
}

/// Builds the release binary and returns its path.
pub(crate) fn release_binary() -> Result<PathBuf> {
    binary(Profile::Release)
}

/// The binary that `args` name with `flag`, or the release binary without arguments.
///
/// # Errors
/// Other arguments; the message says how to write `verb`.
pub(crate) fn binary_of_args(args: &[String], verb: &str, flag: &str) -> Result<PathBuf> {
    match args {
        [] => release_binary(),
        [given, path] if given == flag => Ok(PathBuf::from(path).canonicalize()?),
        _ => bail!("write `{verb}`, or `{verb} {flag} PATH`"),
    }
}

/// Builds the binary in `profile` and returns its path.
fn binary(profile: Profile) -> Result<PathBuf> {
    let mut steps = Steps::new();
    dashboard::build_if_possible(&mut steps);
    let mut build = cargo(["build", "--locked", "--package", "ratekeeper-cli"]);
    build.args(["--profile", profile.name()]);
    steps.command("build", build.args(profile.features()))?;
    let name = format!("ratekeeper{}", std::env::consts::EXE_SUFFIX);
    Ok(target().join(profile.name()).join(name))
}
