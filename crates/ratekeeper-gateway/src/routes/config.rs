//! Settings of routes and upstreams.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::header::HOST;
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use ratekeeper_http::{Target, spelling};
use ratekeeper_tower::RequestUsage;
use rustls::pki_types::ServerName;
use serde::Deserialize;

use super::fault::{BadRoutes, RoutesFault};
use super::recent::RecentTimes;
use super::{HostMatch, Route, Routes, written};
use crate::tls;
use crate::upstream::{
    Address, HealthCheck, KeptUpstream, REQUESTS_MAX, Secured, SlotLimits, Speech, Upstream,
};

/// The most upstreams, and the most addresses of one.
const COUNT_MAX: usize = 1_000;

/// The default for the part of an upstream's slots that one client address has, in percent.
const ADDRESS_SHARE_PERCENT: u8 = 50;

/// The bounds on the time between health checks, and on the time for one.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(3_600);

/// The settings of routes and upstreams: in full, or one URL.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RoutesConfig {
    /// The upstreams by name.
    pub upstreams: BTreeMap<String, UpstreamConfig>,
    /// The routes; with a single upstream, an empty list routes everything to it.
    pub routes: Vec<RouteConfig>,
    /// The time that connecting to an upstream may take.
    pub connect_timeout: Duration,
    /// The time that an upstream may take to begin its answer, and the longest pause in it.
    pub response_timeout: Duration,
    /// The most requests that one upstream has at a time; None for 1,024. Over HTTP/1.1 each has a
    /// connection of its own, and so does an upgraded one until it ends.
    pub requests_max: Option<usize>,
    /// The most requests that wait for a slot, for at most the connect timeout; None for 1,024.
    pub waiting_max: Option<usize>,
    /// The part of an upstream's slots, in percent, that one client address (of IPv6, one /64) has or waits for; None for 50.
    pub address_share_percent: Option<u8>,
}

impl RoutesConfig {
    /// The bounds of each upstream's slots.
    fn slot_limits(&self) -> SlotLimits {
        let slots = self.requests_max.unwrap_or(REQUESTS_MAX);
        let percent = self.address_share_percent.unwrap_or(ADDRESS_SHARE_PERCENT);
        SlotLimits {
            slots,
            waiting: self.waiting_max.unwrap_or(REQUESTS_MAX),
            per_address: match percent {
                // No share: it may also wait for as many as it likes.
                100.. => usize::MAX,
                percent => slots.saturating_mul(percent.into()) / 100,
            },
        }
    }
}

/// A route for requests to a host and below a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteConfig {
    /// The host: `api.example.com`, or `*.example.com` for all subdomains; None for any.
    pub host: Option<String>,
    /// The path prefix: `/orders` matches itself and everything below; None for any.
    pub path: Option<String>,
    /// The name of an upstream.
    pub upstream: String,
    /// The treatment of requests whose client goes away; None to finish those that hold a permit of a concurrency limit, and
    /// to cancel others.
    pub on_client_gone: Option<OnClientGone>,
    /// The way in which responses tell what they used of budgets; None for that of the domain.
    pub usage: Option<RequestUsage>,
}

/// The treatment of a request that was sent to its upstream, and whose client then goes away. Until the upstream is known or
/// thought to be done, its slot there and its permits stay taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnClientGone {
    /// The exchange goes on, and its answer is thrown away.
    Finish,
    /// The upstream is told: its connection is closed, or its stream reset. The end of its work is not seen, so slot and permits
    /// are kept for the time in which the route lately began 99 of 100 answers.
    Cancel,
}

/// A service that requests are forwarded to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamConfig {
    /// The URLs: `http://HOST:PORT`, `h2c://…` for HTTP/2 in the clear, `https://…`, all of one kind.
    /// `unix:/PATH` is a Unix socket, which counts as `http`.
    pub urls: Vec<String>,
    /// The PEM file of the authorities for its certificate; None for the system's.
    pub ca: Option<PathBuf>,
    /// The name that its certificate must have; None for the URL's host.
    pub server_name: Option<String>,
    /// The `Host` that it gets; None for the client's.
    pub host: Option<String>,
    /// The health check; None for none.
    pub health_check: Option<HealthCheckConfig>,
}

/// The health check that each address of an upstream gets.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HealthCheckConfig {
    /// The path to GET; an address that answers with 200 to 399 is healthy.
    pub path: String,
    /// The time from one answer to the next check.
    #[serde(default = "written::interval", deserialize_with = "written::duration")]
    pub interval: Duration,
    /// The time that an answer may take.
    #[serde(default = "written::timeout", deserialize_with = "written::duration")]
    pub timeout: Duration,
    /// The number of failed checks in a row after which the address is tried last.
    #[serde(default = "written::unhealthy_threshold")]
    pub unhealthy_threshold: u32,
    /// The number of successful checks in a row after which it takes its turn again.
    #[serde(default = "written::healthy_threshold")]
    pub healthy_threshold: u32,
}

/// Returns the kept state of an upstream by its name.
pub(crate) type KeptOf<'a> = &'a mut dyn FnMut(&str) -> Arc<KeptUpstream>;

impl Routes {
    /// Builds the routing table from settings.
    ///
    /// # Errors
    /// A URL is invalid, a file of authorities cannot be used, or a route names no upstream or is a duplicate.
    pub(crate) fn new(config: &RoutesConfig, kept: KeptOf<'_>) -> Result<Self, BadRoutes> {
        if config.upstreams.is_empty() {
            return Err(BadRoutes::new("upstream", RoutesFault::NoUpstream));
        }
        if config.upstreams.len() > COUNT_MAX || config.routes.len() > COUNT_MAX {
            return Err(BadRoutes::new("routes", RoutesFault::TooMany(COUNT_MAX)));
        }
        let mut upstreams = Vec::new();
        for (name, one) in &config.upstreams {
            let made = upstream(name, one, config, kept);
            let place = || match name.as_str() {
                ONLY => ONLY.to_owned(),
                name => format!("upstreams.{name}"),
            };
            upstreams.push(Arc::new(made.map_err(|why| BadRoutes::new(place(), why))?));
        }
        let mut routes = Vec::new();
        for (index, one) in config.routes.iter().enumerate() {
            let made = route(one, &upstreams, &routes);
            routes.push(made.map_err(|why| BadRoutes::new(format!("routes[{index}]"), why))?);
        }
        match upstreams.as_slice() {
            [only] if routes.is_empty() => routes.push(Route {
                host: HostMatch::Any,
                path: "".into(),
                upstream: Arc::clone(only),
                on_client_gone: None,
                usage: None,
                recent: RecentTimes::default(),
            }),
            _ if routes.is_empty() => return Err(BadRoutes::new("routes", RoutesFault::NoRoutes)),
            _ => {}
        }
        routes.sort_by_key(order);
        let tells_usage = routes.iter().any(|route| route.usage.is_some());
        Ok(Self {
            routes: routes.into_iter().map(Arc::new).collect(),
            upstreams,
            tells_usage,
        })
    }
}

/// The name of an upstream that is given as a URL alone.
pub(crate) const ONLY: &str = "upstream";

/// The sort key of a route: hosts before paths, and the longer of each first.
fn order(route: &Route) -> (u8, usize, usize) {
    let longest_first = |length: usize| usize::MAX - length;
    let (rank, host) = match &route.host {
        HostMatch::Exact(name) => (0, name.len()),
        HostMatch::Suffix(name) => (1, name.len()),
        HostMatch::Any => (2, 0),
    };
    (rank, longest_first(host), longest_first(route.path.len()))
}

fn route(
    config: &RouteConfig,
    upstreams: &[Arc<Upstream>],
    before: &[Route],
) -> Result<Route, RoutesFault> {
    let upstream = upstreams.iter().find(|it| *it.name == *config.upstream);
    let Some(upstream) = upstream else {
        let names: Vec<_> = upstreams.iter().map(|it| &*it.name).collect();
        return Err(RoutesFault::UnknownUpstream {
            name: config.upstream.as_str().into(),
            known: names.join(", ").into(),
        });
    };
    let host = match config.host.as_deref() {
        None | Some("*") => HostMatch::Any,
        Some(host) => match host.strip_prefix('*') {
            Some(suffix) if suffix.len() > 1 && suffix.starts_with('.') => {
                HostMatch::Suffix(named(suffix)?)
            }
            Some(_) => return Err(RoutesFault::Wildcard(host.into())),
            None => HostMatch::Exact(named(host)?),
        },
    };
    let path = config.path.as_deref().unwrap_or("/");
    if !path.starts_with('/') || path.contains(['*', '?', '#', ' ']) {
        return Err(RoutesFault::Path(path.into()));
    }
    let target = Target::parse(&HOST, path.as_bytes())?;
    let path: Box<str> = target.path.trim_end_matches('/').into();
    if before.iter().any(|it| it.host == host && it.path == path) {
        return Err(RoutesFault::SameRoute);
    }
    Ok(Route {
        host,
        path,
        upstream: Arc::clone(upstream),
        on_client_gone: config.on_client_gone,
        usage: config.usage.clone(),
        recent: RecentTimes::default(),
    })
}

fn named(host: &str) -> Result<Box<str>, RoutesFault> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
    if host.is_empty() || !host.bytes().all(is_plain) || super::without_port(host) != host {
        return Err(RoutesFault::RouteHost(host.into()));
    }
    match spelling::host(host.as_bytes()) {
        Some(spelt) => Ok(spelt.into()),
        None => Err(RoutesFault::RouteHost(host.into())),
    }
}

/// The scheme of an upstream's URLs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Http,
    H2c,
    Https,
}

fn upstream(
    name: &str,
    config: &UpstreamConfig,
    all: &RoutesConfig,
    kept: KeptOf<'_>,
) -> Result<Upstream, RoutesFault> {
    if name.is_empty() {
        return Err(RoutesFault::NoName);
    }
    if config.urls.is_empty() || config.urls.len() > COUNT_MAX {
        return Err(RoutesFault::Urls(COUNT_MAX));
    }
    let parsed: Vec<_> = config
        .urls
        .iter()
        .map(|text| url(text))
        .collect::<Result<_, _>>()?;
    let kind = parsed[0].0;
    if parsed.iter().any(|(other, _)| *other != kind) {
        return Err(RoutesFault::MixedUrls);
    }
    let speech = match kind {
        Kind::Https => Speech::Tls(Box::new(secured(config)?)),
        _ if config.ca.is_some() || config.server_name.is_some() => {
            return Err(RoutesFault::NotEncrypted);
        }
        Kind::Http => Speech::Http1,
        Kind::H2c => Speech::Http2,
    };
    let addresses = parsed.into_iter().map(|(_, address)| address).collect();
    let kept = kept(name);
    let mut upstream = Upstream::new(name, addresses, speech, &kept);
    upstream.connect_timeout = all.connect_timeout;
    upstream.response_timeout = all.response_timeout;
    upstream.slots = kept.slots(all.slot_limits());
    upstream.host = match &config.host {
        None => None,
        Some(host) => {
            let wrong = || RoutesFault::Host(host.as_str().into());
            let authority: Authority = host.parse().map_err(|_| wrong())?;
            let value = HeaderValue::from_str(authority.as_str());
            Some(value.map_err(|_| wrong())?)
        }
    };
    upstream.health_check = config.health_check.as_ref().map(health_check).transpose()?;
    Ok(upstream)
}

fn health_check(config: &HealthCheckConfig) -> Result<HealthCheck, RoutesFault> {
    let path = &config.path;
    let parsed = PathAndQuery::try_from(path.as_str()).ok();
    let Some(parsed) = parsed.filter(|_| path.starts_with('/')) else {
        return Err(RoutesFault::HealthPath(path.as_str().into()));
    };
    for (name, value) in [("interval", config.interval), ("timeout", config.timeout)] {
        if value < SHORTEST || value > LONGEST {
            return Err(RoutesFault::HealthTime(name));
        }
    }
    if config.unhealthy_threshold == 0 || config.healthy_threshold == 0 {
        return Err(RoutesFault::HealthThreshold);
    }
    Ok(HealthCheck {
        path: parsed,
        interval: config.interval,
        timeout: config.timeout,
        unhealthy_threshold: config.unhealthy_threshold,
        healthy_threshold: config.healthy_threshold,
    })
}

fn url(text: &str) -> Result<(Kind, Address), RoutesFault> {
    if let Some(path) = text.strip_prefix("unix:") {
        let path = Path::new(path);
        return match path.is_absolute() {
            true => Ok((Kind::Http, Address::unix(path))),
            false => Err(RoutesFault::UnixSocket(text.into())),
        };
    }
    let wanted = || RoutesFault::Url(text.into());
    let uri: Uri = text.parse().map_err(|_| wanted())?;
    let kind = match uri.scheme() {
        Some(scheme) if *scheme == Scheme::HTTP => Kind::Http,
        Some(scheme) if *scheme == Scheme::HTTPS => Kind::Https,
        Some(scheme) if scheme.as_str() == "h2c" => Kind::H2c,
        _ => return Err(wanted()),
    };
    let authority = uri.authority().ok_or_else(wanted)?.clone();
    if uri
        .path_and_query()
        .is_some_and(|path| path.as_str() != "/")
    {
        return Err(RoutesFault::UrlPath(text.into()));
    }
    if authority.as_str().contains('@') || authority.host().is_empty() {
        return Err(wanted());
    }
    Ok((kind, Address::new(authority)))
}

fn secured(config: &UpstreamConfig) -> Result<Secured, RoutesFault> {
    let name = match &config.server_name {
        None => None,
        Some(name) => {
            let parsed = ServerName::try_from(name.clone());
            Some(parsed.map_err(|_| RoutesFault::ServerName(name.as_str().into()))?)
        }
    };
    let (either, http1) = tls::client(config.ca.as_deref())?;
    Ok(Secured {
        either,
        http1,
        name,
    })
}
