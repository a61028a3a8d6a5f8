//! Checks that no compiler makes: the dependencies between crates, where the environment is read,
//! and that nothing in the repository belongs to one machine.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Our crates, each with those of ours that its library or program may use. A new arrow is a change
/// of the design: add it deliberately, with a word in ARCHITECTURE.md.
const ARROWS: &[(&str, &[&str])] = &[
    ("ratekeeper-core", &[]),
    ("ratekeeper-rules", &["ratekeeper-core"]),
    ("ratekeeper-store", &["ratekeeper-core"]),
    ("ratekeeper-shed", &["ratekeeper-core"]),
    (
        "ratekeeper-limiter",
        &["ratekeeper-core", "ratekeeper-rules", "ratekeeper-store"],
    ),
    (
        "ratekeeper-trace",
        &["ratekeeper-limiter", "ratekeeper-tls"],
    ),
    ("ratekeeper-tls", &[]),
    ("ratekeeper-dashboard", &[]),
    ("ratekeeper-quota", &["ratekeeper-core", "ratekeeper-rules"]),
    (
        "ratekeeper-audit",
        &[
            "ratekeeper-quota",
            "ratekeeper-store-redis",
            "ratekeeper-tls",
        ],
    ),
    (
        "ratekeeper-store-redis",
        &["ratekeeper-core", "ratekeeper-store", "ratekeeper-tls"],
    ),
    (
        "ratekeeper-http",
        &["ratekeeper-core", "ratekeeper-limiter", "ratekeeper-rules"],
    ),
    (
        "ratekeeper-tower",
        &[
            "ratekeeper-core",
            "ratekeeper-http",
            "ratekeeper-limiter",
            "ratekeeper-rules",
            "ratekeeper-shed",
            "ratekeeper-store",
        ],
    ),
    ("ratekeeper-proto", &[]),
    (
        "ratekeeper-server",
        &[
            "ratekeeper-core",
            "ratekeeper-dashboard",
            "ratekeeper-http",
            "ratekeeper-limiter",
            "ratekeeper-proto",
            "ratekeeper-quota",
            "ratekeeper-rules",
            "ratekeeper-store",
            "ratekeeper-tls",
            "ratekeeper-trace",
        ],
    ),
    (
        "ratekeeper-replay",
        &[
            "ratekeeper-core",
            "ratekeeper-http",
            "ratekeeper-limiter",
            "ratekeeper-rules",
            "ratekeeper-store",
        ],
    ),
    (
        "ratekeeper-testkit",
        &["ratekeeper-core", "ratekeeper-store"],
    ),
    (
        "ratekeeper",
        &[
            "ratekeeper-core",
            "ratekeeper-http",
            "ratekeeper-limiter",
            "ratekeeper-rules",
            "ratekeeper-store",
            "ratekeeper-store-redis",
            "ratekeeper-tower",
        ],
    ),
    (
        "ratekeeper-gateway",
        &[
            "ratekeeper-http",
            "ratekeeper-limiter",
            "ratekeeper-server",
            "ratekeeper-tls",
            "ratekeeper-tower",
            "ratekeeper-trace",
        ],
    ),
    (
        "ratekeeper-client",
        &["ratekeeper", "ratekeeper-proto", "ratekeeper-tls"],
    ),
    (
        "ratekeeper-cli",
        &[
            "ratekeeper-audit",
            "ratekeeper-bench",
            "ratekeeper-client",
            "ratekeeper-core",
            "ratekeeper-gateway",
            "ratekeeper-http",
            "ratekeeper-limiter",
            "ratekeeper-quota",
            "ratekeeper-replay",
            "ratekeeper-rules",
            "ratekeeper-server",
            "ratekeeper-store",
            "ratekeeper-store-redis",
            "ratekeeper-tls",
            "ratekeeper-tower",
            "ratekeeper-trace",
        ],
    ),
    // Measures everything, so it may depend on everything; only the command depends on it.
    (
        "ratekeeper-bench",
        &[
            "ratekeeper",
            "ratekeeper-core",
            "ratekeeper-limiter",
            "ratekeeper-proto",
            "ratekeeper-replay",
            "ratekeeper-rules",
            "ratekeeper-server",
            "ratekeeper-store",
            "ratekeeper-testkit",
        ],
    ),
    // Test from outside, as any client would.
    ("ratekeeper-compat", &["ratekeeper-proto"]),
    (
        "ratekeeper-chaos",
        &["ratekeeper-proto", "ratekeeper-testkit"],
    ),
    ("ratekeeper-attack", &["ratekeeper-testkit"]),
    // Examples for users to copy.
    ("example-axum", &["ratekeeper"]),
    ("example-library", &["ratekeeper", "ratekeeper-client"]),
    ("example-overload", &["ratekeeper"]),
    ("example-tonic", &["ratekeeper"]),
    ("xtask", &[]),
];

/// Crates that may use the wire formats.
const KNOW_PROTOBUF: [&str; 8] = [
    "ratekeeper-proto",
    "ratekeeper-server",
    "ratekeeper-client",
    // The channel to the collector, in the exporter alone.
    "ratekeeper-trace",
    "ratekeeper-bench",
    "ratekeeper-compat",
    "ratekeeper-chaos",
    "example-tonic",
];

/// Crates that must not be in an embedder's build.
const NOT_IN_THE_LIBRARY: [&str; 10] = [
    "axum",
    "clap",
    "hyper",
    "jsonwebtoken",
    "maxminddb",
    "notify",
    "prost",
    "ring",
    "tokio",
    "tonic",
];

fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask
        .parent()
        .expect("xtask lies in the repository")
        .to_path_buf()
}

fn cargo(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(args)
        .output()
        .expect("cargo starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {args:?}: {said}");
    String::from_utf8(output.stdout).expect("cargo prints UTF-8")
}

fn packages() -> Vec<Value> {
    let text = cargo(&[
        "metadata",
        "--format-version",
        "1",
        "--no-deps",
        "--locked",
        "--offline",
    ]);
    let metadata: Value = serde_json::from_str(&text).expect("cargo metadata prints JSON");
    metadata["packages"]
        .as_array()
        .expect("there are packages")
        .clone()
}

fn name(package: &Value) -> &str {
    package["name"].as_str().expect("a package has a name")
}

/// The dependencies of a package outside its tests.
fn dependencies(package: &Value) -> BTreeSet<&str> {
    let all = package["dependencies"]
        .as_array()
        .expect("a package lists its dependencies");
    all.iter()
        .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
        .filter_map(|dependency| dependency["name"].as_str())
        .collect()
}

/// Every text file of the repository that git tracks or would add, with its contents.
fn files() -> Vec<(String, String)> {
    let list = Command::new("git")
        .current_dir(root())
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .output()
        .expect("git starts");
    assert!(list.status.success(), "git ls-files fails");
    let names = String::from_utf8(list.stdout).expect("names are UTF-8");
    let text = |name: &str| {
        Some((
            name.to_owned(),
            std::fs::read_to_string(root().join(name)).ok()?,
        ))
    };
    names.lines().filter_map(text).collect()
}

#[test]
fn arrows_between_crates_point_inward() {
    for package in packages() {
        let name = name(&package);
        let allowed = ARROWS.iter().find(|(from, _)| *from == name);
        let (_, allowed) =
            allowed.unwrap_or_else(|| panic!("{name} is new: say in ARROWS what it may use"));
        let ours = dependencies(&package)
            .into_iter()
            .filter(|to| ARROWS.iter().any(|(from, _)| from == to));
        for to in ours {
            assert!(allowed.contains(&to), "{name} must not know {to}");
        }
    }
}

#[test]
fn only_the_edges_know_protobuf() {
    for package in packages() {
        let name = name(&package);
        if KNOW_PROTOBUF.contains(&name) {
            continue;
        }
        let wire = |to: &&str| to.starts_with("prost") || to.starts_with("tonic");
        let known: Vec<&str> = dependencies(&package).into_iter().filter(wire).collect();
        assert!(known.is_empty(), "{name} must not know {known:?}");
    }
}

#[test]
fn the_library_brings_no_server() {
    // The layer waits, so it needs tokio's timers; its users have a runtime.
    for (features, besides) in [(&[][..], ""), (&["--features", "tower"], "tokio")] {
        let tree = cargo(
            &[
                &["tree", "--package", "ratekeeper", "--edges", "normal"][..],
                &["--prefix", "none", "--locked", "--offline"],
                features,
            ]
            .concat(),
        );
        for line in tree.lines() {
            let crate_name = line.split(' ').next().unwrap_or_default();
            assert!(
                crate_name == besides || !NOT_IN_THE_LIBRARY.contains(&crate_name),
                "`cargo add ratekeeper {features:?}` would build {crate_name}"
            );
        }
    }
}

#[test]
fn only_the_command_reads_the_environment() {
    let reads = ["env::var", "env::vars", "env::set_var"];
    for (file, text) in files() {
        let ours = file.starts_with("crates/") && file.contains("/src/") && file.ends_with(".rs");
        let test = file.contains("/tests/") || file.ends_with("/tests.rs");
        // Only tests use the test kit, and only the environment can tell them which server to
        // start.
        let told = ["crates/ratekeeper-cli/", "crates/ratekeeper-testkit/"];
        if !ours || test || told.iter().any(|folder| file.starts_with(folder)) {
            continue;
        }
        for read in reads {
            assert!(
                !text.contains(read),
                "{file} uses {read}: take it as an argument instead"
            );
        }
    }
}

#[test]
fn every_crate_has_a_licence_and_says_what_it_is() {
    for package in packages() {
        let name = name(&package);
        assert_eq!(
            package["license"].as_str(),
            Some("Apache-2.0"),
            "{name} has no licence field"
        );
        let description = package["description"].as_str().unwrap_or_default();
        assert!(description.contains(' '), "{name} has no description");
        for target in package["targets"]
            .as_array()
            .expect("a package has targets")
        {
            let library_or_program = ["lib", "bin"]
                .iter()
                .any(|kind| target["kind"][0].as_str() == Some(kind));
            let source = target["src_path"].as_str().expect("a target has a source");
            let text = std::fs::read_to_string(source).expect("its source can be read");
            let documented = text.starts_with("//!") || text.starts_with("#![doc");
            assert!(
                !library_or_program || documented,
                "{source} does not say what it is for"
            );
        }
    }
    let licence = std::fs::read_to_string(root().join("LICENSE")).expect("there is a LICENSE");
    assert!(licence.contains("Apache License"));
}

#[test]
fn no_file_belongs_to_one_machine() {
    // Split in two, so that this file does not match itself.
    let forbidden = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/tmp/tar", "get"),
        concat!("index.cra", "tes.io"),
        concat!("static.cra", "tes.io"),
        concat!("registry.np", "mjs.org"),
        concat!("files.python", "hosted.org"),
        concat!("proxy.go", "lang.org"),
        concat!("deb.deb", "ian.org"),
    ];
    for (file, text) in files() {
        for word in forbidden {
            assert!(
                !text.contains(word),
                "{file} names {word}, which is of one machine or one registry"
            );
        }
    }
}

#[test]
fn no_second_tls_or_c_crypto_is_locked() {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).expect("there is a Cargo.lock");
    for unwanted in ["aws-lc-sys", "openssl-sys"] {
        assert!(
            !lock.contains(&format!("name = \"{unwanted}\"")),
            "{unwanted} came in: cargo tree -i {unwanted}"
        );
    }
}
