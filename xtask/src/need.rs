//! What a verb needs beyond Rust: looked for, installed where that is allowed, named where it is not.

use crate::steps::{cargo, succeed};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// A program that comes from the system's packages.
pub(crate) struct Package {
    /// What is looked for on the PATH.
    pub(crate) program: &'static str,
    /// The Debian and Ubuntu package that brings it.
    pub(crate) package: &'static str,
}

/// A program that comes from `cargo install`.
pub(crate) struct CargoTool {
    /// The crate, which is also the program.
    pub(crate) name: &'static str,
    /// The version this repository is checked with.
    pub(crate) version: &'static str,
}

/// What the licences, bans and sources of dependencies are checked with.
pub(crate) const CARGO_DENY: CargoTool = CargoTool {
    name: "cargo-deny",
    version: "0.20.2",
};
/// What runs the fuzz targets.
pub(crate) const CARGO_FUZZ: CargoTool = CargoTool {
    name: "cargo-fuzz",
    version: "0.13.2",
};
/// What libFuzzer is compiled with.
pub(crate) const CXX: Package = Package {
    program: "c++",
    package: "g++",
};
/// What the three commands of the first screen are pasted with.
pub(crate) const CURL: Package = Package {
    program: "curl",
    package: "curl",
};

/// Sees to it that all of `wanted` are there.
///
/// # Errors
/// Names the missing packages where they may not be installed from here.
pub(crate) fn packages(wanted: &[Package]) -> Result<()> {
    let missing: Vec<&str> = wanted
        .iter()
        .filter(|package| !on_path(package.program))
        .map(|package| package.package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !Path::new("/etc/debian_version").exists() || !is_root() {
        bail!(
            "these packages are missing: {list}. Install them and run this again; on Debian or Ubuntu: \
             sudo apt-get install {list}"
        );
    }
    eprintln!("installing the missing packages as root on Debian or Ubuntu: {list}");
    succeed(Command::new("apt-get").args(["update", "-qq"]))
        .context("the package lists cannot be updated")?;
    succeed(
        Command::new("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(&missing),
    )
    .with_context(|| format!("apt-get install {list} failed"))
}

/// Sees to it that a cargo tool is there, in any version; the pinned one is installed where there is none.
pub(crate) fn cargo_tool(tool: &CargoTool) -> Result<()> {
    let CargoTool { name, version } = tool;
    if on_path(name) {
        return Ok(());
    }
    eprintln!("installing {name} {version} with cargo install, once; this takes some minutes");
    succeed(&mut cargo([
        "install",
        "--locked",
        &format!("{name}@{version}"),
    ]))
    .with_context(|| format!("cargo install --locked {name}@{version} failed"))
}

fn on_path(program: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else {
        return false;
    };
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
