//! A client of HTTP/1.1 that sends one request after the other on one connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use crate::http1::{Answer, connect};

/// A connection to a listener. All of its methods panic if it breaks, or an answer takes longer than [`crate::http1::PATIENCE`].
#[derive(Debug)]
pub struct HttpConnection {
    stream: BufReader<TcpStream>,
}

impl HttpConnection {
    /// Connects to a port of this host.
    ///
    /// # Panics
    /// If nothing listens there.
    #[must_use]
    pub fn open(port: u16) -> Self {
        let stream = connect(port);
        stream.set_nodelay(true).expect("a socket of ours");
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Sends a request with JSON, and waits for its answer. `headers` are whole lines with their ends.
    ///
    /// # Panics
    /// If no whole answer comes.
    pub fn ask(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let kind = match headers.to_ascii_lowercase().contains("content-type:") {
            true => "",
            false => "Content-Type: application/json\r\n",
        };
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{kind}{headers}Content-Length: {length}\r\n\r\n{body}"
        );
        let stream = self.stream.get_mut();
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut head = String::new();
        loop {
            let before = head.len();
            self.stream.read_line(&mut head).expect("it answers");
            match &head[before..] {
                "\r\n" => break,
                line => assert!(line.ends_with("\r\n"), "it broke off after {head:?}"),
            }
        }
        let mut answer = Answer::read(&head);
        let length = answer.header("content-length").unwrap_or("0").parse();
        let mut body = vec![0; length.expect("a length is a number")];
        self.stream
            .read_exact(&mut body)
            .expect("the body is whole");
        answer.body = String::from_utf8(body).expect("it answers in UTF-8");
        answer
    }
}
