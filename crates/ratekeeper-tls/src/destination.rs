//! Connections to a server that a URL names, encrypted or not.

use std::io;
use std::time::Duration;

use http::Uri;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{ClientTls, TlsFileError, TlsFiles};

/// The silence after which the system probes a connection, and the time from one probe to the next. Without them, a reader of
/// a server that is gone without a word would wait for ever.
const PROBE_AFTER: Duration = Duration::from_secs(30);
const PROBES_EVERY: Duration = Duration::from_secs(10);

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
        let stream = TcpStream::connect((&*self.host, self.port)).await?;
        stream.set_nodelay(true)?;
        let probes = TcpKeepalive::new().with_time(PROBE_AFTER);
        SockRef::from(&stream).set_tcp_keepalive(&probes.with_interval(PROBES_EVERY))?;
        Ok(stream)
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
}
