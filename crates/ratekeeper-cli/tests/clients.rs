//! The clients for TypeScript and Python: their own tests, and their packages in an empty project. What they do with the
//! binary is in `clients_live.rs`.

#![cfg(unix)]

#[path = "shared/clients.rs"]
mod copied;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use copied::{Clients, node_folder};
use ratekeeper_testkit::process::output_of;
use tempfile::tempdir;

/// The largest that a package may be, in bytes: a little more than the larger one has.
const PACKAGE_MAX: u64 = 56_000;

#[test]
fn the_typescript_client_passes_its_own_tests() {
    let clients = Clients::shared();
    clients.build_typescript();
    clients.tsc("tsconfig.json");
    clients.node_test("test/*.test.ts");
}

#[test]
fn the_python_client_passes_its_own_tests() {
    let clients = Clients::shared();
    let sources = ["-m", "mypy", "src", "tests", "examples"];
    output_of(clients.python().args(sources));
    output_of(
        clients
            .python()
            .args(["-m", "unittest", "discover", "-s", "tests"]),
    );
}

#[test]
fn the_package_of_npm_works_in_an_empty_project() {
    const SCRIPT: &str = r#"
import { createFetch, localLimits, Ratekeeper, readRateLimitInfo } from "ratekeeper";
import { rateLimit } from "ratekeeper/express";
const info = readRateLimitInfo(200, [["ratelimit", '"a";r=3;t=2']]);
const paced = createFetch({ fetch: async () => new Response("passed") });
console.log(info.limits[0].remaining, await (await paced("http://api.test/")).text());
console.log(typeof rateLimit, typeof localLimits([]), typeof new Ratekeeper({ endpoints: "http://api.test" }).check);
"#;
    let clients = Clients::shared();
    clients.build_typescript();
    let project = tempdir().expect("a folder can be made");
    let project = project.path();
    let pack = ["pack", "--silent", "--pack-destination"];
    output_of(npm(&clients).args(pack).arg(project));
    let package = only_file(project, "tgz");
    fs::write(project.join("package.json"), r#"{ "private": true }"#).expect("it can be written");
    let install = ["install", "--offline", "--no-audit", "--no-fund"];
    output_of(
        npm(&clients)
            .current_dir(project)
            .args(install)
            .arg(package),
    );
    fs::write(project.join("use.mjs"), SCRIPT).expect("it can be written");
    let said = output_of(clients.node().current_dir(project).arg("use.mjs"));
    assert_eq!(said, "3 passed\nfunction function function\n");
}

#[test]
fn the_wheel_works_in_an_empty_project() {
    const SCRIPT: &str = "
from ratekeeper import Gate, Options, read_rate_limit_info
info = read_rate_limit_info(200, [('ratelimit', '\"a\";r=3;t=2')])
print(info.limits[0].remaining, Options(gate=Gate()).budget)
";
    let clients = Clients::shared();
    let project = tempdir().expect("a folder can be made");
    let project = project.path();
    output_of(
        clients
            .python()
            .args([
                "-m",
                "hatchling",
                "build",
                "--target",
                "wheel",
                "--directory",
            ])
            .arg(project),
    );
    let wheel = only_file(project, "whl");
    let install = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps"];
    let mut pip = Command::new("python3");
    output_of(
        pip.args(install)
            .arg("--target")
            .arg(project.join("lib"))
            .arg(wheel),
    );
    let mut python = Command::new("python3");
    python
        .current_dir(project)
        .env("PYTHONPATH", "lib")
        .args(["-c", SCRIPT]);
    assert_eq!(output_of(&mut python), "3 60.0\n");
}

/// npm, in the folder of the TypeScript client.
fn npm(clients: &Clients) -> Command {
    let mut command = Command::new("npm");
    command
        .current_dir(clients.part("typescript"))
        .env("PATH", with_node_first());
    command
}

fn with_node_first() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(node_folder()).chain(std::env::split_paths(&path));
    std::env::join_paths(paths).expect("no path has a colon")
}

/// The one file with this ending in `folder`, which must not be too large.
fn only_file(folder: &Path, ending: &str) -> PathBuf {
    let entries = fs::read_dir(folder).expect("it can be read");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let mut found = paths.filter(|path| path.extension().is_some_and(|it| it == ending));
    let file = found.next().expect("there is a package");
    assert_eq!(found.next(), None);
    let size = file.metadata().expect("it has a size").len();
    assert!(size < PACKAGE_MAX, "{} has {size} bytes", file.display());
    file
}
