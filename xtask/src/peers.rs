//! `cargo xtask peers`: the five tasks as governor, tower_governor and actix-governor do them, whose lines the manual counts
//! beside ours, built and run in an empty project; and the program for AWS Lambda, built with the real lambda_http.
//!
//! Not a part of the tests: together they are some two hundred crates, none of which this repository depends on.

use crate::steps::{Steps, cargo, root, target};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// The dependencies of the programs, in the versions that the manual compares.
const DEPENDENCIES: &str = r#"
actix-governor = "=0.10.0"
actix-web = { version = "4", default-features = false, features = ["macros"] }
axum = { version = "0.8", default-features = false, features = ["http1", "tokio"] }
governor = "=0.10.4"
lambda_http = "1"
nonzero_ext = "0.3"
tokio = { version = "1", features = ["macros", "net", "rt-multi-thread"] }
tower_governor = "=0.8.0"
"#;

/// The address at which the servers among the programs listen.
const ADDRESS: &str = "127.0.0.1:3000";

/// The servers, a header of a first and of a second caller, and whether the second one has its own limit.
const SERVERS: [(&str, [&str; 2], bool); 3] = [
    ("address", ["", ""], false),
    ("address_actix", ["", ""], false),
    ("user", ["x-user: ada\r\n", "x-user: bob\r\n"], true),
];

/// The other programs, and the beginning of what each prints.
const PROGRAMS: [(&str, &str); 3] = [
    ("cost", "printed 4\nprinted 4\n4 later, in "),
    ("wait", "call 0\ncall 1\ncall 2\ncall 3\n"),
    ("clock", ""),
];

/// The longest that a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(30);

/// Builds and runs them.
pub(crate) fn peers() -> Result<()> {
    let mut steps = Steps::new();
    fs::create_dir_all(target().join("peers/src/bin"))?;
    let folder = target().join("peers").canonicalize()?;
    let ports = project(&folder)?;
    let mut build = cargo(["build", "--quiet"]);
    build.current_dir(&folder);
    build.arg("--target-dir").arg(folder.join("target"));
    steps.command("build", &mut build)?;
    let program = |name: &str| folder.join("target/debug").join(name);
    for ((name, callers, is_apart), port) in SERVERS.into_iter().zip(ports) {
        steps.step(name, "five at once, then 429", || {
            serves(&program(name), port, callers, is_apart)
        })?;
    }
    for (name, expected) in PROGRAMS {
        steps.step(name, "runs to its end", || prints(&program(name), expected))?;
    }
    steps.finish("peers");
    Ok(())
}

/// Writes the project; returns the ports of its servers.
fn project(folder: &Path) -> Result<Vec<u16>> {
    let sources = folder.join("src/bin");
    // The absolute path: the project lies in another folder.
    let ours = root().join("crates/ratekeeper").canonicalize()?;
    let manifest = format!(
        "[package]\nname = \"peers\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]{DEPENDENCIES}\
         ratekeeper = {{ path = {ours:?}, features = [\"layer\"] }}\n\n[profile.dev]\ndebug = false\n"
    );
    fs::write(folder.join("Cargo.toml"), manifest)?;
    let tasks = root().join("examples/tasks");
    fs::copy(tasks.join("lambda.rs"), sources.join("lambda.rs"))?;
    let mut ports = Vec::new();
    for (name, ..) in SERVERS {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let text = peer(&tasks, name)?;
        ensure!(
            text.contains(ADDRESS),
            "{name} does not listen on {ADDRESS}"
        );
        let text = text.replace(ADDRESS, &format!("127.0.0.1:{port}"));
        fs::write(sources.join(format!("{name}.rs")), text)?;
        ports.push(port);
    }
    for (name, _) in PROGRAMS {
        fs::write(sources.join(format!("{name}.rs")), peer(&tasks, name)?)?;
    }
    Ok(ports)
}

fn peer(tasks: &Path, name: &str) -> Result<String> {
    let path = tasks.join(format!("peers/{name}.rs"));
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// A process that ends with this one's interest in it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Five requests of a caller pass, one of the next ones is denied, and another caller has its own limit or none.
fn serves(program: &Path, port: u16, callers: [&str; 2], is_apart: bool) -> Result<()> {
    let child = Command::new(program).spawn();
    let mut server = Running(child.with_context(|| program.display().to_string())?);
    let due = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        ensure!(server.0.try_wait()?.is_none(), "it has ended");
        ensure!(Instant::now() < due, "it does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    let [first, second] = callers;
    let statuses = (0..7).map(|_| get(port, first));
    let statuses = statuses.collect::<Result<Vec<_>>>()?;
    ensure!(statuses.starts_with(&[200; 5]), "{statuses:?}");
    ensure!(statuses.contains(&429), "{statuses:?}");
    let other = get(port, second)?;
    ensure!((other == 200) == is_apart, "the second caller gets {other}");
    Ok(())
}

/// Asks a server for `/`, and returns the status.
fn get(port: u16, header: &str) -> Result<u16> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    write!(
        stream,
        "GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{header}\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1);
    let status = status.and_then(|status| status.parse().ok());
    status.with_context(|| format!("no answer: {answer}"))
}

fn prints(program: &Path, expected: &str) -> Result<()> {
    let output = Command::new(program).output();
    let output = output.with_context(|| program.display().to_string())?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || !printed.starts_with(expected) {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{}: {printed}{said}", output.status);
    }
    Ok(())
}
