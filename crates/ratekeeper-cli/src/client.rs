//! An HTTP client that can do no more than send one request to a running service.
//!
//! HTTP/1.0 on purpose: the answer then ends with the connection, and neither chunks nor keep-alive have to be handled.

mod timed;

use crate::settings::{TlsSettings, UNIX};
use anyhow::{Context, Result, anyhow, bail};
use ratekeeper_tls::TlsFiles;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;
use timed::{Stream, Timed, connect, connect_unix};

/// The time that a request and its answer have by default, and again each MiB of the answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The largest answer that is accepted, in bytes.
const ANSWER_MAX: u64 = 16 << 20;

/// The bytes of an answer that renew the time for those that follow.
const PIECE_BYTES: u64 = 1 << 20;

/// The prefix of an encrypted address.
const HTTPS: &str = "https://";

/// The answer of a service.
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The value of a header, whose name is in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = fields.find(|(field, _)| field.eq_ignore_ascii_case(name))?;
        Some(value.trim())
    }
}

/// A request to a service. What has a body is JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// The path and the query, percent-encoded.
    pub(crate) path: &'a str,
    pub(crate) body: &'a str,
    pub(crate) token: Option<&'a str>,
    /// A condition on the state of what is asked about: the name of a header and its value.
    pub(crate) condition: Option<(&'static str, &'a str)>,
    /// The time from the start of connecting to the end of the answer; of a large one, again each MiB, and of one that has
    /// no end, each line.
    pub(crate) patience: Duration,
    /// The kind of address that is asked, for whoever has named another.
    pub(crate) asks_at: &'static str,
}

/// An answer whose body is read while it comes.
pub(crate) struct Opened {
    reader: BufReader<Box<dyn Stream>>,
}

impl Opened {
    /// The next line without its end, of at most so many bytes; [`None`] if the other side has closed.
    ///
    /// # Errors
    /// The line is longer, the connection broke, or nothing came for a while.
    pub(crate) fn line(&mut self, most: u64) -> std::io::Result<Option<String>> {
        self.reader.get_mut().renew();
        self.read_line(most)
    }

    /// As [`Self::line`], within what is left of the time.
    fn read_line(&mut self, most: u64) -> std::io::Result<Option<String>> {
        let mut line = String::new();
        let read = self.reader.by_ref().take(most).read_line(&mut line)?;
        if read == 0 {
            return Ok(None);
        }
        match line.strip_suffix('\n') {
            Some(whole) => Ok(Some(whole.trim_end_matches('\r').to_owned())),
            None => Err(std::io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The lines up to the next empty one.
    fn head(&mut self) -> std::io::Result<String> {
        const LINES_MAX: usize = 100;
        let mut head = String::new();
        for _ in 0..LINES_MAX {
            match self.read_line(8 << 10)? {
                Some(line) if line.is_empty() => return Ok(head),
                Some(line) => head.push_str(&format!("{line}\r\n")),
                None => break,
            }
        }
        Err(std::io::ErrorKind::UnexpectedEof.into())
    }

    /// The body of an answer that has an end: all of it, by its length if the head tells that.
    fn rest(mut self, answer: &Answer) -> std::io::Result<String> {
        let told = answer.header("content-length");
        let told = told.and_then(|length| length.parse::<u64>().ok());
        let most = told.unwrap_or(u64::MAX).min(ANSWER_MAX + 1);
        let mut rest = Vec::new();
        let mut read = 0;
        while read < most {
            let piece = (most - read).min(PIECE_BYTES);
            let came = self.reader.by_ref().take(piece).read_to_end(&mut rest)? as u64;
            read += came;
            if came < PIECE_BYTES {
                break;
            }
            self.reader.get_mut().renew();
        }
        if read > ANSWER_MAX {
            return Err(std::io::Error::other("more than 16 MiB are not read"));
        }
        match told.is_some_and(|told| read < told) {
            true => Err(ErrorKind::UnexpectedEof.into()),
            false => Ok(String::from_utf8_lossy(&rest).into_owned()),
        }
    }
}

impl Request<'_> {
    /// The request as it is sent to `host`.
    fn text(&self, host: &str) -> String {
        let Self {
            method,
            path,
            body,
            token,
            condition,
            patience: _,
            asks_at: _,
        } = self;
        let mut request = format!(
            "{method} {path} HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
            body.len(),
        );
        if let Some(token) = token {
            request.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        if let Some((name, value)) = condition {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str(&format!("\r\n{body}"));
        request
    }
}

/// Sends `asked` as [`send`] does, and reads no more than the head of the answer: its body may go on for ever. The body
/// of a refusal has an end, and is in the answer.
///
/// # Errors
/// As those of [`send`].
pub(crate) fn open(
    address: &str,
    files: &TlsFiles,
    asked: &Request<'_>,
) -> Result<(Answer, Option<Opened>)> {
    let (mut stream, host) = dial(address, files, asked)?;
    let broken = || format!("{address} did not answer to the end");
    let sent = stream.write_all(asked.text(host).as_bytes());
    let is_cut = |error: &std::io::Error| {
        matches!(
            error.kind(),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
        )
    };
    // Who refuses may answer before all is read, and close.
    let cut = match sent {
        Err(error) if is_cut(&error) => Some(error),
        sent => sent.map(|()| None).with_context(broken)?,
    };
    let mut opened = Opened {
        reader: BufReader::new(stream),
    };
    let no_http = || format!("{address} does not answer in HTTP");
    let head = opened.head();
    if let (Some(cut), Err(_)) = (&cut, &head) {
        bail!("{}: {cut}", broken());
    }
    let head = head.map_err(|error| match error.kind() {
        // Bytes that are no text, or an end within the first lines: a gRPC or a TLS port.
        ErrorKind::InvalidData | ErrorKind::UnexpectedEof if !address.starts_with(HTTPS) => {
            anyhow!(no_http())
        }
        _ => anyhow::Error::new(error).context(broken()),
    })?;
    let mut answer = read(&head).with_context(no_http)?;
    match cut {
        Some(cut) if (200..300).contains(&answer.status) => bail!("{}: {cut}", broken()),
        None if (200..300).contains(&answer.status) => return Ok((answer, Some(opened))),
        _ => {}
    }
    answer.body = opened.rest(&answer).with_context(broken)?;
    Ok((answer, None))
}

/// Sends `asked` to `address`, which is `http://HOST:PORT`, `https://HOST:PORT`, `HOST:PORT` or `unix:/PATH`. With
/// HTTPS, the server's certificate is verified by `files`.
///
/// # Errors
/// The address is invalid, no trusted service answers there, or the answer is not HTTP.
pub(crate) fn send(address: &str, files: &TlsFiles, asked: &Request<'_>) -> Result<Answer> {
    let (mut answer, opened) = open(address, files, asked)?;
    if let Some(opened) = opened {
        let body = opened.rest(&answer);
        answer.body = body.with_context(|| format!("{address} did not answer to the end"))?;
    }
    Ok(answer)
}

/// Connects to `address`; returns the host that requests name, too.
fn dial<'a>(
    address: &'a str,
    files: &TlsFiles,
    asked: &Request<'_>,
) -> Result<(Box<dyn Stream>, &'a str)> {
    let is_encrypted = address.starts_with(HTTPS);
    if !is_encrypted && *files != TlsFiles::default() {
        bail!(
            "{address}: certificates mean nothing where nothing is encrypted; write {HTTPS}HOST:PORT"
        );
    }
    let Request {
        patience, asks_at, ..
    } = *asked;
    let refused = || format!("cannot connect to {address}; is it {asks_at}?");
    if let Some(socket) = address.strip_prefix(UNIX) {
        let stream = connect_unix(socket, patience).with_context(refused)?;
        return Ok((Box::new(stream), "localhost"));
    }
    let host = host(address)?;
    let stream = connect(host, patience).with_context(refused)?;
    let stream = match is_encrypted {
        true => encrypt(stream, host, files)?,
        false => Box::new(stream),
    };
    Ok((stream, host))
}

fn encrypt(mut stream: Timed<TcpStream>, host: &str, files: &TlsFiles) -> Result<Box<dyn Stream>> {
    let settings = TlsSettings::of("--");
    let config = files.client_config();
    let config = config.map_err(|error| anyhow!("{}", settings.blame(&error)))?;
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(name.to_owned());
    let name = name.with_context(|| format!("{host} is not a name of a certificate"))?;
    let mut session = ClientConnection::new(Arc::new(config), name)?;
    session
        .complete_io(&mut stream)
        .with_context(|| format!("no TLS with {host}"))?;
    Ok(Box::new(StreamOwned::new(session, stream)))
}

fn host(address: &str) -> Result<&str> {
    let host = address.strip_prefix("http://");
    let host = host.or_else(|| address.strip_prefix(HTTPS));
    let host = host.unwrap_or(address).trim_end_matches('/');
    let good = host
        .rsplit_once(':')
        .is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok());
    if !good || host.contains(['/', ' ', '@']) {
        bail!(
            "{address} is not an address of a service; write http://HOST:PORT, as in http://127.0.0.1:6070"
        );
    }
    Ok(host)
}

fn read(head: &str) -> Option<Answer> {
    let line = head.lines().next()?;
    let status = line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    Some(Answer {
        status: status.parse().ok()?,
        head: head.to_owned(),
        body: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_leave_out_the_scheme() {
        for good in [
            "http://127.0.0.1:6070",
            "http://localhost:6070/",
            "localhost:1",
            "https://a:1",
            "http://[::1]:6070",
        ] {
            assert!(host(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "localhost",
            "http://",
            "https://a",
            "http://a:1/metrics",
            "http://u@a:1",
            ":80",
            "a:b",
        ] {
            assert!(host(bad).is_err(), "{bad}");
        }
    }

    /// The time that an exchange with a listener takes which `answers` so, and its error.
    fn refused(answers: impl FnOnce(std::net::TcpStream) + Send + 'static) -> (Duration, String) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it has one").to_string();
        std::thread::spawn(move || answers(listener.accept().expect("a client").0));
        let asked = Request {
            method: "GET",
            path: "/",
            body: "",
            token: None,
            condition: None,
            patience: Duration::from_millis(300),
            asks_at: "it",
        };
        let start = std::time::Instant::now();
        let answer = send(&address, &TlsFiles::default(), &asked);
        (
            start.elapsed(),
            format!("{:#}", answer.err().expect("no answer")),
        )
    }

    #[test]
    fn an_exchange_ends_in_time_also_if_a_byte_comes_now_and_then() {
        use std::io::Write as _;
        let (took, why) = refused(|mut client| {
            let head = b"HTTP/1.0 200 OK\r\nContent-Length: 100000\r\n\r\n";
            let mut sent = client.write_all(head);
            while sent.is_ok() {
                std::thread::sleep(Duration::from_millis(20));
                sent = client.write_all(b"x");
            }
        });
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert!(why.contains("no answer within 300ms"), "{why}");
        let (took, why) = refused(|client| {
            let _ = std::io::copy(&mut &client, &mut std::io::sink());
        });
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert!(why.contains("no answer within 300ms"), "{why}");
    }

    #[test]
    fn answers_are_read_and_what_is_none_is_not() {
        let answer = read("HTTP/1.0 404 Not Found\r\nContent-Length: 2\r\n").expect("it is HTTP");
        assert_eq!(answer.status, 404);
        assert_eq!(answer.header("content-length"), Some("2"));
        assert_eq!(answer.header("content"), None);
        assert!(read("").is_none());
        assert!(read("SSH-2.0-OpenSSH\r\n\r\n").is_none());
    }
}
