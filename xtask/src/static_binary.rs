//! The binary that packages and images contain: linked statically with musl, so that one file runs on every Linux.

use crate::commit;
use crate::dashboard;
use crate::need;
use crate::pgo;
use crate::steps::{Steps, cargo, root, succeed, target};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kind of processor that binaries are built for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arch {
    Amd64,
    Arm64,
}

impl Arch {
    /// As Debian and container images name it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Arch::Amd64 => "amd64",
            Arch::Arm64 => "arm64",
        }
    }

    /// As RPM and the kernel name it.
    pub(crate) const fn machine(self) -> &'static str {
        match self {
            Arch::Amd64 => "x86_64",
            Arch::Arm64 => "aarch64",
        }
    }

    /// As Rust names it.
    pub(crate) const fn triple(self) -> &'static str {
        match self {
            Arch::Amd64 => "x86_64-unknown-linux-musl",
            Arch::Arm64 => "aarch64-unknown-linux-musl",
        }
    }

    /// That of this machine.
    pub(crate) fn here() -> Result<Arch> {
        match std::env::consts::ARCH {
            "x86_64" => Ok(Arch::Amd64),
            "aarch64" => Ok(Arch::Arm64),
            other => bail!("packages are made on x86_64 and aarch64, and this is {other}"),
        }
    }
}

/// The origin of the binary of an artefact.
pub(crate) struct Source {
    /// A binary that is there, in place of a build.
    pub(crate) binary: Option<PathBuf>,
    pub(crate) arch: Arch,
}

impl Source {
    /// Takes `--binary PATH` and `--arch NAME` out of the arguments of a verb; returns the others, too.
    pub(crate) fn of_args(args: &[String]) -> Result<(Source, Vec<String>)> {
        let mut source = Source {
            binary: None,
            arch: Arch::here()?,
        };
        let mut others = Vec::new();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--binary" => {
                    let path = value()?;
                    let found = PathBuf::from(path).canonicalize();
                    source.binary = Some(found.with_context(|| format!("there is no {path}"))?);
                }
                "--arch" => {
                    source.arch = match value()?.as_str() {
                        "amd64" => Arch::Amd64,
                        "arm64" => Arch::Arm64,
                        other => bail!("--arch {other}: write amd64 or arm64"),
                    }
                }
                _ => others.push(arg.clone()),
            }
        }
        Ok((source, others))
    }

    /// The path of the binary, which is built unless one was named.
    pub(crate) fn path(&self, steps: &mut Steps) -> Result<PathBuf> {
        match &self.binary {
            Some(path) => Ok(path.clone()),
            None => build(steps, self.arch, &target()),
        }
    }
}

/// A script of this repository in namespaces of its own.
pub(crate) fn in_namespaces(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--fork", "--mount-proc"]);
    command.arg("bash").arg(root().join(script));
    command
}

/// Builds the static binary for `arch` below the target folder `folder`, and returns its path.
pub(crate) fn build(steps: &mut Steps, arch: Arch, folder: &Path) -> Result<PathBuf> {
    build_with(steps, arch, folder, pgo::flag(arch)?)
}

/// Builds it with a flag for rustc beside the usual ones.
pub(crate) fn build_with(
    steps: &mut Steps,
    arch: Arch,
    folder: &Path,
    flag: Option<String>,
) -> Result<PathBuf> {
    let triple = arch.triple();
    let is_cross = arch != Arch::here()?;
    let tool = steps.step("target", triple, || {
        succeed(Command::new("rustup").args(["target", "add", triple]))
            .with_context(|| format!("Rust's standard library for {triple} cannot be had"))?;
        if is_cross {
            return Ok(Some(need::pip(&need::ZIGBUILD)?));
        }
        need::packages(&[need::MUSL])?;
        Ok(None)
    })?;
    if arch == Arch::Amd64 && !is_cross {
        // There the tests themselves copy by them.
        let mut tests = cargo(["test", "--locked", "--package", "ratekeeper-memcpy"]);
        tests.args(["--target", triple, "--target-dir"]).arg(folder);
        steps.command("memory functions", &mut tests)?;
    }
    dashboard::build_if_possible(steps);
    let mut command = cargo([if is_cross { "zigbuild" } else { "build" }]);
    command.args(["--release", "--locked", "--package", "ratekeeper-cli"]);
    command
        .args(["--target", triple, "--target-dir"])
        .arg(folder);
    // Nothing in the binary tells where it was built.
    let remapped = format!("--remap-path-prefix={}=/ratekeeper", root().display());
    let flags: Vec<String> = [remapped].into_iter().chain(flag).collect();
    // With spaces between them, a folder with a space in its name would be two flags.
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    // Nor when: C compilers take the time that the allocator tells from here.
    command.env("SOURCE_DATE_EPOCH", commit::time()?);
    if let Some(tool) = tool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let paths = [tool.join("bin")].into_iter();
        let paths = paths.chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(paths)?);
        command.env("CARGO_ZIGBUILD_ZIG_PATH", tool.join("ziglang/zig"));
    }
    steps.command("build", &mut command)?;
    Ok(folder.join(triple).join("release/ratekeeper"))
}
