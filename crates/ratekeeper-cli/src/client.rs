//! Just enough of an HTTP client to ask a running service one thing.
//!
//! HTTP/1.0 on purpose: the answer then ends with the connection, and nothing of chunks or keep-alive is needed.

use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long connecting, sending and each read may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The largest answer that is taken, in bytes.
const ANSWER_MAX: u64 = 16 << 20;

/// What a service answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Posts JSON to `path` at `address`, which is `http://HOST:PORT` or `HOST:PORT`.
///
/// # Errors
/// The address is none, nobody answers there, or what comes back is not HTTP.
pub(crate) fn post(address: &str, path: &str, json: &str) -> Result<Answer> {
    let host = host(address)?;
    let mut stream = connect(host)
        .with_context(|| format!("nobody answers at {address}; is it the admin address?"))?;
    let request = format!(
        "POST {path} HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{json}",
        json.len(),
    );
    let mut answer = Vec::new();
    stream
        .write_all(request.as_bytes())
        .and_then(|()| stream.take(ANSWER_MAX).read_to_end(&mut answer))
        .with_context(|| format!("{address} did not answer to the end"))?;
    let answer = String::from_utf8_lossy(&answer);
    read(&answer).with_context(|| format!("{address} does not answer in HTTP"))
}

fn host(address: &str) -> Result<&str> {
    if address.starts_with("https://") {
        bail!("{address}: the admin address speaks http, not https");
    }
    let host = address
        .strip_prefix("http://")
        .unwrap_or(address)
        .trim_end_matches('/');
    let good = host
        .rsplit_once(':')
        .is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok());
    if !good || host.contains(['/', ' ', '@']) {
        bail!(
            "{address} is no address of a service; write http://HOST:PORT, as in http://127.0.0.1:6070"
        );
    }
    Ok(host)
}

fn connect(host: &str) -> std::io::Result<TcpStream> {
    let mut failed = std::io::Error::from(std::io::ErrorKind::NotFound);
    for address in host.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn read(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let line = head.lines().next()?;
    let status = line
        .strip_prefix("HTTP/1.")?
        .split(' ')
        .nth(1)?
        .parse()
        .ok()?;
    Some(Answer {
        status,
        body: body.to_owned(),
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
            "http://[::1]:6070",
        ] {
            assert!(host(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "localhost",
            "http://",
            "https://a:1",
            "http://a:1/metrics",
            "http://u@a:1",
            ":80",
            "a:b",
        ] {
            assert!(host(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn answers_are_read_and_what_is_none_is_not() {
        let answer =
            read("HTTP/1.0 404 Not Found\r\ncontent-length: 2\r\n\r\nno").expect("it is HTTP");
        assert_eq!((answer.status, answer.body.as_str()), (404, "no"));
        assert!(read("").is_none());
        assert!(read("SSH-2.0-OpenSSH\r\n\r\n").is_none());
    }
}
