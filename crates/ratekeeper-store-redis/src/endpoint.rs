//! Which servers a URL names, and how.

use std::sync::Arc;

use redis::{ConnectionAddr, IntoConnectionInfo};

use crate::node::{Address, Login, Node};
use ratekeeper_tls::{ClientTls, TlsFileError, TlsFiles};

/// The longest prefix of keys, in bytes: every key pays for it.
const PREFIX_MAX: usize = 64;

/// The most hosts that a URL may name.
const HOSTS_MAX: usize = 64;

/// Where a sentinel listens, unless a URL says otherwise.
const SENTINEL_PORT: u16 = 26379;

/// Where counters are, as a URL says it.
///
/// - `redis://[[user]:password@]host[:port][/db]` is one server;
/// - `redis+unix:///path[?db=0&user=name&pass=word]` is one behind a Unix socket;
/// - `redis+cluster://[…@]host[:port],host…` is a cluster, and who is asked about it first;
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

/// What there is at an endpoint.
#[derive(Clone, Debug)]
pub(crate) enum Deployment {
    /// One server.
    Single(Node),
    /// A cluster, by some of its nodes.
    Cluster(Vec<Node>),
    /// A primary, by the sentinels that watch over it.
    Sentinel(SentinelSet),
}

impl Deployment {
    /// Where it says how connections are encrypted.
    fn tls(&mut self) -> Vec<&mut Option<Arc<ClientTls>>> {
        match self {
            Self::Single(node) => vec![&mut node.tls],
            Self::Cluster(nodes) => nodes.iter_mut().map(|node| &mut node.tls).collect(),
            Self::Sentinel(set) => {
                let sentinels = set.sentinels.iter_mut().map(|node| &mut node.tls);
                sentinels.chain([&mut set.tls]).collect()
            }
        }
    }
}

/// Who says where the primary is.
#[derive(Clone, Debug)]
pub(crate) struct SentinelSet {
    pub(crate) sentinels: Vec<Node>,
    /// What they call the primary.
    pub(crate) name: String,
    /// How to come in there.
    pub(crate) login: Arc<Login>,
    pub(crate) tls: Option<Arc<ClientTls>>,
}

/// Why a URL names no server. None of these repeats the URL, which may hold a password.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// It is no URL, or one of something else.
    #[error(
        "this is no URL of Redis or Valkey; write redis://HOST:PORT/, rediss://HOST:PORT/ for \
         TLS, redis+unix:///PATH, redis+cluster://HOST:PORT,HOST:PORT/ or \
         redis+sentinel://HOST:PORT,HOST:PORT/NAME"
    )]
    NotRedis,
    /// It does not make sense as one.
    #[error("{0}")]
    Invalid(String),
    /// A parameter that nobody knows.
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
    #[error(
        "certificates are always verified; leave #insecure out, and name the authority that vouches for the server"
    )]
    Insecure,
    /// A user without a password, who is nobody.
    #[error(
        "there is a user here and no password; write redis://user:password@HOST/, or redis://:password@HOST/ for \
         the default user"
    )]
    NoPassword,
    /// Several hosts, where one is meant.
    #[error(
        "several hosts are a cluster, redis+cluster://HOST,HOST/, or sentinels, redis+sentinel://HOST,HOST/NAME"
    )]
    SeveralHosts,
    /// More hosts than anybody has.
    #[error("these are more than 64 hosts; a few of them do, the others are found by asking")]
    TooManyHosts,
    /// Sentinels without the name of what they watch over.
    #[error(
        "the name is missing by which the sentinels know the primary; write redis+sentinel://HOST:PORT/NAME"
    )]
    NoName,
    /// A database in a cluster.
    #[error("a cluster has one database, number 0; leave the number out")]
    ClusterDatabase,
}

impl Endpoint {
    /// What `url` names.
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
                let Server { node, prefix, .. } = Server::parse(url, false)?;
                Ok(Self::new(Deployment::Single(node), &prefix))
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
        if first.node.login.db != 0 {
            return Err(EndpointError::ClusterDatabase);
        }
        let prefix = first.prefix.clone();
        let nodes = servers.into_iter().map(|server| server.node).collect();
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
            login: Arc::clone(&first.node.login),
            tls: first.node.tls.clone(),
            sentinels: servers
                .iter()
                .map(|server| Node {
                    login: Arc::clone(&asked),
                    ..server.node.clone()
                })
                .collect(),
        };
        Ok(Self::new(Deployment::Sentinel(set), &first.prefix))
    }

    /// The same servers, by other files than those of the system. [`None`] where nothing is
    /// encrypted.
    #[must_use]
    pub fn with_tls(mut self, files: TlsFiles) -> Option<Self> {
        let tls = Arc::new(ClientTls::new(files));
        for place in self.deployment.tls() {
            place.as_mut()?;
            *place = Some(Arc::clone(&tls));
        }
        Some(self)
    }

    /// Whether connections can be encrypted as things are now; true where none is to be.
    ///
    /// # Errors
    /// [`TlsFileError`] says which file is wrong.
    pub fn check_tls(&self) -> Result<(), TlsFileError> {
        let mut deployment = self.deployment.clone();
        let tls = deployment.tls().into_iter().find_map(|place| place.take());
        tls.map_or(Ok(()), |tls| tls.config().map(drop))
    }

    /// What all keys begin with; empty unless the URL says otherwise.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Where that is, and nothing secret.
    #[must_use]
    pub fn name(&self) -> String {
        let list = |nodes: &[Node]| nodes.iter().map(Node::name).collect::<Vec<_>>().join(",");
        match &self.deployment {
            Deployment::Single(node) => node.name(),
            Deployment::Cluster(nodes) => list(nodes),
            Deployment::Sentinel(set) => format!("{} by {}", set.name, list(&set.sentinels)),
        }
    }
}

/// Several hosts of one login.
struct Hosts<'a> {
    family: &'a str,
    /// User and password with their @, or nothing.
    login: &'a str,
    hosts: Vec<String>,
}

impl<'a> Hosts<'a> {
    fn of(family: &'a str, authority: &'a str) -> Result<Self, EndpointError> {
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

    /// The same hosts, at that port where none is said.
    fn with_port(&self, port: u16) -> Self {
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

    /// The URL of each alone.
    fn urls(&self, rest: &str) -> impl Iterator<Item = String> {
        let Self { family, login, .. } = self;
        self.hosts
            .iter()
            .map(move |host| format!("{family}://{login}{host}{rest}"))
    }
}

/// What a URL says of one server.
struct Server {
    node: Node,
    prefix: String,
    /// How to come in at sentinels.
    sentinel: Login,
}

impl Server {
    fn parse(url: &str, has_sentinels: bool) -> Result<Self, EndpointError> {
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
        let node = Node {
            address,
            login: Arc::new(login),
            tls: is_encrypted.then(Arc::default),
        };
        Ok(Self {
            node,
            prefix,
            sentinel,
        })
    }
}

fn is_prefix(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}');
    text.len() <= PREFIX_MAX && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn single(url: &str) -> Node {
        match Endpoint::parse(url).expect(url).deployment {
            Deployment::Single(node) => node,
            other => panic!("{url} is {other:?}"),
        }
    }

    #[test]
    fn urls_say_where_and_how() {
        let url = "redis://app:se%20cret@10.0.0.7:6390/3?prefix=eu:";
        let endpoint = Endpoint::parse(url).unwrap();
        assert_eq!(endpoint.name(), "10.0.0.7:6390");
        assert_eq!(endpoint.prefix(), "eu:");
        assert!(!format!("{endpoint:?}").contains("cret"));
        let login = Login {
            user: Some("app".to_owned()),
            password: Some("se cret".to_owned()),
            db: 3,
        };
        assert!(*single(url).login == login);

        let unix = single("redis+unix:///run/redis.sock?db=2&pass=x");
        assert_eq!(unix.address, Address::Unix("/run/redis.sock".into()));
        assert_eq!(
            (unix.login.db, unix.login.password.as_deref()),
            (2, Some("x"))
        );
        let tls = single("valkeys://[::1]");
        assert_eq!(
            (tls.name().as_str(), tls.tls.is_some()),
            ("[::1]:6379", true)
        );
    }

    #[test]
    fn several_hosts_have_one_login() {
        let endpoint = Endpoint::parse("rediss+cluster://:pw@a:1,b,[::1]:3/?prefix=x").unwrap();
        assert_eq!(
            (endpoint.name().as_str(), endpoint.prefix()),
            ("a:1,b:6379,[::1]:3", "x")
        );
        let Deployment::Cluster(nodes) = endpoint.deployment else {
            panic!("a cluster");
        };
        assert!(nodes.iter().all(|node| node.tls.is_some()));
        assert!(
            nodes
                .iter()
                .all(|node| node.login.password.as_deref() == Some("pw"))
        );

        let url = "redis+sentinel://app:pw@a,b:1/main/2?sentinel_pass=other";
        let endpoint = Endpoint::parse(url).unwrap();
        assert_eq!(endpoint.name(), "main by a:26379,b:1");
        assert!(!format!("{endpoint:?}").contains("pw"));
        let Deployment::Sentinel(set) = endpoint.deployment else {
            panic!("sentinels");
        };
        assert_eq!((set.login.db, set.login.user.as_deref()), (2, Some("app")));
        let asked = &set.sentinels[1].login;
        assert_eq!((asked.db, asked.user.as_deref()), (0, None));
        assert_eq!(asked.password.as_deref(), Some("other"));
    }

    #[test]
    fn files_are_for_what_is_encrypted() {
        let files = TlsFiles {
            authorities: Some("/nowhere/ca.pem".into()),
            identity: None,
        };
        let plain = Endpoint::parse("redis://h/").unwrap();
        assert!(plain.check_tls().is_ok());
        assert!(plain.with_tls(files.clone()).is_none());
        for url in [
            "rediss://h/",
            "rediss+cluster://a,b",
            "rediss+sentinel://a,b/main",
        ] {
            let endpoint = Endpoint::parse(url)
                .unwrap()
                .with_tls(files.clone())
                .unwrap();
            let said = endpoint.check_tls().unwrap_err().to_string();
            assert!(
                said.starts_with("the authorities in /nowhere/ca.pem cannot be used: No such"),
                "{said}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for (url, part) in [
            ("redis.example.com", "redis://HOST:PORT/"),
            ("http://:secret@h/", "redis://HOST:PORT/"),
            ("http+cluster://:secret@h/", "redis://HOST:PORT/"),
            ("redis+cluster://:secret@h:x/", "redis://HOST:PORT/"),
            ("redis://:secret@h/zero", "database number"),
            ("redis://:secret@h/?pool=3", "`pool`"),
            ("redis://:secret@h/?sentinel_pass=secret", "`sentinel_pass`"),
            ("redis://:secret@h/?prefix={a}", "braces"),
            ("rediss://:secret@h/#insecure", "verified"),
            ("redis://secret@h/", "no password"),
            ("redis://:secret@a:1,b:2/", "redis+cluster://"),
            ("redis+cluster://:secret@a,b/3", "number 0"),
            ("redis+sentinel://:secret@a,b/", "name is missing"),
            ("redis+sentinel://:secret@a,b/main/x", "database number"),
        ] {
            let said = Endpoint::parse(url).expect_err(url).to_string();
            assert!(said.contains(part), "{url}: {said}");
            assert!(!said.contains("secret"), "{said}");
        }
    }
}
