//! Running the gateway, an upstream made for each test, and a client that says exactly what it is told to.

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;

use ratekeeper_testkit::http1::connect;
pub(crate) use ratekeeper_testkit::http1::{Answer, header, say};
use ratekeeper_testkit::process::{self, Process};
pub(crate) use ratekeeper_testkit::recorder::{Act, Recorder as Upstream, ok};
use tempfile::TempDir;

/// Limits that no test reaches unless it wants to: 3 for the key `few`, in windows whose next edge is
/// decades away.
pub(crate) const RULES: &str = "
domain: api
descriptors:
  - key: api_key
    value: few
    rate_limit: { window: 10000d, limit: 3 }
  - key: api_key
    rate_limit: { window: 10000d, limit: 1000000 }
";

/// A running gateway, and the folder it was started in.
pub(crate) struct Gateway {
    pub(crate) port: u16,
    pub(crate) admin: u16,
    pub(crate) folder: TempDir,
    pub(crate) process: Process,
}

impl Gateway {
    /// In front of `upstream`, a URL.
    pub(crate) fn start(upstream: &str, args: &[&str]) -> Gateway {
        let mut all = vec!["--upstream", upstream];
        all.extend(args);
        Gateway::start_with(RULES, "", &all)
    }

    /// With rules, settings, and other arguments.
    pub(crate) fn start_with(rules: &str, settings: &str, args: &[&str]) -> Gateway {
        let folder = tempfile::tempdir().expect("a folder can be made");
        std::fs::write(folder.path().join("rules.yaml"), rules).expect("a file can be written");
        let command = gateway(folder.path(), args);
        Gateway::start_in(folder, settings, command)
    }

    /// With so many file descriptors, and no way to have more.
    pub(crate) fn with_few_files(upstream: &str, files: u32) -> Gateway {
        let folder = tempfile::tempdir().expect("a folder can be made");
        std::fs::write(folder.path().join("rules.yaml"), RULES).expect("a file can be written");
        let inner = gateway(folder.path(), &["--upstream", upstream]);
        let mut command = process::system("prlimit");
        command.current_dir(folder.path()).env_clear();
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.arg(format!("--nofile={files}"));
        command.arg(inner.get_program()).args(inner.get_args());
        Gateway::start_in(folder, "", command)
    }

    /// Its resident memory, in KiB.
    pub(crate) fn rss_kib(&self) -> usize {
        self.process.resident_kib()
    }

    /// Without rules: whoever `args` name decides.
    pub(crate) fn asking(settings: &str, args: &[&str]) -> Gateway {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let command = bare(folder.path(), args);
        Gateway::start_in(folder, settings, command)
    }

    fn start_in(folder: TempDir, settings: &str, mut command: Command) -> Gateway {
        std::fs::write(folder.path().join("ratekeeper.yaml"), settings)
            .expect("a file can be written");
        let (port, admin) = (process::free_port(), process::free_port());
        command.args(["--listen", &format!("127.0.0.1:{port}")]);
        command.args(["--admin", &format!("127.0.0.1:{admin}")]);
        let mut process = Process::spawn("gateway", command);
        process.wait_for_port(port);
        process.wait_for_port(admin);
        Gateway {
            port,
            admin,
            folder,
            process,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// A connection to it.
    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.port)
    }

    /// Sends `request` as it stands, and leaves the connection open.
    pub(crate) fn open(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("it listens");
        stream
            .write_all(request.as_bytes())
            .expect("it is read from");
        stream
    }

    /// Sends `request` as it stands and reads until the gateway closes.
    pub(crate) fn say(&self, request: &str) -> String {
        say(self.port, request)
    }

    /// GETs `path` on a connection of its own, with more lines of the head.
    pub(crate) fn get(&self, path: &str, lines: &[&str]) -> Answer {
        let more: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let text = self.say(&format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n"
        ));
        Answer::read(&text)
    }

    /// Waits until the admin listener tells `text` at `path`: counts and faults may come after an answer.
    pub(crate) fn tells(&self, path: &str, text: &str) {
        process::eventually(&format!("{path} tells {text}"), || {
            self.told(path).contains(text)
        });
    }

    /// Waits until the admin listener no longer tells `text` at `path`.
    pub(crate) fn no_longer_tells(&self, path: &str, text: &str) {
        process::eventually(&format!("{path} no longer tells {text}"), || {
            !self.told(path).contains(text)
        });
    }

    /// The answer of the admin listener at `path`.
    pub(crate) fn told(&self, path: &str) -> String {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        say(self.admin, &request)
    }
}

/// The command with rules.yaml, and with nothing but PATH from this process's environment.
pub(crate) fn gateway(folder: &Path, args: &[&str]) -> Command {
    bare(folder, &[&["--rules", "rules.yaml"], args].concat())
}

fn bare(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratekeeper"));
    command.current_dir(folder).env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command.args(["gateway", "--drain-delay", "0s"]).args(args);
    command
}

/// A port that refuses connections and that no other process is given, for as long as the socket is held.
pub(crate) fn deaf_port() -> (tokio::net::TcpSocket, u16) {
    let socket = tokio::net::TcpSocket::new_v4().expect("there are sockets");
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    socket.bind(any).expect("a port is free");
    let port = socket.local_addr().expect("it has an address").port();
    (socket, port)
}
