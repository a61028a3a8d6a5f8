//! The clients for TypeScript and Python: their own tests, against the binary too, and their packages in an empty
//! project.

#![cfg(unix)]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ratekeeper_testkit::process::{output_of, tool_folder};
use ratekeeper_testkit::repository;
use tempfile::{TempDir, tempdir};

/// The largest that a package may be, in bytes: a little more than the larger one has.
const PACKAGE_MAX: u64 = 44_000;

#[test]
fn the_typescript_client_passes_its_own_tests() {
    let clients = Clients::copied();
    clients.build_typescript();
    clients.tsc("tsconfig.json");
    clients.node_test("test/*.test.ts");
}

#[test]
fn the_python_client_passes_its_own_tests() {
    let clients = Clients::copied();
    let sources = ["-m", "mypy", "src", "tests", "examples"];
    output_of(clients.python().args(sources));
    output_of(
        clients
            .python()
            .args(["-m", "unittest", "discover", "-s", "tests"]),
    );
}

/// One after the other, since both measure what passes in a time.
#[test]
fn both_clients_keep_to_the_limits_of_the_binary() {
    let clients = Clients::copied();
    clients.build_typescript();
    clients.node_test("test/live/*.test.ts");
    output_of(
        clients
            .python()
            .args(["-m", "unittest", "discover", "-s", "tests/live"]),
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
    let clients = Clients::copied();
    clients.build_typescript();
    let project = tempdir().expect("a folder can be made");
    let project = project.path();
    let pack = ["pack", "--silent", "--pack-destination"];
    output_of(clients.npm("typescript").args(pack).arg(project));
    let package = only_file(project, "tgz");
    fs::write(project.join("package.json"), r#"{ "private": true }"#).expect("it can be written");
    let install = ["install", "--offline", "--no-audit", "--no-fund"];
    output_of(
        clients
            .npm("typescript")
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
    let clients = Clients::copied();
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

/// A copy of the clients, so that nothing is built in the repository.
struct Clients {
    folder: TempDir,
}

impl Clients {
    fn copied() -> Self {
        let folder = tempdir().expect("a folder can be made");
        let from = repository().join("clients");
        let parts = ["vectors", "typescript", "python"].map(|part| from.join(part));
        output_of(Command::new("cp").arg("-R").args(parts).arg(folder.path()));
        let packages = tool_folder("clients-node").join("node_modules");
        std::os::unix::fs::symlink(packages, folder.path().join("node_modules"))
            .expect("a link can be made");
        Self { folder }
    }

    fn part(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn build_typescript(&self) {
        self.tsc("tsconfig.build.json");
    }

    fn tsc(&self, project: &str) {
        let compiler = self.part("node_modules/typescript/bin/tsc");
        output_of(self.node().arg(compiler).args(["--project", project]));
    }

    fn node_test(&self, files: &str) {
        output_of(self.node().args(["--test", "--test-reporter=spec", files]));
    }

    /// Node, in the folder of the TypeScript client.
    fn node(&self) -> Command {
        let installed = node_folder().join("node");
        let node = if installed.is_file() {
            installed
        } else {
            // Where npm has none for this system, the system's own.
            PathBuf::from("node")
        };
        let mut command = Command::new(node);
        command
            .current_dir(self.part("typescript"))
            .env("RATEKEEPER", env!("CARGO_BIN_EXE_ratekeeper"));
        command
    }

    fn npm(&self, part: &str) -> Command {
        let mut command = Command::new("npm");
        command
            .current_dir(self.part(part))
            .env("PATH", with_node_first());
        command
    }

    /// Python with its libraries, in the folder of the Python client.
    fn python(&self) -> Command {
        let libraries = tool_folder("clients-python").join("lib");
        let paths = [self.part("python/src"), libraries];
        let mut command = Command::new("python3");
        command
            .current_dir(self.part("python"))
            .env(
                "PYTHONPATH",
                std::env::join_paths(paths).expect("no path has a colon"),
            )
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("RATEKEEPER", env!("CARGO_BIN_EXE_ratekeeper"));
        command
    }
}

/// The folder of the Node that npm installed.
fn node_folder() -> PathBuf {
    let machine = if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "x64"
    };
    tool_folder("clients-node").join(format!("node_modules/node-linux-{machine}/bin"))
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
