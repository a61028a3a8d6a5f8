//! The five tasks of the manual, built and run as a user does: in an empty project outside of the repository, of what
//! the library's packages contain.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use ratekeeper_testkit::library_user::LibraryUser;
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

/// The dependencies of the programs.
const DEPENDENCIES: &str = "\
axum = { version = \"0.8\", default-features = false, features = [\"http1\", \"tokio\"] }
ratekeeper = { version = \"0.1\", features = [\"layer\"] }
tokio = { version = \"1\", features = [\"macros\", \"net\", \"rt-multi-thread\"] }";

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

/// An empty project with the programs.
fn project(ports: [u16; 2]) -> LibraryUser {
    let user = LibraryUser::new("tasks", DEPENDENCIES);
    for (number, (task, _)) in TASKS.iter().enumerate() {
        // Two tests must not want the same port.
        let port = ports.get(number).copied().unwrap_or_default();
        let source = program("ours", task).replace(ADDRESS, &format!("127.0.0.1:{port}"));
        user.write(&format!("src/bin/{task}.rs"), &source);
    }
    let _ = user.cargo(&["build", "--quiet"]);
    user
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

/// `cargo xtask peers` builds it with the real lambda_http.
#[test]
fn the_program_for_lambda_is_on_the_page() {
    let page = text(&root().join("docs/library.md"));
    let program = text(&root().join("examples/tasks/lambda.rs"));
    assert!(page.contains(&format!("```rust,ignore\n{program}```")));
}

#[test]
fn the_programs_run_outside_of_the_repository() {
    let ports = [free_port(), free_port()];
    let user = project(ports);

    for (number, headers) in [(0, ["", ""]), (1, ["x-user: ada\r\n", "x-user: bob\r\n"])] {
        let (task, _) = TASKS[number];
        let mut server = Process::spawn(task, Command::new(user.program(task)));
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
        let output = Command::new(user.program(task))
            .output()
            .expect("it starts");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && printed.starts_with(expected),
            "{task}: {printed}"
        );
    }
}
