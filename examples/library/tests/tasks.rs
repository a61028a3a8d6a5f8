//! The five tasks of the manual, built and run as a user does: in an empty project outside of the repository, of what
//! the library's packages contain.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use ratekeeper_testkit::process::{Process, free_port};

/// The programs, with those of the peers that are no shorter.
const TASKS: [(&str, &[&str]); 5] = [
    ("address", &["address", "address_actix"]),
    ("user", &["user"]),
    ("cost", &["cost"]),
    ("wait", &["wait"]),
    ("clock", &["clock"]),
];

/// The address at which the servers among the programs listen.
const ADDRESS: &str = "127.0.0.1:3000";

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    here.expect("the example lies in the repository").to_owned()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn program(whose: &str, task: &str) -> String {
    text(&root().join(format!("examples/tasks/{whose}/{task}.rs")))
}

fn cargo(folder: &Path, args: &[&str]) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    let output = cargo.current_dir(folder).args(args).output();
    let output = output.expect("cargo starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {args:?}: {said}");
    String::from_utf8(output.stdout).expect("cargo prints UTF-8")
}

/// The crates of the repository that the library is made of.
fn crates() -> BTreeSet<String> {
    let tree = cargo(
        &root(),
        &[
            "tree",
            "--package",
            "ratekeeper",
            "--all-features",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
            "--offline",
        ],
    );
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    let ours = names.filter(|name| name.starts_with("ratekeeper"));
    ours.map(str::to_owned).collect()
}

/// Copies the files that packages contain, with a workspace around them.
fn unpack(to: &Path) {
    let manifest = text(&root().join("Cargo.toml"));
    let (_, shared) = manifest.split_once("\n\n").expect("members come first");
    let mut members = String::new();
    for name in crates() {
        let from = root().join("crates").join(&name);
        members.push_str(&format!("\"crates/{name}\", "));
        let list = cargo(
            &root(),
            &[
                "package",
                "--list",
                "--allow-dirty",
                "--offline",
                "--package",
                &name,
            ],
        );
        for file in list.lines().filter(|file| *file != "Cargo.toml.orig") {
            let (from, to) = (from.join(file), to.join("crates").join(&name).join(file));
            if from.is_file() {
                fs::create_dir_all(to.parent().expect("a folder")).expect("a folder can be made");
                fs::copy(&from, &to).expect("a file can be copied");
            }
        }
    }
    let workspace = format!("[workspace]\nresolver = \"3\"\nmembers = [{members}]\n\n{shared}");
    fs::write(to.join("Cargo.toml"), workspace).expect("a file can be written");
}

/// An empty project with the programs, next to the packages.
fn project(folder: &Path) -> PathBuf {
    let packages = folder.join("packages");
    fs::create_dir_all(&packages).expect("a folder can be made");
    unpack(&packages);
    let project = folder.join("project");
    let programs = project.join("src/bin");
    fs::create_dir_all(&programs).expect("a folder can be made");
    let manifest = "[package]
name = \"project\"
version = \"0.0.0\"
edition = \"2024\"

[dependencies]
axum = { version = \"0.8\", default-features = false, features = [\"http1\", \"tokio\"] }
ratekeeper = { path = \"../packages/crates/ratekeeper\", features = [\"layer\"] }
tokio = { version = \"1\", features = [\"macros\", \"net\", \"rt-multi-thread\"] }

[profile.dev]
debug = false

[workspace]
";
    fs::write(project.join("Cargo.toml"), manifest).expect("a file can be written");
    fs::copy(root().join("Cargo.lock"), project.join("Cargo.lock")).expect("a file can be copied");
    project
}

/// Asks a server for `/`, and returns the status.
fn get(port: u16, header: &str) -> u16 {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
    let request = format!("GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    status.unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn the_programs_of_the_manual_are_these_and_no_longer_than_those_of_peers() {
    let page = text(&root().join("docs/library.md"));
    for (task, peers) in TASKS {
        let ours = program("ours", task);
        assert!(
            page.contains(&format!("```rust,no_run\n{ours}```")),
            "{task} differs from the page"
        );
        let lines = ours.lines().count();
        assert!(
            page.contains(&format!("| {lines} |")),
            "{task} has {lines} lines"
        );
        for peer in peers {
            let theirs = program("peers", peer).lines().count();
            assert!(
                lines <= theirs,
                "{task}: {lines} lines, the peer has {theirs}"
            );
            assert!(
                page.contains(&format!(" {theirs} |")) || page.contains(&format!(" {theirs};")),
                "{peer}: {theirs}"
            );
        }
    }
}

#[test]
fn the_programs_run_outside_of_the_repository() {
    // The same folder for each run of this repository, so that cargo knows what it has built.
    let mut hasher = DefaultHasher::new();
    root().hash(&mut hasher);
    let name = format!("ratekeeper-tasks-{:x}", hasher.finish());
    let project = project(&std::env::temp_dir().join(name));
    let ports = [free_port(), free_port()];
    for (number, (task, _)) in TASKS.iter().enumerate() {
        let source = program("ours", task);
        // Two tests must not want the same port.
        let port = ports.get(number).copied().unwrap_or_default();
        let source = source.replace(ADDRESS, &format!("127.0.0.1:{port}"));
        fs::write(project.join(format!("src/bin/{task}.rs")), source)
            .expect("a file can be written");
    }
    // What was built is kept for the next run.
    let target = root().join("target/tasks");
    let target_dir = target.to_str().expect("a folder of text");
    cargo(
        &project,
        &["build", "--quiet", "--offline", "--target-dir", target_dir],
    );
    let built = |task: &str| target.join("debug").join(task);

    for (number, headers) in [(0, ["", ""]), (1, ["x-user: ada\r\n", "x-user: bob\r\n"])] {
        let (task, _) = TASKS[number];
        let mut server = Process::spawn(task, Command::new(built(task)));
        server.wait_for_port(ports[number]);
        let statuses: Vec<u16> = (0..7).map(|_| get(ports[number], headers[0])).collect();
        assert_eq!(statuses[..5], [200; 5], "{task}: a burst of five");
        assert!(statuses.contains(&429), "{task}: {statuses:?}");
        let other = get(ports[number], headers[1]);
        // All requests of this test come from one address.
        assert_eq!(other == 200, number == 1, "{task}: {other}");
    }
    for (task, expected) in [
        ("cost", "printed 4, 6 left\nprinted 4, 2 left\n4 later, in "),
        ("wait", "call 0\ncall 1\ncall 2\ncall 3\n"),
        ("clock", ""),
    ] {
        let output = Command::new(built(task)).output().expect("it starts");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && printed.starts_with(expected),
            "{task}: {printed}"
        );
    }
}
