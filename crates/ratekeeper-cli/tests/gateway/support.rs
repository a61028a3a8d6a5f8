//! Running the gateway, an upstream made for each test, and a client that says exactly what it is told to.

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::Command;

pub(crate) use ratekeeper_testkit::http1::{Answer, header, say};
use ratekeeper_testkit::http1::{ask, connect};
use ratekeeper_testkit::process;
use ratekeeper_testkit::ratekeeper::{Ratekeeper, Said, Setup, command, run};
pub(crate) use ratekeeper_testkit::recorder::{Act, Recorder as Upstream, ok};

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

/// The binary.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_ratekeeper");

/// A running gateway.
pub(crate) struct Gateway(Ratekeeper);

impl Deref for Gateway {
    type Target = Ratekeeper;

    fn deref(&self) -> &Ratekeeper {
        &self.0
    }
}

impl DerefMut for Gateway {
    fn deref_mut(&mut self) -> &mut Ratekeeper {
        &mut self.0
    }
}

impl Gateway {
    /// In front of `upstream`, a URL.
    pub(crate) fn start(upstream: &str, args: &[&str]) -> Gateway {
        let setup = Setup::gateway(PROGRAM, upstream).rules(RULES);
        Gateway(setup.args(args).start())
    }

    /// With nothing but its standard output in what it prints.
    pub(crate) fn without_stderr(upstream: &str, args: &[&str]) -> Gateway {
        let setup = Setup::gateway(PROGRAM, upstream).rules(RULES);
        let prefix = ["sh", "-c", "exec \"$@\" 2>/dev/null", "sh"];
        Gateway(setup.behind(&prefix).args(args).start())
    }

    /// With rules, settings, and other arguments.
    pub(crate) fn start_with(rules: &str, settings: &str, args: &[&str]) -> Gateway {
        let setup = Setup::front(PROGRAM).rules(rules).settings(settings);
        Gateway(setup.args(args).start())
    }

    /// With so many file descriptors, and no way to have more.
    pub(crate) fn with_few_files(upstream: &str, files: u32) -> Gateway {
        let setup = Setup::gateway(PROGRAM, upstream).rules(RULES);
        let prefix = ["prlimit".to_owned(), format!("--nofile={files}")];
        Gateway(setup.behind(&prefix).start())
    }

    /// Without rules: whoever `args` name decides.
    pub(crate) fn asking(settings: &str, args: &[&str]) -> Gateway {
        let setup = Setup::front(PROGRAM).settings(settings);
        Gateway(setup.args(args).start())
    }

    /// Its resident memory, in KiB.
    pub(crate) fn rss_kib(&self) -> usize {
        self.process.resident_kib()
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
        let mut stream = connect(self.port);
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
        ask(self.port, "GET", path, &more, "").expect("it answers in HTTP")
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
        let answer = self.0.told(path).expect("it answers in HTTP");
        format!("{}\r\n\r\n{}", answer.head, answer.body)
    }
}

/// The command with rules.yaml, and with nothing but PATH from this process's environment.
pub(crate) fn gateway(folder: &Path, args: &[&str]) -> Command {
    let own = ["gateway", "--drain-delay", "0s", "--rules", "rules.yaml"];
    command(PROGRAM, folder, &[&own, args].concat())
}

/// A port that refuses connections and that no other process is given, for as long as the socket is held.
pub(crate) fn deaf_port() -> (tokio::net::TcpSocket, u16) {
    let socket = tokio::net::TcpSocket::new_v4().expect("there are sockets");
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    socket.bind(any).expect("a port is free");
    let port = socket.local_addr().expect("it has an address").port();
    (socket, port)
}

/// Runs the binary to its end.
pub(crate) fn ran(args: &[&str]) -> Said {
    run(&mut command(PROGRAM, Path::new("."), args))
}

/// Starts a service in a folder with rules.yaml, at that port for gRPC.
pub(crate) fn serve(folder: &Path, port: u16, args: &[&str]) -> Ratekeeper {
    let setup = Setup::serve(PROGRAM)
        .in_folder(folder)
        .args("--rules rules.yaml");
    setup.args(args).grpc_at(port).start()
}
