//! One connection to one server.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use ratekeeper_tls::{ClientTls, TlsFileError};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, RedisError, Value};
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::answers::Bounded;
use crate::server_address::{Address, ServerAddress};

/// Error codes by which servers say that they do not serve us, so that asking again is no use.
const STRANGER: [&str; 4] = ["NOAUTH", "WRONGPASS", "NOPERM", "DENIED"];

/// A connection that has logged in. Nothing moves on it unless `driver` is polled.
pub(crate) struct Link {
    pub(crate) connection: MultiplexedConnection,
    /// Ends when the connection does.
    pub(crate) driver: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// The reason there is no connection: the step that failed, and its error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The server cannot be reached.
    #[error("cannot connect to {0}: {1}")]
    Connect(String, #[source] io::Error),
    /// The server's certificate, or ours, was not accepted by the other side.
    #[error("no TLS with {0}: {1}")]
    Tls(String, #[source] io::Error),
    /// A file needed for TLS cannot be used.
    #[error("no TLS with {0}: {1}")]
    TlsFile(String, #[source] TlsFileError),
    /// A certificate cannot contain the server's name.
    #[error("no TLS with {0}: a certificate cannot have this name")]
    Name(String, #[source] InvalidDnsNameError),
    /// The server refused the login, with this message.
    #[error("{0} refuses the login: {1}")]
    Login(String, String),
    /// The server refused the database, with this message.
    #[error("{0} refuses database {1}: {2}")]
    Database(String, i64, String),
    /// The connection broke before the first answer.
    #[error("{0} closed the connection before it answered: {1}")]
    Closed(String, String),
    /// Connecting or logging in took too long.
    #[error("{0} did not answer within {1:?}")]
    Timeout(String, Duration),
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Link {
    /// Connects and logs in, all of it `within` that time.
    pub(crate) async fn open(server: &ServerAddress, within: Duration) -> Result<Self, LinkError> {
        match timeout(within, Self::enter(server)).await {
            Ok(entered) => entered,
            // A server that does not know TLS waits for more of what it cannot read.
            Err(_) if server.tls.is_some() => {
                let why = io::Error::other(format!("no answer within {within:?}"));
                Err(LinkError::Tls(server.name(), why))
            }
            Err(_) => Err(LinkError::Timeout(server.name(), within)),
        }
    }

    async fn enter(server: &ServerAddress) -> Result<Self, LinkError> {
        let stream = Bounded::new(connect(server).await?);
        // Deadlines are the callers': theirs end earlier than any that could be set here.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        // The client library would log in as well, but hide the server's answer.
        let without_login = RedisConnectionInfo::default().set_skip_set_lib_name();
        let opened = MultiplexedConnection::new_with_config(&without_login, stream, config).await;
        let (connection, driver) = opened.map_err(|error| closed(server, &error))?;
        let mut link = Self {
            connection,
            driver: Box::pin(driver),
        };
        let entering = log_in(server, link.connection.clone());
        tokio::pin!(entering);
        tokio::select! {
            biased;
            entered = &mut entering => entered?,
            () = &mut link.driver => {
                // Whoever was waiting for an answer gets the reason.
                entering.await?;
                let why = "the connection was closed".to_owned();
                return Err(LinkError::Closed(server.name(), why));
            }
        }
        Ok(link)
    }
}

/// Logs in and selects the database, and checks that the server lets us in.
async fn log_in(
    server: &ServerAddress,
    mut connection: MultiplexedConnection,
) -> Result<(), LinkError> {
    let login = &server.login;
    if let Some(password) = &login.password {
        let mut auth = redis::cmd("AUTH");
        auth.arg(&login.user).arg(password);
        let refused = |why| LinkError::Login(server.name(), why);
        ask(server, &mut connection, &auth)
            .await?
            .map_err(|error| refused(said(&error)))?;
    }
    if login.db != 0 {
        let mut select = redis::cmd("SELECT");
        select.arg(login.db);
        let refused = |why| LinkError::Database(server.name(), login.db, why);
        ask(server, &mut connection, &select)
            .await?
            .map_err(|error| refused(said(&error)))?;
    }
    // A server that wants a password says so to any command.
    match ask(server, &mut connection, &redis::cmd("PING")).await? {
        Err(error) if error.code().is_some_and(|code| STRANGER.contains(&code)) => {
            Err(LinkError::Login(server.name(), said(&error)))
        }
        // Its ability to serve (it may be loading) is seen by those who ask for more.
        _ => Ok(()),
    }
}

/// Returns the server's answer, or an error if the connection is gone.
async fn ask(
    server: &ServerAddress,
    connection: &mut MultiplexedConnection,
    command: &Cmd,
) -> Result<Result<Value, RedisError>, LinkError> {
    let answered = connection.send_packed_command(command).await;
    match answered.and_then(Value::extract_error) {
        Err(error) if error.is_io_error() || error.is_unrecoverable_error() => {
            Err(closed(server, &error))
        }
        answered => Ok(answered),
    }
}

fn closed(server: &ServerAddress, error: &RedisError) -> LinkError {
    LinkError::Closed(server.name(), error.to_string())
}

/// A server's error in its own words.
pub(crate) fn said(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

async fn connect(server: &ServerAddress) -> Result<Box<dyn Stream>, LinkError> {
    match &server.address {
        Address::Tcp { host, port } => {
            let stream = tcp(server, host, *port).await?;
            match &server.tls {
                None => Ok(Box::new(stream)),
                Some(tls) => encrypted(server, host, tls, stream).await,
            }
        }
        #[cfg(unix)]
        Address::Unix(path) => {
            let stream = tokio::net::UnixStream::connect(path).await;
            let stream = stream.map_err(|error| LinkError::Connect(server.name(), error))?;
            Ok(Box::new(stream))
        }
        #[cfg(not(unix))]
        Address::Unix(_) => {
            let error = io::Error::from(io::ErrorKind::Unsupported);
            Err(LinkError::Connect(server.name(), error))
        }
    }
}

async fn tcp(server: &ServerAddress, host: &str, port: u16) -> Result<TcpStream, LinkError> {
    let connected = TcpStream::connect((host, port)).await;
    let stream = connected.map_err(|error| LinkError::Connect(server.name(), error))?;
    // A pipeline is one write; what follows it must not wait for its acknowledgement.
    let set = stream.set_nodelay(true);
    set.map_err(|error| LinkError::Connect(server.name(), error))?;
    Ok(stream)
}

async fn encrypted(
    server: &ServerAddress,
    host: &str,
    tls: &ClientTls,
    stream: TcpStream,
) -> Result<Box<dyn Stream>, LinkError> {
    let config = tls.config();
    let config = config.map_err(|error| LinkError::TlsFile(server.name(), error))?;
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|error| LinkError::Name(server.name(), error))?;
    let encrypted = TlsConnector::from(config).connect(name, stream).await;
    let stream = encrypted.map_err(|error| LinkError::Tls(server.name(), error))?;
    Ok(Box::new(stream))
}
