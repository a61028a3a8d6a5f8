//! Parsing a URL, host by host.

use std::sync::Arc;

use redis::{ConnectionAddr, IntoConnectionInfo};

use super::EndpointError;
use crate::server_address::{Address, Login, ServerAddress};

/// The longest prefix of keys, in bytes: every key pays for it.
const PREFIX_MAX: usize = 64;

/// The most hosts that a URL may name.
const HOSTS_MAX: usize = 64;

/// Several hosts that share one login.
pub(super) struct Hosts<'a> {
    family: &'a str,
    /// User and password with their @, or nothing.
    login: &'a str,
    pub(super) hosts: Vec<String>,
}

impl<'a> Hosts<'a> {
    pub(super) fn of(family: &'a str, authority: &'a str) -> Result<Self, EndpointError> {
        let begins = authority.rfind('@').map_or(0, |at| at + 1);
        let (login, hosts) = authority.split_at(begins);
        let hosts: Vec<String> = hosts.split(',').map(str::to_owned).collect();
        if hosts.len() > HOSTS_MAX {
            return Err(EndpointError::TooManyHosts);
        }
        Ok(Self {
            family,
            login,
            hosts,
        })
    }

    /// The same hosts, with this port where none is given.
    pub(super) fn with_port(&self, port: u16) -> Self {
        let has_port = |host: &str| {
            host.rsplit_once(':')
                .is_some_and(|(_, port)| !port.ends_with(']'))
        };
        let hosts = self.hosts.iter().map(|host| match has_port(host) {
            true => host.clone(),
            false => format!("{host}:{port}"),
        });
        Self {
            hosts: hosts.collect(),
            ..*self
        }
    }

    /// The URL of each host by itself.
    pub(super) fn urls(&self, rest: &str) -> impl Iterator<Item = String> {
        let Self { family, login, .. } = self;
        self.hosts
            .iter()
            .map(move |host| format!("{family}://{login}{host}{rest}"))
    }
}

/// One server as a URL describes it.
pub(super) struct Server {
    pub(super) address: ServerAddress,
    pub(super) prefix: String,
    /// The login at the sentinels.
    pub(super) sentinel: Login,
}

impl Server {
    pub(super) fn parse(url: &str, has_sentinels: bool) -> Result<Self, EndpointError> {
        let url = redis::parse_redis_url(url).ok_or(EndpointError::NotRedis)?;
        let is_unix = matches!(url.scheme(), "unix" | "redis+unix" | "valkey+unix");
        if url.fragment().is_some() {
            return Err(EndpointError::Insecure);
        }
        let mut prefix = String::new();
        let mut sentinel = Login::default();
        for (name, value) in url.query_pairs() {
            let value = value.into_owned();
            match &*name {
                "prefix" => prefix = value,
                "sentinel_user" if has_sentinels => sentinel.user = Some(value),
                "sentinel_pass" if has_sentinels => sentinel.password = Some(value),
                "db" | "user" | "pass" if is_unix => {}
                other => return Err(EndpointError::UnknownParameter(other.to_owned())),
            }
        }
        if !is_prefix(&prefix) {
            return Err(EndpointError::Prefix);
        }
        let info = url.into_connection_info();
        let info = info.map_err(|error| EndpointError::Invalid(error.to_string()))?;
        let said = info.redis_settings();
        let login = Login {
            user: said.username().map(str::to_owned),
            password: said.password().map(str::to_owned),
            db: said.db(),
        };
        if !login.is_whole() || !sentinel.is_whole() {
            return Err(EndpointError::NoPassword);
        }
        let (address, is_encrypted) = match info.addr() {
            ConnectionAddr::Tcp(host, port) => (Address::tcp(host, *port), false),
            ConnectionAddr::TcpTls { host, port, .. } => (Address::tcp(host, *port), true),
            ConnectionAddr::Unix(path) => (Address::Unix(path.clone()), false),
            _ => return Err(EndpointError::NotRedis),
        };
        let address = ServerAddress {
            address,
            login: Arc::new(login),
            tls: is_encrypted.then(Arc::default),
        };
        Ok(Self {
            address,
            prefix,
            sentinel,
        })
    }
}

fn is_prefix(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}');
    text.len() <= PREFIX_MAX && text.bytes().all(allowed)
}
