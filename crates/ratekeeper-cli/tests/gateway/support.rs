//! Running the gateway, an upstream made for each test, and a client that says exactly what it is told to.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratekeeper_testkit::process::{self, Process};
use tempfile::TempDir;

/// How long an answer may take on a slow machine.
const PATIENCE: Duration = Duration::from_secs(30);

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
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let status = status.expect("it runs");
        let rss =
            header(&status, "VmRSS").and_then(|rss| rss.strip_suffix(" kB")?.trim().parse().ok());
        rss.expect("a process has a size")
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

    /// What the admin listener says at `path`.
    pub(crate) fn told(&self, path: &str) -> String {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        say(self.admin, &request)
    }
}

/// The command with rules.yaml, and with nothing of this process's environment but the PATH.
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

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a timeout can be set");
    stream
}

/// Sends `request` to a port as it stands and reads until the other side closes.
pub(crate) fn say(port: u16, request: &str) -> String {
    let mut stream = connect(port);
    // It may answer, and close, before it has read all of it.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!(
            "{request:?}: {error} after {:?}",
            String::from_utf8_lossy(&answer)
        ),
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// An answer, taken apart.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn read(text: &str) -> Answer {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Answer {
            status: status.unwrap_or_else(|| panic!("no answer of HTTP: {text:?}")),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// A request as it reached the upstream.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// The lines after the last chunk.
    pub(crate) trailers: String,
    /// How many came before it on its connection.
    pub(crate) before: usize,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

/// What an upstream does about a request.
pub(crate) enum Act {
    /// Says this, and waits for another request.
    Say(String),
    /// Says nothing and closes.
    Close,
    /// Says nothing for as long as the client stays.
    Hang,
    /// Says this, then whatever it is told.
    Echo(String),
    /// Says so many bytes, and waits for another request.
    Pour(usize),
}

/// 200 with a text.
pub(crate) fn ok(text: &str) -> Act {
    Act::Say(format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    ))
}

/// An upstream on a free port, for as long as the test runs.
pub(crate) struct Upstream {
    pub(crate) port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Upstream {
    pub(crate) fn start(act: impl Fn(&Asked) -> Act + Send + Sync + 'static) -> Upstream {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (kept, act) = (Arc::clone(&asked), Arc::new(act));
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (kept, act) = (Arc::clone(&kept), Arc::clone(&act));
                std::thread::spawn(move || serve(stream, &kept, &*act));
            }
        });
        Upstream { port, asked }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The requests that reached it.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no thread panics with it").clone()
    }
}

fn serve(stream: TcpStream, kept: &Mutex<Vec<Asked>>, act: &dyn Fn(&Asked) -> Act) {
    let Ok(mut writer) = stream.try_clone() else {
        return;
    };
    let mut reader = BufReader::new(stream);
    let mut before = 0;
    while let Some(asked) = read(&mut reader, before) {
        before += 1;
        kept.lock()
            .expect("no thread panics with it")
            .push(asked.clone());
        match act(&asked) {
            Act::Say(text) => {
                if writer.write_all(text.as_bytes()).is_err() {
                    return;
                }
            }
            Act::Pour(length) => {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                let piece = [b'x'; 16 << 10];
                let mut left = length;
                let mut is_taken = writer.write_all(head.as_bytes()).is_ok();
                while is_taken && left > 0 {
                    let now = left.min(piece.len());
                    is_taken = writer.write_all(&piece[..now]).is_ok();
                    left -= now;
                }
                if !is_taken {
                    return;
                }
            }
            Act::Close => {
                let _ = writer.shutdown(Shutdown::Both);
                return;
            }
            Act::Hang => {
                let _ = reader.read(&mut [0]);
                return;
            }
            Act::Echo(text) => {
                let _ = writer.write_all(text.as_bytes());
                let _ = std::io::copy(&mut reader, &mut writer);
                return;
            }
        }
    }
}

/// A port that refuses connections and that nobody else is given, for as long as the socket is held.
pub(crate) fn deaf_port() -> (tokio::net::TcpSocket, u16) {
    let socket = tokio::net::TcpSocket::new_v4().expect("there are sockets");
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    socket.bind(any).expect("a port is free");
    let port = socket.local_addr().expect("it has an address").port();
    (socket, port)
}

/// A request; None at the end of the connection.
fn read(reader: &mut impl BufRead, before: usize) -> Option<Asked> {
    let head = lines(reader)?;
    let (mut body, mut trailers) = (Vec::new(), String::new());
    if let Some(length) = header(&head, "content-length") {
        body.resize(length.parse().ok()?, 0);
        reader.read_exact(&mut body).ok()?;
    } else if header(&head, "transfer-encoding").is_some() {
        body = chunks(reader)?;
        trailers = lines(reader)?;
    }
    Some(Asked {
        head,
        body,
        trailers,
        before,
    })
}

/// The lines before an empty one.
fn lines(reader: &mut impl BufRead) -> Option<String> {
    let mut lines = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim_end().is_empty() {
            return Some(lines);
        }
        lines.push_str(&line);
    }
}

/// What the chunks carry, up to the line of the last.
fn chunks(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let length = usize::from_str_radix(line.trim_end(), 16).ok()?;
        if length == 0 {
            return Some(body);
        }
        let mut chunk = vec![0; length + 2];
        reader.read_exact(&mut chunk).ok()?;
        body.extend_from_slice(&chunk[..length]);
    }
}
