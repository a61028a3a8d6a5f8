//! The manifests for Kubernetes are what its API takes, by the schemas that it publishes.

mod repository;

use std::path::PathBuf;
use std::process::{Command, Output};

use repository::root;

/// The oldest and the newest version of Kubernetes that they are held to.
const VERSIONS: [&str; 2] = ["1.29", "1.37"];

const MANIFESTS: [&str; 4] = [
    "deploy/kubernetes/ratekeeper.yaml",
    "deploy/kubernetes/ratekeeper-scaled.yaml",
    "deploy/kubernetes/ratekeeper-single.yaml",
    "examples/sidecar/deployment.yaml",
];

#[test]
fn kubernetes_takes_the_manifests() {
    for version in VERSIONS {
        let output = validate(version, &MANIFESTS.map(|file| root().join(file)));
        let said = String::from_utf8_lossy(&output.stdout);
        let passed = said
            .lines()
            .filter(|line| line.contains(" passed "))
            .count();
        assert!(output.status.success(), "Kubernetes {version}: {said}");
        assert!(passed >= 20, "{passed} resources passed: {said}");
    }
}

#[test]
fn a_misspelt_key_is_refused() {
    let good = std::fs::read_to_string(root().join(MANIFESTS[0])).expect("a manifest");
    let folder = tempfile::tempdir().expect("a folder");
    let bad = folder.path().join("bad.yaml");
    let text = good.replace("readinessProbe:", "readynessProbe:");
    assert_ne!(good, text);
    std::fs::write(&bad, text).expect("a file");
    let output = validate(VERSIONS[1], &[bad]);
    assert!(!output.status.success(), "{output:?}");
}

fn validate(version: &str, files: &[PathBuf]) -> Output {
    let test = std::env::current_exe().expect("a test knows where it lies");
    let found = test
        .ancestors()
        .map(|folder| folder.join("tools/kubernetes-validate/lib"))
        .find(|path| path.is_dir());
    let lib = found.expect("kubernetes-validate, which `cargo xtask test` installs");
    let mut command = Command::new("python3");
    command.arg(lib.join("bin/kubernetes-validate"));
    command
        .env("PYTHONPATH", lib)
        .env("PYTHONWARNINGS", "ignore");
    command.args(["--strict", "--kubernetes-version", version]);
    let output = command.args(files).output();
    output.expect("python3 starts")
}
