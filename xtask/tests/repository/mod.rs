//! The repository that the tests read.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    let parent = xtask.parent();
    parent.expect("xtask lies in the repository").to_owned()
}

/// The text of a file.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The text files that git tracks or would add, by their path; of these `patterns`, whose stars go over folders.
pub(crate) fn texts(patterns: &[&str]) -> BTreeMap<String, String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let names = said(git.args(patterns));
    let text = |name: &str| {
        // A file that is deleted and not yet committed is listed, too.
        let text = std::fs::read_to_string(root().join(name)).ok()?;
        Some((name.to_owned(), text))
    };
    names.lines().filter_map(text).collect()
}

/// Returns true if a source is of tests alone, by its path.
pub(crate) fn is_of_tests(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// The packages of the workspace, as cargo tells them.
pub(crate) fn packages() -> Vec<Value> {
    let text = cargo(&["metadata", "--format-version=1", "--no-deps"]);
    let metadata: Value = serde_json::from_str(&text).expect("cargo metadata prints JSON");
    let packages = metadata["packages"].as_array();
    packages.expect("there are packages").clone()
}

/// The output of cargo, which asks no registry.
pub(crate) fn cargo(args: &[&str]) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    said(cargo.args(args).args(["--locked", "--offline"]))
}

fn said(command: &mut Command) -> String {
    let output = command.current_dir(root()).output();
    let output = output.expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8(output.stdout).expect("it prints UTF-8")
}
