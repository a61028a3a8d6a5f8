//! Where a server is, and how to come in: what a URL says.

use std::fmt;
use std::path::PathBuf;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

/// The longest prefix of keys, in bytes: every key pays for it.
const PREFIX_MAX: usize = 64;

/// One server, as a URL names it: `redis://[[user]:password@]host[:port][/db][?prefix=text]`,
/// `rediss://…` for TLS, `redis+unix:///path[?db=0&user=name&pass=word&prefix=text]`.
/// `valkey` may stand for `redis`.
#[derive(Clone)]
pub struct Endpoint {
    pub(crate) address: Address,
    pub(crate) login: RedisConnectionInfo,
    prefix: Box<str>,
}

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Tls { host: String, port: u16 },
    Unix(PathBuf),
}

/// Why a URL names no server. None of these repeats the URL, which may hold a password.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// It is no URL, or one of something else.
    #[error(
        "this is no URL of Redis or Valkey; write redis://HOST:PORT/, rediss://HOST:PORT/ for \
         TLS, or redis+unix:///PATH"
    )]
    NotRedis,
    /// It does not make sense as one.
    #[error("{0}")]
    Invalid(String),
    /// A parameter that nobody knows.
    #[error(
        "there is no parameter `{0}` here; there are prefix, protocol, and for unix sockets db, user and pass"
    )]
    UnknownParameter(String),
    /// A prefix that is too long, or would steer slots.
    #[error(
        "a prefix is at most 64 printable characters without spaces or braces, which would put \
         all keys into one slot"
    )]
    Prefix,
    /// TLS without the name to be verified.
    #[error(
        "certificates are always verified; leave #insecure out, and name the authority in the system's store"
    )]
    Insecure,
}

impl Endpoint {
    /// The server that `url` names.
    ///
    /// # Errors
    /// [`EndpointError`] says what to write instead.
    pub fn parse(url: &str) -> Result<Self, EndpointError> {
        let url = redis::parse_redis_url(url).ok_or(EndpointError::NotRedis)?;
        let is_unix = matches!(url.scheme(), "unix" | "redis+unix" | "valkey+unix");
        if url.fragment().is_some() {
            return Err(EndpointError::Insecure);
        }
        let mut prefix = String::new();
        for (name, value) in url.query_pairs() {
            match &*name {
                "prefix" => prefix = value.into_owned(),
                "protocol" => {}
                "db" | "user" | "pass" if is_unix => {}
                other => return Err(EndpointError::UnknownParameter(other.to_owned())),
            }
        }
        if !is_prefix(&prefix) {
            return Err(EndpointError::Prefix);
        }
        let info = url.into_connection_info();
        let info = info.map_err(|error| EndpointError::Invalid(error.to_string()))?;
        Ok(Self {
            address: Address::of(&info)?,
            login: info.redis_settings().clone(),
            prefix: prefix.into(),
        })
    }

    /// What all keys begin with; empty unless the URL says otherwise.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The name of the shard in metrics: where it is, and nothing secret.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.address {
            Address::Tcp { host, port } | Address::Tls { host, port } if host.contains(':') => {
                format!("[{host}]:{port}")
            }
            Address::Tcp { host, port } | Address::Tls { host, port } => format!("{host}:{port}"),
            Address::Unix(path) => path.display().to_string(),
        }
    }
}

/// Without the password, so that it can be logged.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.address)
            .field("username", &self.login.username())
            .field("db", &self.login.db())
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl Address {
    fn of(info: &ConnectionInfo) -> Result<Self, EndpointError> {
        match info.addr() {
            ConnectionAddr::Tcp(host, port) => Ok(Self::Tcp {
                host: host.clone(),
                port: *port,
            }),
            ConnectionAddr::TcpTls { host, port, .. } => Ok(Self::Tls {
                host: host.clone(),
                port: *port,
            }),
            ConnectionAddr::Unix(path) => Ok(Self::Unix(path.clone())),
            _ => Err(EndpointError::NotRedis),
        }
    }
}

fn is_prefix(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}');
    text.len() <= PREFIX_MAX && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_say_where_and_how() {
        let endpoint = Endpoint::parse("redis://app:se%20cret@10.0.0.7:6390/3?prefix=eu:").unwrap();
        assert_eq!(endpoint.name(), "10.0.0.7:6390");
        assert_eq!(endpoint.prefix(), "eu:");
        assert_eq!(endpoint.login.username(), Some("app"));
        assert_eq!(endpoint.login.password(), Some("se cret"));
        assert_eq!(endpoint.login.db(), 3);
        assert!(!format!("{endpoint:?}").contains("cret"));

        let unix = Endpoint::parse("redis+unix:///run/redis.sock?db=2&pass=x").unwrap();
        assert_eq!(unix.address, Address::Unix("/run/redis.sock".into()));
        assert_eq!(unix.login.db(), 2);
        let tls = Endpoint::parse("valkeys://[::1]").unwrap();
        assert_eq!(tls.name(), "[::1]:6379");
        assert!(matches!(tls.address, Address::Tls { .. }));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for (url, part) in [
            ("redis.example.com", "redis://HOST:PORT/"),
            ("http://:secret@h/", "redis://HOST:PORT/"),
            ("redis://:secret@h/zero", "database number"),
            ("redis://:secret@h/?pool=3", "`pool`"),
            ("redis://:secret@h/?prefix={a}", "braces"),
            ("rediss://:secret@h/#insecure", "verified"),
        ] {
            let said = Endpoint::parse(url).unwrap_err().to_string();
            assert!(said.contains(part), "{url}: {said}");
            assert!(!said.contains("secret"), "{said}");
        }
    }
}
