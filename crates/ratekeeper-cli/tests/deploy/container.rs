//! A container, without a runtime for it: its folders lie in one of the test's, and its ports are free ones.

use std::fs;
use std::net::TcpStream;

use ratekeeper_testkit::http1::ask;
use ratekeeper_testkit::process::{Process, free_port};
use ratekeeper_testkit::ratekeeper::{command, run, write};
use ratekeeper_testkit::repository;
use serde_json::Value;
use tempfile::TempDir;

use crate::yaml::text;

/// The binary.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_ratekeeper");

/// The settings of listeners.
const LISTENERS: [&str; 4] = ["http", "grpc", "admin", "metrics"];

/// The arguments, variables and files of a container.
pub(crate) struct Container {
    pub(crate) args: Vec<String>,
    pub(crate) variables: Vec<(String, String)>,
    /// The root of its files.
    root: TempDir,
}

impl Container {
    /// One of the image, whose settings and rules it has.
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder can be made");
        for file in ["ratekeeper.yaml", "rules/api.yaml", "rules/tenants.yaml"] {
            let text = fs::read_to_string(repository().join("config").join(file));
            // The binary finds them there as in /etc/ratekeeper.
            write(
                root.path(),
                &format!("config/{file}"),
                &text.expect("it is there"),
            );
        }
        Self {
            args: Vec::new(),
            variables: Vec::new(),
            root,
        }
    }

    /// Mounts a file.
    pub(crate) fn put(&self, path: &str, text: &str) {
        write(self.root.path(), path.trim_start_matches('/'), text);
    }

    /// Mounts an empty folder, and has the arguments and variables name it where it is.
    pub(crate) fn mount(&mut self, path: &str) {
        let place = self.root.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(&place).expect("a folder can be made");
        let place = place.display().to_string();
        let values = self.variables.iter_mut().map(|(_, value)| value);
        for value in self.args.iter_mut().chain(values) {
            if value.starts_with(path) {
                value.replace_range(..path.len(), &place);
            }
        }
    }

    /// The addresses of its listeners, by their names.
    pub(crate) fn listeners(&self) -> Vec<(&'static str, String)> {
        let args = self.args.iter().filter(|arg| *arg != "serve");
        let words = ["config", "show", "--json"]
            .into_iter()
            .chain(args.map(String::as_str));
        let words: Vec<&str> = words.collect();
        let mut show = command(PROGRAM, self.root.path(), &words[..]);
        show.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let shown: Value = serde_json::from_str(&run(&mut show).succeeded()).expect("JSON");
        let address = |name: &'static str| Some((name, shown[name]["value"].as_str()?.to_owned()));
        LISTENERS.into_iter().filter_map(address).collect()
    }

    /// Starts it with free ports in place of its own, and waits until it is ready.
    pub(crate) fn start(self) -> Running {
        self.start_asked_at("http")
    }

    /// As [`Self::start`]; the listener of that name is asked.
    pub(crate) fn start_asked_at(mut self, asked: &str) -> Running {
        let mut ports = Vec::new();
        for (name, address) in self.listeners() {
            let host = address.rsplit_once(':').map_or("", |(host, _)| host);
            let port = free_port();
            ports.push((name, port));
            self.set(name, &format!("{host}:{port}"));
        }
        let asked_port = port_of(&ports, asked);
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let mut program = command(PROGRAM, self.root.path(), &args[..]);
        program.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let mut process = Process::spawn("the container", program);
        process.wait_for_port(asked_port);
        process.wait_until("it is ready", || {
            ask(asked_port, "GET", "/readyz", "", "").is_some_and(|answer| answer.status == 200)
        });
        Running {
            process,
            ports,
            root: self.root,
        }
    }

    /// Gives a setting another value where it has one; else by its variable.
    fn set(&mut self, name: &str, value: &str) {
        let (flag, variable) = (
            format!("--{name}"),
            format!("RATEKEEPER_{}", name.to_uppercase()),
        );
        let at = self.args.iter().position(|arg| *arg == flag);
        match at.and_then(|at| self.args.get_mut(at + 1)) {
            Some(given) => value.clone_into(given),
            None => {
                self.variables.retain(|(name, _)| *name != variable);
                self.variables.push((variable, value.to_owned()));
            }
        }
    }
}

/// A container that is ready.
pub(crate) struct Running {
    process: Process,
    ports: Vec<(&'static str, u16)>,
    root: TempDir,
}

/// The port of the listener of that name.
fn port_of(ports: &[(&str, u16)], name: &str) -> u16 {
    let found = ports.iter().find(|(of, _)| *of == name);
    found.unwrap_or_else(|| panic!("no listener {name}")).1
}

impl Running {
    /// Runs a command of the image in it, which names the admin listener by its port, and has to succeed.
    pub(crate) fn exec(&self, words: &[String]) {
        let [program, args @ ..] = words else {
            panic!("there is no command")
        };
        assert_eq!(program, "/bin/ratekeeper");
        let admin = port_of(&self.ports, "admin");
        let args: Vec<String> = args
            .iter()
            .map(|arg| arg.replace(":6070", &format!(":{admin}")))
            .collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        run(&mut command(PROGRAM, self.root.path(), &args[..])).succeeded();
    }

    /// Takes all the connections that a listener of operators has, as long as they are held.
    pub(crate) fn fill(&self, name: &str) -> Vec<TcpStream> {
        let port = port_of(&self.ports, name);
        let connect = |_| TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        (0..32).map(connect).collect()
    }

    /// Ends it as a runtime does.
    pub(crate) fn stop(mut self) {
        let status = self.process.terminate();
        assert!(status.success(), "{status}");
    }
}

/// The arguments of a container, as its file lists them.
pub(crate) fn words(list: &[Value]) -> Vec<String> {
    list.iter().map(|word| text(word).to_owned()).collect()
}

/// Returns true if an address is reached from other hosts.
pub(crate) fn is_for_all_hosts(address: &str) -> bool {
    ["0.0.0.0:", "[::]:", ":"]
        .iter()
        .any(|host| address.starts_with(host))
}
