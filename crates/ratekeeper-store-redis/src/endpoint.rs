//! The servers that a URL names.

mod url;

use std::sync::Arc;

use ratekeeper_tls::{ClientTls, TlsFileError, TlsFiles};

use crate::server_address::{Login, ServerAddress};
use url::{Hosts, Server};

/// The port of a sentinel, unless the URL names another.
const SENTINEL_PORT: u16 = 26379;

/// The place of counters, given as a URL.
///
/// - `redis://[[user]:password@]host[:port][/db]` is one server;
/// - `redis+unix:///path[?db=0&user=name&pass=word]` is one behind a Unix socket;
/// - `redis+cluster://[…@]host[:port],host…` is a cluster, and the nodes to ask about it first;
/// - `redis+sentinel://[…@]host[:port],host…/name[/db][?sentinel_user=name&sentinel_pass=word]` is
///   the primary that these sentinels know by that name.
///
/// `rediss`, `rediss+cluster` and `rediss+sentinel` are encrypted; `valkey` may stand for `redis`,
/// and `?prefix=text` keeps services apart that share a server.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub(crate) deployment: Deployment,
    prefix: Box<str>,
}

/// The kind of deployment at an endpoint.
#[derive(Clone, Debug)]
pub(crate) enum Deployment {
    /// One server.
    Single(ServerAddress),
    /// A cluster, by some of its nodes.
    Cluster(Vec<ServerAddress>),
    /// A primary, by the sentinels that watch over it.
    Sentinel(SentinelSet),
}

impl Deployment {
    /// The TLS settings of each of its servers.
    fn tls(&mut self) -> Vec<&mut Option<Arc<ClientTls>>> {
        match self {
            Self::Single(server) => vec![&mut server.tls],
            Self::Cluster(nodes) => nodes.iter_mut().map(|server| &mut server.tls).collect(),
            Self::Sentinel(set) => {
                let sentinels = set.sentinels.iter_mut().map(|server| &mut server.tls);
                sentinels.chain([&mut set.tls]).collect()
            }
        }
    }
}

/// The sentinels that know a primary by name.
#[derive(Clone, Debug)]
pub(crate) struct SentinelSet {
    pub(crate) sentinels: Vec<ServerAddress>,
    /// The sentinels' name for the primary.
    pub(crate) name: String,
    /// The login at the primary.
    pub(crate) login: Arc<Login>,
    pub(crate) tls: Option<Arc<ClientTls>>,
}

/// The reason that a URL names no server. No message repeats the URL, which may hold a password.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// It is no URL, or one of something else.
    #[error(
        "this is not a URL of Redis or Valkey; write redis://HOST:PORT/, rediss://HOST:PORT/ for \
         TLS, redis+unix:///PATH, redis+cluster://HOST:PORT,HOST:PORT/ or \
         redis+sentinel://HOST:PORT,HOST:PORT/NAME"
    )]
    NotRedis,
    /// It does not make sense as one.
    #[error("{0}")]
    Invalid(String),
    /// An unknown parameter.
    #[error(
        "there is no parameter `{0}` here; there are prefix, for Unix sockets db, user and pass, and for \
         Sentinel sentinel_user and sentinel_pass"
    )]
    UnknownParameter(String),
    /// A prefix that is too long, or would steer slots.
    #[error(
        "a prefix is at most 64 printable characters without spaces or braces, which would put \
         all keys into one slot"
    )]
    Prefix,
    /// TLS without the name to be verified.
    #[error("certificates are always verified; remove #insecure and name the server's authority")]
    Insecure,
    /// A user without a password.
    #[error(
        "there is a user here and no password; write redis://user:password@HOST/, or redis://:password@HOST/ for \
         the default user"
    )]
    NoPassword,
    /// Several hosts, where only one is allowed.
    #[error(
        "several hosts are a cluster, redis+cluster://HOST,HOST/, or sentinels, redis+sentinel://HOST,HOST/NAME"
    )]
    SeveralHosts,
    /// Too many hosts.
    #[error("more than 64 hosts; name a few, the others are discovered")]
    TooManyHosts,
    /// Sentinels without the name of what they watch over.
    #[error("the primary's name is missing; write redis+sentinel://HOST:PORT/NAME")]
    NoName,
    /// A database in a cluster.
    #[error("a cluster has one database, number 0; leave the number out")]
    ClusterDatabase,
}

impl Endpoint {
    /// Parses `url`.
    ///
    /// # Errors
    /// [`EndpointError`] says what to write instead.
    pub fn parse(url: &str) -> Result<Self, EndpointError> {
        let (scheme, rest) = url.split_once("://").ok_or(EndpointError::NotRedis)?;
        let ends = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(ends);
        let (family, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        match kind {
            "cluster" => Self::cluster(&Hosts::of(family, authority)?, rest),
            "sentinel" => Self::sentinel(&Hosts::of(family, authority)?, rest),
            _ if authority.contains(',') => Err(EndpointError::SeveralHosts),
            _ => {
                let Server {
                    address, prefix, ..
                } = Server::parse(url, false)?;
                Ok(Self::new(Deployment::Single(address), &prefix))
            }
        }
    }

    fn new(deployment: Deployment, prefix: &str) -> Self {
        let prefix = prefix.into();
        Self { deployment, prefix }
    }

    fn cluster(hosts: &Hosts<'_>, rest: &str) -> Result<Self, EndpointError> {
        let servers = hosts.urls(rest).map(|url| Server::parse(&url, false));
        let servers: Vec<Server> = servers.collect::<Result<_, _>>()?;
        let first = servers.first().ok_or(EndpointError::NotRedis)?;
        if first.address.login.db != 0 {
            return Err(EndpointError::ClusterDatabase);
        }
        let prefix = first.prefix.clone();
        let nodes = servers.into_iter().map(|server| server.address).collect();
        Ok(Self::new(Deployment::Cluster(nodes), &prefix))
    }

    fn sentinel(hosts: &Hosts<'_>, rest: &str) -> Result<Self, EndpointError> {
        let (path, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
        let path = path.trim_matches('/');
        let (name, db) = path.split_once('/').unwrap_or((path, ""));
        if name.is_empty() {
            return Err(EndpointError::NoName);
        }
        let hosts = hosts.with_port(SENTINEL_PORT);
        let rest = format!("/{db}{query}");
        let servers = hosts.urls(&rest).map(|url| Server::parse(&url, true));
        let servers: Vec<Server> = servers.collect::<Result<_, _>>()?;
        let first = servers.first().ok_or(EndpointError::NotRedis)?;
        let asked = Arc::new(first.sentinel.clone());
        let set = SentinelSet {
            name: name.to_owned(),
            login: Arc::clone(&first.address.login),
            tls: first.address.tls.clone(),
            sentinels: servers
                .iter()
                .map(|server| ServerAddress {
                    login: Arc::clone(&asked),
                    ..server.address.clone()
                })
                .collect(),
        };
        Ok(Self::new(Deployment::Sentinel(set), &first.prefix))
    }

    /// Returns the same servers with other TLS files than the system's. [`None`] if nothing is encrypted.
    #[must_use]
    pub fn with_tls(mut self, files: TlsFiles) -> Option<Self> {
        let tls = Arc::new(ClientTls::new(files));
        for place in self.deployment.tls() {
            place.as_mut()?;
            *place = Some(Arc::clone(&tls));
        }
        Some(self)
    }

    /// Returns true if TLS can be set up right now, or is not needed.
    ///
    /// # Errors
    /// [`TlsFileError`] says which file is wrong.
    pub fn check_tls(&self) -> Result<(), TlsFileError> {
        let mut deployment = self.deployment.clone();
        let tls = deployment.tls().into_iter().find_map(|place| place.take());
        tls.map_or(Ok(()), |tls| tls.config().map(drop))
    }

    /// The prefix of all keys; empty unless the URL sets one.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The servers' addresses, without secrets.
    #[must_use]
    pub fn name(&self) -> String {
        let list = |nodes: &[ServerAddress]| {
            nodes
                .iter()
                .map(ServerAddress::name)
                .collect::<Vec<_>>()
                .join(",")
        };
        match &self.deployment {
            Deployment::Single(server) => server.name(),
            Deployment::Cluster(nodes) => list(nodes),
            Deployment::Sentinel(set) => format!("{} by {}", set.name, list(&set.sentinels)),
        }
    }
}

#[cfg(test)]
mod tests;
