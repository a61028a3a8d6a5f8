//! A blocking client with one connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use crate::process::DEADLINE;

/// A reply of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// A null.
    Null,
    /// An integer.
    Int(i64),
    /// A string.
    Bytes(Vec<u8>),
    /// A status: `OK`.
    Status(String),
    /// An error, its code first.
    Error(String),
    /// A list of replies.
    Array(Vec<Reply>),
}

impl Reply {
    /// Returns true for an error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }

    /// The string or status as text; empty for any other reply.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Status(text) | Self::Error(text) => text.clone(),
            _ => String::new(),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    /// Connects to a port of the loopback interface.
    ///
    /// # Panics
    /// If nothing listens there.
    #[must_use]
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the server listens");
        stream.set_nodelay(true).expect("a socket of ours");
        stream
            .set_read_timeout(Some(DEADLINE))
            .expect("a socket of ours");
        Self {
            reader: BufReader::with_capacity(64 << 10, stream),
        }
    }

    /// Sends a command and waits for the reply.
    ///
    /// # Panics
    /// If the connection ends or no reply comes.
    pub fn ask<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        let mut bytes = Vec::new();
        encode(args, &mut bytes);
        self.send(&bytes);
        self.read()
    }

    /// Sends commands encoded by [`encode`].
    ///
    /// # Panics
    /// If the connection has ended.
    pub fn send(&mut self, commands: &[u8]) {
        let stream = self.reader.get_mut();
        stream
            .write_all(commands)
            .expect("the connection takes a command");
    }

    /// Waits for the next reply.
    ///
    /// # Panics
    /// If the connection ends or no reply comes.
    pub fn read(&mut self) -> Reply {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line);
        assert!(read.expect("an answer comes") > 0, "the server has hung up");
        let (kind, rest) = line.trim_end().split_at(1);
        let number = || rest.parse::<i64>().expect("a length or an integer");
        match kind {
            "+" => Reply::Status(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(number()),
            "$" => self.bytes(number()),
            "*" => match usize::try_from(number()) {
                Ok(length) => Reply::Array((0..length).map(|_| self.read()).collect()),
                Err(_) => Reply::Null,
            },
            _ => panic!("{line:?} is not an answer of Redis"),
        }
    }

    /// The calls of a command so far, such as `evalsha`, by the server's count.
    ///
    /// # Panics
    /// As [`Self::ask`].
    pub fn calls(&mut self, command: &str) -> u64 {
        let told = self.info("commandstats", &format!("cmdstat_{command}:calls="));
        told.and_then(|told| told.split(',').next()?.parse().ok())
            .unwrap_or(0)
    }

    /// A number of a section of the server's `INFO`, such as `used_memory` of `memory`.
    ///
    /// # Panics
    /// If there is no such number.
    pub fn number(&mut self, section: &str, name: &str) -> f64 {
        let told = self.info(section, &format!("{name}:"));
        let number = told.and_then(|told| told.parse().ok());
        number.unwrap_or_else(|| panic!("INFO {section} has no {name}"))
    }

    /// The rest of the line of the server's `INFO` that begins so.
    fn info(&mut self, section: &str, start: &str) -> Option<String> {
        let text = self.ask(&["INFO", section]).text();
        let rest = text.lines().find_map(|line| line.strip_prefix(start));
        rest.map(str::to_owned)
    }

    fn bytes(&mut self, length: i64) -> Reply {
        let Ok(length) = usize::try_from(length) else {
            return Reply::Null;
        };
        let mut bytes = vec![0; length + 2];
        self.reader
            .read_exact(&mut bytes)
            .expect("an answer comes whole");
        bytes.truncate(length);
        Reply::Bytes(bytes)
    }
}

/// Appends a command in its wire format.
pub fn encode<A: AsRef<[u8]>>(args: &[A], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        let arg = arg.as_ref();
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}
