//! Connections to a server that a URL names, encrypted or not.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http::Uri;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::{ClientTls, TlsFileError, TlsFiles};

/// The silence after which the system probes a connection, and the time from one probe to the next. Without them, a reader of
/// a server that is gone without a word would wait for ever.
const PROBE_AFTER: Duration = Duration::from_secs(30);
const PROBES_EVERY: Duration = Duration::from_secs(10);

/// The time that an address has to accept before the next one is tried, too (RFC 8305, section 5).
const HEAD_START: Duration = Duration::from_millis(250);

/// The most addresses of a name that are tried.
const ADDRESSES_MAX: usize = 16;

/// A server to connect to: `http://HOST:PORT`, or `https://HOST:PORT` for TLS.
#[derive(Debug)]
pub struct Destination {
    host: String,
    port: u16,
    /// [`None`] without encryption.
    encrypted: Option<Encrypted>,
}

#[derive(Debug)]
struct Encrypted {
    /// The name that the server's certificate must have.
    name: ServerName<'static>,
    tls: ClientTls,
    /// The protocol to ask for; empty for none.
    protocol: Vec<u8>,
}

/// An open connection, encrypted or not.
pub trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection for S {}

impl Destination {
    /// The server that `uri` names; [`None`] if it names none. Without a port it is 443 or 80.
    ///
    /// `server_name` is the name in the server's certificate, if it is not the host. `protocol` is what TLS asks for (ALPN);
    /// empty for nothing. The files are read again for each connection, and mean nothing without TLS.
    #[must_use]
    pub fn new(
        uri: &Uri,
        server_name: Option<&str>,
        files: &TlsFiles,
        protocol: &[u8],
    ) -> Option<Self> {
        let host = uri.host()?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let (encrypted, port) = match uri.scheme_str()? {
            "http" => (None, 80),
            "https" => {
                let name = server_name.unwrap_or(host).to_owned();
                let encrypted = Encrypted {
                    name: ServerName::try_from(name).ok()?,
                    tls: ClientTls::new(files.clone()),
                    protocol: protocol.to_vec(),
                };
                (Some(encrypted), 443)
            }
            _ => return None,
        };
        Some(Self {
            host: host.to_owned(),
            port: uri.port_u16().unwrap_or(port),
            encrypted,
        })
    }

    /// Returns true for TLS.
    #[must_use]
    pub const fn is_encrypted(&self) -> bool {
        self.encrypted.is_some()
    }

    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// One of them cannot be used.
    pub fn check_files(&self) -> Result<(), TlsFileError> {
        let tls = self.encrypted.as_ref().map(|it| it.tls.config());
        tls.transpose().map(drop)
    }

    /// Connects.
    ///
    /// # Errors
    /// The server cannot be reached, is another one than its certificate should name, or a file cannot be used.
    pub async fn connect(&self) -> io::Result<Box<dyn Connection>> {
        let stream = self.reach().await?;
        let Some(encrypted) = &self.encrypted else {
            return Ok(Box::new(stream));
        };
        // Read for each connection: files change when certificates are renewed.
        let config = encrypted.tls.config().map_err(io::Error::other)?;
        let mut connector = TlsConnector::from(std::sync::Arc::clone(&config));
        if !encrypted.protocol.is_empty() {
            let mut config = (*config).clone();
            config.alpn_protocols = vec![encrypted.protocol.clone()];
            connector = TlsConnector::from(std::sync::Arc::new(config));
        }
        let connected = connector.connect(encrypted.name.clone(), stream).await?;
        Ok(Box::new(connected))
    }

    /// Connects, without encryption.
    async fn reach(&self) -> io::Result<TcpStream> {
        let addresses = lookup_host((&*self.host, self.port)).await?;
        let stream = first_to_accept(addresses.take(ADDRESSES_MAX)).await?;
        stream.set_nodelay(true)?;
        let probes = TcpKeepalive::new().with_time(PROBE_AFTER);
        SockRef::from(&stream).set_tcp_keepalive(&probes.with_interval(PROBES_EVERY))?;
        Ok(stream)
    }
}

/// Connects to the first of `addresses` that accepts. A silent one does not hold up the next.
async fn first_to_accept(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut addresses = addresses.peekable();
    let mut attempts = JoinSet::new();
    let mut refused = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        match addresses.next() {
            Some(address) => drop(attempts.spawn(TcpStream::connect(address))),
            None if attempts.is_empty() => return Err(refused),
            None => {}
        }
        let ended = match addresses.peek() {
            Some(_) => timeout(HEAD_START, attempts.join_next()).await.ok(),
            None => Some(attempts.join_next().await),
        };
        match ended.flatten() {
            Some(Ok(Ok(stream))) => return Ok(stream),
            Some(Ok(Err(error))) => refused = error,
            // It is still silent, or the attempt panicked.
            Some(Err(_)) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_server() {
        let named = |text: &str| {
            let uri: Uri = text.parse().expect(text);
            let found = Destination::new(&uri, None, &TlsFiles::default(), b"");
            found.map(|it| (it.host.clone(), it.port, it.is_encrypted()))
        };
        let server = |host: &str, port, is_encrypted| Some((host.to_owned(), port, is_encrypted));
        assert_eq!(named("http://a/x"), server("a", 80, false));
        assert_eq!(named("https://a"), server("a", 443, true));
        assert_eq!(named("https://[::1]:1"), server("::1", 1, true));
        for bad in ["/path", "ftp://a", "a"] {
            assert_eq!(named(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_connection_that_says_nothing_is_probed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let uri: Uri = format!("https://{address}").parse().expect("a URL");
        let server = Destination::new(&uri, None, &TlsFiles::default(), b"h2");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        let runtime = runtime.expect("a runtime can be made");
        let stream = runtime.block_on(server.expect("a server").reach());
        let stream = stream.expect("it is there");
        let is_probed = SockRef::from(&stream).keepalive();
        assert!(is_probed.expect("it tells"));
    }

    /// A listener that answers no more: its queue is full, and Linux drops what comes.
    async fn silent() -> (std::net::TcpListener, Vec<TcpStream>) {
        use socket2::{Domain, Socket, Type};
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("there are sockets");
        let any: SocketAddr = (std::net::Ipv4Addr::LOCALHOST, 0).into();
        socket.bind(&any.into()).expect("a port is free");
        socket.listen(0).expect("it is bound");
        let listener: std::net::TcpListener = socket.into();
        let address = listener.local_addr().expect("it has an address");
        let mut waiting = Vec::new();
        while let Ok(stream) = timeout(HEAD_START, TcpStream::connect(address)).await {
            waiting.push(stream.expect("it is taken into the queue"));
        }
        (listener, waiting)
    }

    #[tokio::test]
    async fn an_address_that_is_silent_does_not_hold_up_the_next() {
        let (silent, _waiting) = silent().await;
        let good = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let addresses = [&silent, &good].map(|it| it.local_addr().expect("it is bound"));
        // The system would try the first one for two minutes.
        let found = timeout(
            Duration::from_secs(60),
            first_to_accept(addresses.into_iter()),
        )
        .await;
        let stream = found.expect("the next is tried").expect("it accepts");
        assert_eq!(stream.peer_addr().expect("it is there"), addresses[1]);
    }
}
