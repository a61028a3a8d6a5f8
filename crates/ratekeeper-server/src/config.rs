//! The settings of a server.

pub(crate) mod constant;
pub(crate) mod gateway;
pub(crate) mod quotas;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_http::answer::{BodyForm, Headers};
use ratekeeper_http::{Describer, Forwarding};
use ratekeeper_rules::Profile;
use ratekeeper_trace::Tracer;

use crate::access::callers::Caller;
use crate::figures::statsd::StatsdConfig;
use crate::figures::top_nodes::TopPeers;
use crate::listen::tls::TlsConfig;
use crate::listen::{ListenAddress, ServerBounds};
use crate::logs::denials::DenialLog;
use crate::logs::unreadable::OnUnreadable;
use crate::regions::RegionLoans;
use crate::reload::WatchConfig;
use constant::ConstantAnswer;
use gateway::GatewayListener;
use quotas::QuotaAdmin;

/// All settings of a [`Server`](crate::Server). The defaults are those of the product.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The address of the gRPC listener, if any.
    pub grpc: Option<ListenAddress>,
    /// The address of the HTTP listener, if any.
    pub http: Option<ListenAddress>,
    /// The address of the admin listener: loopback or a Unix socket, or any address if clients have to present a
    /// certificate or a token there.
    pub admin: ListenAddress,
    /// The address of the listener that serves only metrics, to scrapers on other hosts.
    pub metrics: Option<ListenAddress>,
    /// The gateway's listener, for the gateway that [`Server::run_behind`](crate::Server::run_behind)
    /// is given.
    pub gateway: Option<GatewayListener>,
    /// The permissions of Unix socket files, such as 0o660; without them, the process's umask
    /// decides.
    pub unix_mode: Option<u32>,
    /// The TLS settings of the listeners.
    pub tls: ListenersTls,
    /// The number of threads that serve gRPC and HTTP, each with its own runtime; without it, both
    /// run on the runtime of [`Server::run`](crate::Server::run).
    pub worker_threads: Option<NonZeroUsize>,
    /// The settings for Envoy's protocol.
    pub rls: RlsConfig,
    /// The answer to a request that cannot be read.
    pub on_unreadable: OnUnreadable,
    /// The settings for forward-auth.
    pub auth: AuthConfig,
    /// The callers that may do more than check. A client that presents no credentials on a listener
    /// that only this host can reach may do so as well.
    pub callers: Vec<Caller>,
    /// The folder for switches of rules and for tokens of the admin API: this node's own, or the copy of those in the
    /// quota database. Without it, switches do not outlive a restart, and tokens are only in a database.
    pub data_dir: Option<PathBuf>,
    /// The log of denied requests.
    pub denials: Arc<DenialLog>,
    /// The place where the nodes that share counters lay out their top keys; None for a node that stands alone.
    pub top_peers: Option<Arc<dyn TopPeers>>,
    /// The statsd agent that counts are sent to, if there is one.
    pub statsd: Option<StatsdConfig>,
    /// True if metrics have envoyproxy/ratelimit's names beside their own.
    pub envoy_metrics: bool,
    /// True if the keys that are denied most may be labels of a metric. Secrets are fingerprints there.
    pub top_denied_metric: bool,
    /// Traces checks, if there is a collector.
    pub tracer: Option<Tracer>,
    /// The database with tenants' quotas, if there is one.
    pub quotas: Option<QuotaAdmin>,
    /// The loans between this node's region and others, if it is in one.
    pub region_loans: Option<Arc<RegionLoans>>,
    /// The limits on sizes, counts and times.
    pub bounds: ServerBounds,
    /// The most connections of all listeners together, at least 1; more wait to be accepted.
    /// Connections of operators do not count: [`OPERATORS_MAX`](crate::OPERATORS_MAX) of them are
    /// kept free for each operators' listener.
    pub connections_max: usize,
    /// The time after the start of a shutdown in which new connections are still served, while
    /// readiness already says no: what balancers and proxies need to notice. 0 skips it.
    pub drain_delay: Duration,
    /// The settings for noticing changes of the rules.
    pub watch: WatchConfig,
    /// True if it says that it is ready before it has rules, as envoyproxy/ratelimit may: requests are refused until then.
    pub ready_without_rules: bool,
    /// The answer that Envoy's protocol over gRPC gets instead of a decision, if set: for measuring
    /// the cost of everything but the decision.
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
            gateway: None,
            unix_mode: None,
            tls: ListenersTls::default(),
            worker_threads: None,
            rls: RlsConfig::default(),
            on_unreadable: OnUnreadable::default(),
            auth: AuthConfig::default(),
            callers: Vec::new(),
            data_dir: None,
            denials: Arc::default(),
            top_peers: None,
            statsd: None,
            envoy_metrics: false,
            top_denied_metric: false,
            tracer: None,
            quotas: None,
            bounds: ServerBounds::default(),
            connections_max: usize::MAX,
            drain_delay: Duration::from_secs(3),
            watch: WatchConfig::default(),
            ready_without_rules: false,
            constant_answer: None,
            region_loans: None,
        }
    }
}

/// The TLS settings of each listener, if any.
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

/// The rule for who may do what over Envoy's protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnvoyCallers {
    /// Anybody may check, override limits and refund hits, as in envoyproxy/ratelimit.
    Any,
    /// Anybody may check. Limits in requests and refunds need the same permissions as in
    /// `ratekeeper.v1`.
    Permitted,
    /// Every request needs a known sender; limits and refunds also need a permission.
    Required,
}

/// The settings for Envoy's protocol, over gRPC and `/json`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RlsConfig {
    /// The profile to follow where our answers and envoyproxy/ratelimit's differ.
    pub profile: Profile,
    /// The rule for who may do what; see [`Self::callers`] for the default.
    pub callers: Option<EnvoyCallers>,
    /// True if answers carry `dynamic_metadata`.
    pub dynamic_metadata: bool,
    /// envoyproxy/ratelimit's three response headers, if enabled.
    pub limit_headers: Option<LimitHeaderNames>,
    /// True if answers carry the IETF draft's `RateLimit-Policy` and `RateLimit`.
    pub draft_headers: bool,
    /// True if an answer with an uncounted limit says so in a header, which Envoy passes on to end
    /// clients.
    pub degraded_header: bool,
}

impl RlsConfig {
    /// Returns the rule for who may do what. By default, anybody may do everything under the
    /// envoy profile, and what their permissions allow under ours.
    #[must_use]
    pub fn callers(&self) -> EnvoyCallers {
        self.callers.unwrap_or(match self.profile {
            Profile::Envoy => EnvoyCallers::Any,
            Profile::Ratekeeper => EnvoyCallers::Permitted,
        })
    }
}

/// The names of envoyproxy/ratelimit's three response headers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitHeaderNames {
    /// Of the quota.
    pub limit: String,
    /// Of the hits left.
    pub remaining: String,
    /// Of the seconds until the reset.
    pub reset: String,
}

impl Default for LimitHeaderNames {
    fn default() -> Self {
        Self {
            limit: "RateLimit-Limit".to_owned(),
            remaining: "RateLimit-Remaining".to_owned(),
            reset: "RateLimit-Reset".to_owned(),
        }
    }
}

/// The settings of `/v1/auth`: its reading of proxies' requests, and its answers to them.
#[derive(Clone, Debug, Default)]
pub struct AuthConfig {
    /// The proxies trusted to describe a request, and their header.
    pub forwarding: Forwarding,
    /// The translation of a request into descriptors.
    pub describer: Describer,
    /// The headers that tell the client about its limits.
    pub headers: Headers,
    /// The form of a denial's body, if the client does not ask for one.
    pub denial_body: BodyForm,
}
