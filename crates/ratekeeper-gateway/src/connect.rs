//! Opening a connection to an upstream.

mod answer_first;
mod pool;
mod shared;

use std::io;
use std::sync::Arc;

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tracing::debug;

use self::answer_first::AnswerFirst;
use self::pool::FirstToOpen;
#[cfg(test)]
pub(crate) use self::pool::KEPT_FOR;
pub(crate) use self::pool::{Connection, Lease, Pool};
pub(crate) use self::shared::Shared;
use crate::body::RequestBody;
use crate::metrics::UpstreamCounts;
use crate::upstream::{Address, Secured, Speech, Upstream};

/// The most that is read of an HTTP/1 answer at a time, in bytes: its whole head, and then a piece of
/// its body. A client that stalls holds a few of these.
const READ_BYTES_MAX: usize = 32 << 10;

/// The reason why there is no connection.
#[derive(Clone, Debug)]
pub(crate) enum ConnectError {
    TooSlow,
    Failed(Box<str>),
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string().into())
    }
}

impl From<hyper::Error> for ConnectError {
    fn from(error: hyper::Error) -> Self {
        Self::Failed(error.to_string().into())
    }
}

/// The use of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConnectionUse {
    /// Requests, in the upstream's protocol.
    Requests,
    /// One request that is to be upgraded, in HTTP/1.1; the connection is not kept.
    Upgrade,
}

/// Connects to one of an upstream's addresses, handshakes included. Where a connection takes many requests, one with room is
/// taken, and those that come while one is being opened wait for it.
pub(crate) async fn connect(
    upstream: &Upstream,
    index: usize,
    pool: &Pool,
    connection_use: ConnectionUse,
) -> Result<Connection, ConnectError> {
    if connection_use == ConnectionUse::Upgrade || !upstream.may_share(index) {
        return connect_alone(upstream, index, pool, connection_use).await;
    }
    let waiting = timeout(upstream.connect_timeout, share(upstream, index, pool)).await;
    match waiting.unwrap_or(Err(ConnectError::TooSlow))? {
        Sharing::Taken(connection) => Ok(connection),
        Sharing::Alone => connect_alone(upstream, index, pool, ConnectionUse::Requests).await,
        Sharing::First(first) => {
            let opened = connect_alone(upstream, index, pool, ConnectionUse::Requests).await;
            first.tell(opened.as_ref().map(drop).map_err(Clone::clone));
            opened
        }
    }
}

/// The way of a request to a connection that others may share.
enum Sharing {
    /// It shares one with room.
    Taken(Connection),
    /// It opens one, and others wait for that.
    First(FirstToOpen),
    /// Connections serve one request at a time after all.
    Alone,
}

async fn share(upstream: &Upstream, index: usize, pool: &Pool) -> Result<Sharing, ConnectError> {
    let key = (upstream.id, index);
    loop {
        if let Some(connection) = pool.take_shared(key) {
            return Ok(Sharing::Taken(connection));
        }
        let others = match pool.first_to_open(key) {
            Ok(first) => return Ok(Sharing::First(first)),
            Err(others) => others,
        };
        match others.outcome().await {
            Some(Err(error)) => return Err(error),
            Some(Ok(())) if !upstream.may_share(index) => return Ok(Sharing::Alone),
            // More may wait than it takes. If the request that was opening it has gone away, the next one opens it.
            Some(Ok(())) | None => {}
        }
    }
}

async fn connect_alone(
    upstream: &Upstream,
    index: usize,
    pool: &Pool,
    connection_use: ConnectionUse,
) -> Result<Connection, ConnectError> {
    let opened = timeout(
        upstream.connect_timeout,
        open(upstream, index, pool, connection_use),
    );
    let opened = opened.await.unwrap_or(Err(ConnectError::TooSlow));
    let address = &upstream.addresses[index];
    match &opened {
        Ok(connection) => {
            address.record_success();
            if let Connection::Http2(shared) = connection {
                pool.share((upstream.id, index), shared.clone());
            }
        }
        Err(error) => {
            address.record_failure();
            upstream.counts.record_connect_failure();
            debug!(upstream = &*upstream.name, %address, ?error, "no connection");
        }
    }
    opened
}

/// Opens a connection that no other request waits for, or shares: it ends with its use, unless it is given to the pool.
pub(crate) async fn open(
    upstream: &Upstream,
    index: usize,
    pool: &Pool,
    connection_use: ConnectionUse,
) -> Result<Connection, ConnectError> {
    let opening = Opening {
        counts: &upstream.counts,
        address: &upstream.addresses[index],
        key: (upstream.id, index),
        pool,
    };
    if let Some(socket) = &opening.address.socket {
        return opening.http1(UnixStream::connect(socket).await?).await;
    }
    let authority = &opening.address.authority;
    let usual = match upstream.speech {
        Speech::Tls(_) => 443,
        Speech::Http1 | Speech::Http2 => 80,
    };
    let host = authority.host();
    let plain = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let port = authority.port_u16().unwrap_or(usual);
    let stream = TcpStream::connect((plain.unwrap_or(host), port)).await?;
    // Writes are complete: none should wait to be sent together with more.
    stream.set_nodelay(true)?;
    match &upstream.speech {
        Speech::Http1 => opening.http1(stream).await,
        Speech::Http2 => match connection_use {
            ConnectionUse::Upgrade => opening.http1(stream).await,
            ConnectionUse::Requests => opening.http2(stream).await,
        },
        Speech::Tls(secured) => {
            let name = match &secured.name {
                Some(name) => name.clone(),
                None => server_name(plain.unwrap_or(host))?,
            };
            opening.tls(stream, secured, name, connection_use).await
        }
    }
}

fn server_name(host: &str) -> Result<ServerName<'static>, ConnectError> {
    ServerName::try_from(host.to_owned())
        .map_err(|_| ConnectError::Failed("the address is not a name of a certificate".into()))
}

struct Opening<'a> {
    counts: &'a Arc<UpstreamCounts>,
    address: &'a Address,
    key: (u64, usize),
    pool: &'a Pool,
}

/// An open connection, counted until dropped.
struct Open(Arc<UpstreamCounts>);

impl Open {
    fn new(counts: &Arc<UpstreamCounts>) -> Self {
        counts.record_connected();
        Self(Arc::clone(counts))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.record_closed();
    }
}

impl Opening<'_> {
    async fn tls(
        &self,
        stream: TcpStream,
        secured: &Secured,
        name: ServerName<'static>,
        connection_use: ConnectionUse,
    ) -> Result<Connection, ConnectError> {
        let config = match connection_use {
            ConnectionUse::Upgrade => &secured.http1,
            ConnectionUse::Requests => &secured.either,
        };
        let connector = TlsConnector::from(Arc::clone(config));
        let stream = connector.connect(name, stream).await?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        // It was offered no choice for an upgrade.
        if connection_use == ConnectionUse::Requests {
            self.address.record_choice(!is_http2);
        }
        match is_http2 {
            true => self.http2(stream).await,
            false => self.http1(stream).await,
        }
    }

    async fn http1<IO>(&self, io: IO) -> Result<Connection, ConnectError>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = http1::Builder::new();
        builder.max_buf_size(READ_BYTES_MAX);
        let (sender, connection) = builder
            .handshake::<_, RequestBody>(TokioIo::new(AnswerFirst::new(io)))
            .await?;
        let open = Open::new(self.counts);
        tokio::spawn(async move {
            // Errors on it reach the request under way.
            let _ = connection.with_upgrades().await;
            drop(open);
        });
        Ok(Connection::Http1(self.pool.lease(self.key, sender)))
    }

    async fn http2<IO>(&self, io: IO) -> Result<Connection, ConnectError>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let shared = Shared::open(io, Open::new(self.counts)).await?;
        Ok(Connection::Http2(shared))
    }
}

#[cfg(test)]
mod tests;
