//! A service behind a proxy, the binary beside it, and a client in front.

use ratekeeper_testkit::process::{Process, free_port};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// An example of ours, as the repository ships it.
pub(crate) fn example(path: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here
        .ancestors()
        .nth(2)
        .expect("the crate lies two folders deep");
    root.join("examples").join(path)
}

/// An example's configuration with other ports and such in it, each of which it must name, written to `folder`.
pub(crate) fn with_changes(path: &str, folder: &Path, changes: &[(&str, String)]) -> PathBuf {
    let mut text = std::fs::read_to_string(example(path)).expect("the example is there");
    for (shipped, instead) in changes {
        assert!(text.contains(shipped), "{path} says {shipped}");
        text = text.replace(shipped, instead);
    }
    let name = Path::new(path).file_name().expect("it has a name");
    let written = folder.join(name);
    std::fs::write(&written, text).expect("files can be written");
    written
}

/// The binary with the settings and rules of an example, on ports that stay the same when it is started again.
pub(crate) struct Ratekeeper {
    settings: PathBuf,
    more_args: Vec<String>,
    ports: [u16; 3],
    process: Option<Process>,
}

impl Ratekeeper {
    /// Starts it and waits until it listens.
    pub(crate) fn start(example_folder: &str) -> Ratekeeper {
        Ratekeeper::start_with(example_folder, &[])
    }

    /// The same with further arguments.
    pub(crate) fn start_with(example_folder: &str, more_args: &[&str]) -> Ratekeeper {
        let settings = example(&format!("{example_folder}/ratekeeper.yaml"));
        let mut ratekeeper = Ratekeeper {
            settings,
            more_args: more_args.iter().map(|arg| (*arg).to_owned()).collect(),
            ports: [free_port(), free_port(), free_port()],
            process: None,
        };
        ratekeeper.start_again();
        ratekeeper
    }

    pub(crate) fn grpc(&self) -> u16 {
        self.ports[0]
    }

    pub(crate) fn http(&self) -> u16 {
        self.ports[1]
    }

    pub(crate) fn admin(&self) -> u16 {
        self.ports[2]
    }

    /// Starts it where it listened before.
    pub(crate) fn start_again(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratekeeper"));
        command
            .env_clear()
            .arg("serve")
            .arg("--config")
            .arg(&self.settings)
            .args(&self.more_args);
        for (flag, port) in ["--grpc", "--http", "--admin"].iter().zip(self.ports) {
            command.args([flag, &*format!("127.0.0.1:{port}")]);
        }
        let mut process = Process::spawn("ratekeeper", command);
        for port in self.ports {
            process.wait_for_port(port);
        }
        self.process = Some(process);
    }

    pub(crate) fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("it was started")
    }

    /// The value of a metric's series, 0 while it is not there.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let told = Request::get(self.admin(), "/metrics").send();
        let value = |line: &str| line.strip_prefix(series)?.trim().parse().ok();
        told.body.lines().find_map(value).unwrap_or_default()
    }
}

/// A service that answers everything with 200, and counts. `?tokens=5` makes it say `x-tokens: 5`.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    requests: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    pub(crate) fn start() -> Service {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let requests = Arc::new(AtomicUsize::new(0));
        let is_over = Arc::new(AtomicBool::new(false));
        let (counted, over) = (Arc::clone(&requests), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Acquire) {
                    return;
                }
                let counted = Arc::clone(&counted);
                // Each ends with its connection, which is the proxy's to close.
                if let Ok(stream) = stream {
                    std::thread::spawn(move || serve(stream, &counted));
                }
            }
        });
        Service {
            address,
            requests,
            is_over,
            thread: Some(thread),
        }
    }

    /// The number of requests that reached the service.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Acquire)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // Wakes it up.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(stream: TcpStream, counted: &AtomicUsize) {
    let Ok(mut writer) = stream.try_clone() else {
        return;
    };
    let mut reader = BufReader::new(stream);
    while let Some(head) = head(&mut reader) {
        counted.fetch_add(1, Ordering::AcqRel);
        let length = head
            .iter()
            .find_map(|line| header_of(line, "content-length"));
        let length = length.and_then(|length| length.parse().ok()).unwrap_or(0);
        let _ = std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink());
        let tokens = head
            .first()
            .and_then(|line| line.split_once("tokens="))
            .map(|(_, rest)| rest.split(' ').next().unwrap_or_default());
        let tokens = tokens.map_or(String::new(), |tokens| format!("X-Tokens: {tokens}\r\n"));
        let answer = format!("HTTP/1.1 200 OK\r\n{tokens}Content-Length: 6\r\n\r\nserved");
        if writer.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// The lines of a request's head; None at the end of the connection.
fn head(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        let mut line = Vec::new();
        if reader.read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        // Values of headers are bytes.
        match String::from_utf8_lossy(&line).trim_end() {
            "" => return Some(lines),
            line => lines.push(line.to_owned()),
        }
    }
}

fn header_of<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (key, value) = line.split_once(':')?;
    key.eq_ignore_ascii_case(name).then(|| value.trim())
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
    pub(crate) fn send(&self) -> Told {
        let mut stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("the proxy listens");
        let patience = Some(Duration::from_secs(30));
        stream
            .set_read_timeout(patience)
            .expect("a timeout can be set");
        let Request { method, path, .. } = self;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        let mut text = head.into_bytes();
        for (name, value) in &self.headers {
            text.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        text.extend(b"Content-Length: 0\r\n\r\n");
        stream.write_all(&text).expect("the proxy reads");
        let mut bytes = Vec::new();
        match stream.read_to_end(&mut bytes) {
            Ok(_) => {}
            // Closed without ceremony, after the answer.
            Err(error) if error.kind() == ErrorKind::ConnectionReset && !bytes.is_empty() => {}
            Err(error) => panic!("{method} {path}: no answer ({error})"),
        }
        Told::read(&String::from_utf8_lossy(&bytes))
    }

    pub(crate) fn status(&self) -> u16 {
        self.send().status
    }
}

/// The answer that the client got.
pub(crate) struct Told {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Told {
    fn read(text: &str) -> Told {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let mut lines = head.lines();
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let header = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        Told {
            status: status.unwrap_or_else(|| panic!("no answer of HTTP: {text:?}")),
            headers: lines.filter_map(header).collect(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(key, _)| key == name)
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(key, _)| key == name);
        let (_, value) =
            found.unwrap_or_else(|| panic!("no {name} in {} {:?}", self.status, self.headers));
        value
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        let value = self.header(name);
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name}: {value} is not a number"))
    }
}
