//! An upstream that records every request, and answers as a test decides.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::http1::header;

/// A request as it reached the upstream.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The request line and the headers.
    pub head: String,
    /// The body, without chunk framing.
    pub body: Vec<u8>,
    /// The lines after the last chunk.
    pub trailers: String,
    /// The number of requests before it on its connection.
    pub before: usize,
}

impl Asked {
    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

/// An upstream's answer to a request.
#[derive(Debug)]
pub enum Act {
    /// Sends this, and waits for another request; closes if the head says `Connection: close`.
    Say(String),
    /// Sends nothing and closes.
    Close,
    /// Sends nothing while the client stays connected.
    Hang,
    /// Sends this, then echoes everything it receives.
    Echo(String),
    /// Sends this many bytes, and waits for another request.
    Pour(usize),
}

/// 200 with a text.
#[must_use]
pub fn ok(text: &str) -> Act {
    Act::Say(format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    ))
}

/// An upstream on a free port, for as long as the test runs.
#[derive(Debug)]
pub struct Recorder {
    /// The port on which it listens.
    pub port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Recorder {
    /// Listens on a free port, and answers each request as `act` says.
    ///
    /// # Panics
    /// If no port is free.
    #[must_use]
    pub fn start(act: impl Fn(&Asked) -> Act + Send + Sync + 'static) -> Self {
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
        Self { port, asked }
    }

    /// Its address, as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The requests that reached it.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().clone()
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
        kept.lock().push(asked.clone());
        match act(&asked) {
            Act::Say(text) => {
                if writer.write_all(text.as_bytes()).is_err() {
                    return;
                }
                let head = text.split("\r\n\r\n").next().unwrap_or_default();
                if header(head, "connection").is_some_and(|it| it.eq_ignore_ascii_case("close")) {
                    let _ = writer.shutdown(Shutdown::Both);
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
        let mut line = Vec::new();
        if reader.read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        // Values of headers are bytes.
        let line = String::from_utf8_lossy(&line);
        if line.trim_end().is_empty() {
            return Some(lines);
        }
        lines.push_str(&line);
    }
}

/// Decodes the chunks, up to the line of the last.
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
