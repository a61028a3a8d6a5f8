//! An HTTP/1 client that sends exactly the given bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// Timeout of an answer, generous for slow machines.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A connection to a port of this host, on which an answer may take [`PATIENCE`].
///
/// # Panics
/// If nothing listens there.
#[must_use]
pub fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a timeout can be set");
    stream
}

/// Sends `request` to a port as it stands and reads until the other side closes.
///
/// # Panics
/// If the other side neither answers nor closes in time.
pub fn say(port: u16, request: impl AsRef<[u8]>) -> String {
    let request = request.as_ref();
    let mut stream = connect(port);
    // It may answer, and close, before it has read all of it.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!(
            "{:?}: {error} after {:?}",
            String::from_utf8_lossy(request),
            String::from_utf8_lossy(&answer)
        ),
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// Sends one request on a connection of its own, with further `lines` of the head, each with its end; [`None`] without an
/// answer of HTTP.
///
/// # Panics
/// As [`say`].
#[must_use]
pub fn ask(
    port: u16,
    method: &str,
    path: &str,
    lines: &str,
    body: impl AsRef<[u8]>,
) -> Option<Answer> {
    let body = body.as_ref();
    let length = match (method, body.len()) {
        ("GET", 0) => String::new(),
        (_, length) => format!("Content-Length: {length}\r\n"),
    };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{lines}{length}Connection: close\r\n\r\n"
    );
    Answer::try_read(&say(port, [head.as_bytes(), body].concat()))
}

/// An answer, taken apart.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The status line and the headers.
    pub head: String,
    /// The body: everything after the empty line.
    pub body: String,
}

impl Answer {
    /// The first answer in `text`; its body is all that follows.
    ///
    /// # Panics
    /// If `text` is no answer of HTTP.
    #[must_use]
    pub fn read(text: &str) -> Self {
        Self::try_read(text).unwrap_or_else(|| panic!("no answer of HTTP: {text:?}"))
    }

    /// As [`Answer::read`]; None where `text` is no answer of HTTP.
    #[must_use]
    pub fn try_read(text: &str) -> Option<Self> {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Self {
            status,
            head: head.to_owned(),
            body: body.to_owned(),
        })
    }

    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// Returns true if it has that header.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.header(name).is_some()
    }

    /// The number that a header is.
    ///
    /// # Panics
    /// If there is no such header, or it is not a number.
    #[must_use]
    pub fn number(&self, name: &str) -> u64 {
        let number = self.header(name).and_then(|value| value.parse().ok());
        number.unwrap_or_else(|| panic!("no number {name} in {}", self.head))
    }
}

/// The value of a header among the lines of a head.
#[must_use]
pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
