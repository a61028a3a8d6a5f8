//! A service behind a proxy, the binary beside it, and a client in front.

use std::net::{Ipv4Addr, SocketAddr};

pub(crate) use ratekeeper_testkit::examples::{example, with_changes};
use ratekeeper_testkit::http1::{Answer, say};
use ratekeeper_testkit::ratekeeper::{Ratekeeper, Setup};
use ratekeeper_testkit::recorder::{Act, Recorder};

/// Starts the binary with the settings of an example and further arguments.
pub(crate) fn start(example_folder: &str, more_args: &[&str]) -> Ratekeeper {
    let settings = example(&format!("{example_folder}/ratekeeper.yaml"));
    let setup = Setup::serve(env!("CARGO_BIN_EXE_ratekeeper"));
    let setup = setup.args(&["--config", &*settings.to_string_lossy()]);
    setup.args(more_args).start()
}

/// A service that answers everything with 200, and counts. `?tokens=5` makes it say `x-tokens: 5`.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    recorder: Recorder,
}

impl Service {
    pub(crate) fn start() -> Service {
        let recorder = Recorder::start(|asked| {
            let line = asked.head.lines().next().unwrap_or_default();
            let tokens = line.split_once("tokens=").map(|(_, rest)| rest);
            let tokens = tokens.and_then(|rest| rest.split(' ').next());
            let tokens = tokens.map_or(String::new(), |tokens| format!("X-Tokens: {tokens}\r\n"));
            Act::Say(format!(
                "HTTP/1.1 200 OK\r\n{tokens}Content-Length: 6\r\n\r\nserved"
            ))
        });
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, recorder.port));
        Service { address, recorder }
    }

    /// The number of requests that reached the service.
    pub(crate) fn requests(&self) -> usize {
        self.recorder.asked().len()
    }
}

/// A request of the client in front.
pub(crate) struct Request<'a> {
    port: u16,
    method: &'a str,
    path: &'a str,
    headers: Vec<(&'a str, &'a [u8])>,
}

impl<'a> Request<'a> {
    pub(crate) fn get(port: u16, path: &'a str) -> Request<'a> {
        Request::new(port, "GET", path)
    }

    pub(crate) fn new(port: u16, method: &'a str, path: &'a str) -> Request<'a> {
        Request {
            port,
            method,
            path,
            headers: Vec::new(),
        }
    }

    pub(crate) fn header(self, name: &'a str, value: &'a str) -> Request<'a> {
        self.raw_header(name, value.as_bytes())
    }

    /// A header whose value need not be text.
    pub(crate) fn raw_header(mut self, name: &'a str, value: &'a [u8]) -> Request<'a> {
        self.headers.push((name, value));
        self
    }

    /// Sends it over a connection of its own and reads the answer to its end.
    pub(crate) fn send(&self) -> Answer {
        let Request { method, path, .. } = self;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        let mut text = head.into_bytes();
        for (name, value) in &self.headers {
            text.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        text.extend(b"Content-Length: 0\r\n\r\n");
        Answer::read(&say(self.port, text))
    }

    pub(crate) fn status(&self) -> u16 {
        self.send().status
    }
}
