//! `deploy/ratekeeper.service`, as systemd runs its commands.

use std::path::{Path, PathBuf};
use std::process::Command;

use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::http1::ask;
use ratekeeper_testkit::process::{Process, free_port};
use ratekeeper_testkit::ratekeeper::{Said, command, run, write};
use ratekeeper_testkit::repository;
use tempfile::TempDir;

use crate::container::PROGRAM;

/// An installed package, below a folder of the test.
struct Installed {
    root: TempDir,
    unit: String,
    port: u16,
}

impl Installed {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder can be made");
        for name in ["ratekeeper.yaml", "rules/api.yaml", "rules/tenants.yaml"] {
            let text = file(Path::new("config").join(name));
            write(root.path(), &format!("etc/ratekeeper/{name}"), &text);
        }
        std::fs::create_dir_all(root.path().join("var/lib/ratekeeper")).expect("a folder");
        Self {
            root,
            unit: file("deploy/ratekeeper.service"),
            port: free_port(),
        }
    }

    fn rules(&self) -> PathBuf {
        self.root.path().join("etc/ratekeeper/rules")
    }

    /// The commands of that key, in order.
    fn commands(&self, key: &str) -> Vec<Command> {
        let lines = self
            .unit
            .lines()
            .filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let ours = lines.filter_map(|line| line.strip_prefix("/usr/bin/ratekeeper "));
        ours.map(|args| self.command(args)).collect()
    }

    /// The program in the unit's folder. Only the places of files and ports are other ones.
    fn command(&self, args: &str) -> Command {
        let root = self.root.path().display();
        let here = |arg: &str| match arg.starts_with('/') {
            true => format!("{root}{arg}"),
            false => arg.to_owned(),
        };
        let args: Vec<String> = args.split_whitespace().map(here).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let folder = self.root.path().join("etc/ratekeeper");
        let mut command = command(PROGRAM, &folder, &args[..]);
        command.env("RATEKEEPER_RULES", self.rules());
        command.env("RATEKEEPER_HTTP", format!("127.0.0.1:{}", self.port));
        for listener in ["GRPC", "ADMIN"] {
            let address = format!("127.0.0.1:{}", free_port());
            command.env(format!("RATEKEEPER_{listener}"), address);
        }
        command
    }

    /// Starts the service; returns it and what `/readyz` says once it is ready.
    fn start(&self) -> (Process, String) {
        for mut before in self.commands("ExecStartPre") {
            run(&mut before).succeeded();
        }
        let service = self
            .commands("ExecStart")
            .pop()
            .expect("it starts something");
        let mut process = Process::spawn("the service", service);
        process.wait_for_port(self.port);
        let mut said = String::new();
        process.wait_until("it is ready", || {
            let answer = ask(self.port, "GET", "/readyz", "", "");
            let ready = answer.filter(|answer| answer.status == 200);
            said = ready.map_or_else(String::new, |answer| answer.body);
            !said.is_empty()
        });
        (process, said)
    }

    /// Runs the check before a reload.
    fn check(&self) -> Said {
        let checks = self.commands("ExecReload");
        run(&mut checks
            .into_iter()
            .next()
            .expect("a reload checks the rules"))
    }
}

#[test]
fn broken_rules_stop_a_reload_and_no_start() {
    let installed = Installed::new();
    let (mut service, _) = installed.start();
    installed.check().succeeded();
    write(
        &installed.rules(),
        "broken.yaml",
        "descriptors: [{ ky: user }]\n",
    );
    installed.check().refused("broken.yaml:1");
    // As after a crash, at a boot, or by an upgrade of the package.
    service.kill();
    let (mut service, said) = installed.start();
    assert_contains(&said, "the last good rules");
    assert!(service.terminate().success());
}

/// Without rules that were once good, there is nothing to serve.
#[test]
fn a_first_start_with_broken_rules_is_refused() {
    let installed = Installed::new();
    write(
        &installed.rules(),
        "broken.yaml",
        "descriptors: [{ ky: user }]\n",
    );
    let service = installed.commands("ExecStart").pop();
    run(&mut service.expect("it starts something")).refused("broken.yaml:1");
}

/// A file of the repository.
fn file(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(repository().join(path)).expect("it is there")
}

/// The folder where other programs reach what a service writes: without it, no Unix socket of ours can be.
#[test]
fn the_unit_has_a_folder_for_sockets_that_others_reach() {
    let unit = file("deploy/ratekeeper.service");
    for line in [
        "ProtectSystem=strict",
        "PrivateTmp=yes",
        "RuntimeDirectory=ratekeeper",
        "RuntimeDirectoryMode=0755",
    ] {
        assert!(unit.lines().any(|found| found == line), "{line}");
    }
}
