//! What a server is told when it starts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use crate::callers::Caller;
use ratekeeper_http::answer::{BodyForm, Headers};
use ratekeeper_http::{Describer, Forwarding};
use ratekeeper_proto::MESSAGE_BYTES_MAX;
use ratekeeper_rules::{Options, Profile, ReadOptions};

use crate::front::FrontConfig;
use crate::listen::{ListenAddress, Patience};
use crate::rls::ConstantAnswer;
use crate::tls::TlsConfig;

/// Everything a [`Server`](crate::Server) is told. The defaults are those of the product.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where gRPC is served, if it is.
    pub grpc: Option<ListenAddress>,
    /// Where HTTP is served, if it is.
    pub http: Option<ListenAddress>,
    /// Where metrics and rules are shown: a loopback address or a Unix socket, or any address
    /// if clients have to show a certificate there.
    pub admin: ListenAddress,
    /// Where metrics alone are shown, to scrapers on other hosts.
    pub metrics: Option<ListenAddress>,
    /// Where a gateway listens, for what [`Server::run_behind`](crate::Server::run_behind) is given.
    pub front: Option<FrontConfig>,
    /// The permissions of the files of Unix sockets, as in 0o660; without, what the process's
    /// umask leaves.
    pub unix_mode: Option<u32>,
    /// Which listeners encrypt.
    pub tls: ListenersTls,
    /// On how many threads of their own gRPC and HTTP are served, each with a runtime of its
    /// own; without a number, on the runtime that [`Server::run`](crate::Server::run) runs on.
    pub worker_threads: Option<NonZeroUsize>,
    /// How Envoy's protocol is answered.
    pub rls: RlsConfig,
    /// How forward-auth is answered.
    pub auth: AuthConfig,
    /// Who may do more than ask, besides whoever shows nothing on a listener that only this host
    /// can reach.
    pub callers: Vec<Caller>,
    /// How much of everything, and for how long.
    pub bounds: Bounds,
    /// Connections of all listeners together but those of operators, whose room is kept for them
    /// ([`OPERATORS_MAX`](crate::OPERATORS_MAX) each); more wait to be accepted. At least 1.
    pub connections_max: usize,
    /// For how long after a shutdown began new connections are still served, while readiness
    /// already says no: what balancers and proxies need to notice. 0 for not at all.
    pub drain_delay: Duration,
    /// How often and how the rules are looked at.
    pub watch: WatchConfig,
    /// What Envoy's protocol over gRPC is answered instead of a decision, if it is: for
    /// measuring what everything but the decision costs.
    pub constant_answer: Option<ConstantAnswer>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        let any = |port| ListenAddress::Tcp((Ipv4Addr::UNSPECIFIED, port).into());
        Self {
            grpc: Some(any(8081)),
            http: Some(any(8080)),
            admin: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6070).into(),
            metrics: None,
            front: None,
            unix_mode: None,
            tls: ListenersTls::default(),
            worker_threads: None,
            rls: RlsConfig::default(),
            auth: AuthConfig::default(),
            callers: Vec::new(),
            bounds: Bounds::default(),
            connections_max: usize::MAX,
            drain_delay: Duration::from_secs(3),
            watch: WatchConfig::default(),
            constant_answer: None,
        }
    }
}

/// How each listener proves who it is, if at all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListenersTls {
    /// For gRPC.
    pub grpc: Option<TlsConfig>,
    /// For HTTP.
    pub http: Option<TlsConfig>,
    /// For metrics and rules.
    pub admin: Option<TlsConfig>,
    /// For metrics alone.
    pub metrics: Option<TlsConfig>,
}

/// The most descriptors that one request may have. Envoy sends a handful.
pub const DESCRIPTORS_MAX: usize = 100;

/// The most entries that one descriptor may have.
pub const ENTRIES_MAX: usize = 32;

/// Who may do what over Envoy's protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnvoyCallers {
    /// Anybody may check, bring limits along and give hits back, as in envoyproxy/ratelimit.
    Any,
    /// Anybody may check. Limits in requests and refunds need the permissions that they need in
    /// `ratekeeper.v1`.
    Permitted,
    /// Every request needs a known sender, limits and refunds a permission besides.
    Required,
}

/// How Envoy's protocol is answered, over gRPC and `/json`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RlsConfig {
    /// Whose answers, where ours and the incumbent's differ.
    pub profile: Profile,
    /// Who may do what; see [`Self::callers`] for the default.
    pub callers: Option<EnvoyCallers>,
    /// Whether answers carry `dynamic_metadata`.
    pub dynamic_metadata: bool,
    /// The incumbent's three response headers, if they are wanted.
    pub limit_headers: Option<LimitHeaders>,
    /// Whether answers carry the IETF draft's `RateLimit-Policy` and `RateLimit`.
    pub draft_headers: bool,
    /// Whether answers of which some limit was not counted say so in a header, which Envoy hands
    /// on to end clients.
    pub degraded_header: bool,
}

impl RlsConfig {
    /// Who may do what: unless it is said, anybody everything under the incumbent's profile, and
    /// what their permissions allow under ours.
    #[must_use]
    pub fn callers(&self) -> EnvoyCallers {
        self.callers.unwrap_or(match self.profile {
            Profile::Envoy => EnvoyCallers::Any,
            Profile::Ratekeeper => EnvoyCallers::Permitted,
        })
    }
}

/// The names of the incumbent's three response headers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitHeaders {
    /// Of the quota.
    pub limit: String,
    /// Of the hits left.
    pub remaining: String,
    /// Of the seconds until the reset.
    pub reset: String,
}

impl Default for LimitHeaders {
    fn default() -> Self {
        Self {
            limit: "RateLimit-Limit".to_owned(),
            remaining: "RateLimit-Remaining".to_owned(),
            reset: "RateLimit-Reset".to_owned(),
        }
    }
}

/// How `/v1/auth` understands the proxies that ask there, and answers them.
#[derive(Clone, Debug, Default)]
pub struct AuthConfig {
    /// Whose word about a request counts.
    pub forwarding: Forwarding,
    /// What becomes of a request.
    pub describer: Describer,
    /// In which headers its client is told of its limits.
    pub headers: Headers,
    /// The form of a denial's body, where the client does not say which it wants.
    pub denial_body: BodyForm,
}

/// What keeps one caller from taking everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Connections of one listener, at least 1; more wait to be accepted.
    pub connections_max: usize,
    /// Of those, connections from one address of another host, or one /64 of IPv6, which a host
    /// often has to itself; at least 1. More are closed at once.
    pub connections_per_address_max: usize,
    /// Requests under way on one HTTP/2 connection.
    pub streams_max: u32,
    /// Bytes of a gRPC message. Times the streams, it is what one connection may make us hold.
    pub message_bytes_max: usize,
    /// Bytes of a request's body over HTTP/1, where a connection has one at a time.
    pub body_bytes_max: usize,
    /// Bytes of all answers to `/v1/checks` of more than a few checks that were not taken yet; beyond
    /// it such requests are refused before anything is decided.
    pub long_answers_bytes_max: usize,
    /// Bytes of a request's head.
    pub head_bytes_max: u32,
    /// How long a head may take to arrive; on HTTP/1 also how long a connection may idle.
    pub head_timeout: Duration,
    /// How long a request may take, reading its body included.
    pub request_timeout: Duration,
    /// After how long without a byte in either direction a connection is closed, or up to a quarter
    /// of the stall timeout later; at least 1 ms.
    pub idle_timeout: Duration,
    /// Whether a client over HTTP/1 that says it has nothing more to say still gets its answer. Whoever waits for it
    /// cannot be told from one that has gone, so that a request whose work is dear is better ended.
    pub half_close: bool,
    /// How slow a peer may be that does not take an answer.
    pub patience: Patience,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// After how long an HTTP/2 connection is told to go, give or take a tenth, so that clients
    /// spread over new instances; requests under way are finished.
    pub connection_age_max: Option<Duration>,
    /// How long they may take to; then the connection is cut off.
    pub connection_age_grace: Duration,
    /// After how long without a request an HTTP/2 connection is told to go, or up to twice that.
    pub connection_idle_max: Option<Duration>,
    /// How often a silent HTTP/2 peer is asked whether it is there.
    pub ping_interval: Duration,
    /// How long it may take to answer that.
    pub ping_timeout: Duration,
    /// How long requests under way may take to finish after a shutdown began.
    pub drain_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            connections_per_address_max: 2_500,
            streams_max: 256,
            message_bytes_max: MESSAGE_BYTES_MAX,
            body_bytes_max: 1 << 20,
            long_answers_bytes_max: 64 << 20,
            head_bytes_max: 16 << 10,
            head_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(90),
            half_close: true,
            patience: Patience::default(),
            handshake_timeout: Duration::from_secs(10),
            connection_age_max: Some(Duration::from_secs(24 * 3_600)),
            connection_age_grace: Duration::from_secs(3_600),
            connection_idle_max: None,
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(20),
            drain_timeout: Duration::from_secs(20),
        }
    }
}

/// Where rules come from and how they are to be understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RulesSource {
    /// A file or a folder.
    pub path: PathBuf,
    /// What of a folder is read.
    pub read: ReadOptions,
    /// How it is understood.
    pub options: Options,
}

/// How changes of the rules are noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchConfig {
    /// Whether changes are looked for at all; SIGHUP works in either case.
    pub enabled: bool,
    /// How long two readings of the rules that agree lie apart: what is written more slowly
    /// than this, without being closed, may be read half.
    pub quiet: Duration,
    /// How often the rules are read without having been told of a change, for file systems
    /// that tell nothing.
    pub poll_interval: Duration,
}

impl Default for WatchConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            quiet: Duration::from_millis(200),
            poll_interval: Duration::from_secs(10),
        }
    }
}
