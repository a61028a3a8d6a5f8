//! A reader of server-sent events.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Instant;

use crate::http1::{PATIENCE, connect};

/// A stream of server-sent events that is being read.
#[derive(Debug)]
pub struct EventStream {
    lines: BufReader<TcpStream>,
    head: String,
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerEvent {
    /// Its kind.
    pub name: String,
    /// Its data.
    pub data: String,
}

impl EventStream {
    /// Asks for the events at `path` on a port of this host.
    ///
    /// # Panics
    /// If nothing listens there, or if the answer is no stream.
    #[must_use]
    pub fn open(port: u16, path: &str) -> Self {
        let mut stream = connect(port);
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream
            .write_all(request.as_bytes())
            .expect("it reads the request");
        let mut stream = Self {
            lines: BufReader::new(stream),
            head: String::new(),
        };
        loop {
            let line = stream.line();
            if line.is_empty() {
                break;
            }
            stream.head.push_str(&line);
            stream.head.push('\n');
        }
        assert!(stream.head.contains("200 OK"), "{}", stream.head);
        stream
    }

    /// The next event.
    ///
    /// # Panics
    /// If none comes in time.
    pub fn next_event(&mut self) -> ServerEvent {
        let mut name = String::new();
        loop {
            // Lines with the sizes of chunks are between the events.
            let line = self.line();
            if let Some(it) = line.strip_prefix("event: ") {
                it.clone_into(&mut name);
            } else if let Some(data) = line.strip_prefix("data: ") {
                let data = data.to_owned();
                return ServerEvent { name, data };
            }
        }
    }

    /// Reads events until `take` makes something of one.
    ///
    /// # Panics
    /// If it makes nothing of those that come in time; the message names `what`.
    pub fn until<T>(&mut self, what: &str, mut take: impl FnMut(&ServerEvent) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            let event = self.next_event();
            if let Some(found) = take(&event) {
                return found;
            }
            assert!(
                Instant::now() < end,
                "waited {PATIENCE:?} in vain until {what}; last: {event:?}"
            );
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.lines.read_line(&mut line).expect("it goes on");
        assert!(read > 0, "the stream ended: {}", self.head);
        line.trim_end().to_owned()
    }
}
