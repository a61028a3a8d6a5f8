//! Routes from requests to upstreams.

mod config;
mod fault;
mod recent;
mod written;

pub use config::{HealthCheckConfig, OnClientGone, RouteConfig, RoutesConfig, UpstreamConfig};
pub use fault::{BadRoutes, RoutesFault};

use std::sync::Arc;

use http::header::HOST;
use http::{HeaderValue, Request, Uri};
use ratekeeper_http::{Target, spelling};
use ratekeeper_tower::RequestUsage;

use self::recent::RecentTimes;
use crate::upstream::{Address, Upstream};

/// A routing table by host and path.
#[derive(Debug)]
pub struct Routes {
    /// The routes, the most specific first.
    routes: Vec<Arc<Route>>,
    upstreams: Vec<Arc<Upstream>>,
    /// True if a route has its own way to tell usage.
    tells_usage: bool,
}

/// A route from requests to an upstream.
#[derive(Debug)]
pub(crate) struct Route {
    host: HostMatch,
    /// The path prefix without a trailing slash: `/orders` matches `/orders`, `/orders/` and `/orders/7`.
    path: Box<str>,
    pub(crate) upstream: Arc<Upstream>,
    /// The treatment of requests whose client goes away; None for that of their permits.
    on_client_gone: Option<OnClientGone>,
    /// The way in which responses tell their usage; None for that of the domain.
    usage: Option<RequestUsage>,
    /// The times until its last answers began.
    pub(crate) recent: RecentTimes,
}

impl Route {
    /// The treatment of a request whose client goes away. One that holds a permit is finished by default, so that the permit is
    /// held for as long as the work lasts.
    pub(crate) fn on_client_gone(&self, has_permit: bool) -> OnClientGone {
        let usual = match has_permit {
            true => OnClientGone::Finish,
            false => OnClientGone::Cancel,
        };
        self.on_client_gone.unwrap_or(usual)
    }

    fn is_same(&self, other: &Self) -> bool {
        self.host == other.host
            && self.path == other.path
            && self.upstream.name == other.upstream.name
    }
}

/// The hosts that a route is for, the stricter kind first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum HostMatch {
    Exact(Box<str>),
    /// `.example.com`, for `*.example.com`.
    Suffix(Box<str>),
    Any,
}

impl HostMatch {
    fn matches(&self, host: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(name) => host.eq_ignore_ascii_case(name),
            Self::Suffix(suffix) => host
                .len()
                .checked_sub(suffix.len())
                .filter(|start| *start > 0 && host.is_char_boundary(*start))
                .is_some_and(|start| host[start..].eq_ignore_ascii_case(suffix)),
        }
    }
}

impl Routes {
    /// The route of `request`.
    pub(crate) fn of<B>(&self, request: &Request<B>) -> Option<&Arc<Route>> {
        let header = request.headers().get(HOST).map(HeaderValue::as_bytes);
        let authority = request.uri().authority().map(|it| it.as_str().as_bytes());
        self.find(header.or(authority).unwrap_or_default(), request.uri())
    }

    /// The way in which the response to `request` tells its usage, if its route has one of its own.
    pub(crate) fn usage<B>(&self, request: &Request<B>) -> Option<RequestUsage> {
        // The route is looked for again when the request has passed; most gateways do so only then.
        match self.tells_usage {
            true => self.of(request)?.usage.clone(),
            false => None,
        }
    }

    /// The route of a request for `uri`, and to `host`, which may have a port, as a header says. Hosts go before
    /// paths: an exact host, then the longest suffix, then any; within one the longest prefix. Both are looked at in the
    /// spelling that rules see.
    pub(crate) fn find(&self, host: &[u8], uri: &Uri) -> Option<&Arc<Route>> {
        if let [route] = self.routes.as_slice()
            && route.host == HostMatch::Any
            && route.path.is_empty()
        {
            return Some(route);
        }
        let host = spelling::host(host).unwrap_or_default();
        let target = Target::of(uri);
        let path = target.as_ref().map_or("", |target| &*target.path);
        self.routes
            .iter()
            .find(|route| route.host.matches(&host) && is_below(path, &route.path))
    }

    pub(crate) fn upstreams(&self) -> &[Arc<Upstream>] {
        &self.upstreams
    }

    /// Takes over what is known about upstreams of the same name and about the same routes.
    pub(crate) fn inherit(&self, before: &Self) {
        for upstream in &self.upstreams {
            if let Some(same) = before.upstreams.iter().find(|it| it.name == upstream.name) {
                upstream.inherit(same);
            }
        }
        for route in &self.routes {
            if let Some(same) = before.routes.iter().find(|it| it.is_same(route)) {
                route.recent.inherit(&same.recent);
            }
        }
    }

    /// The upstreams' names and addresses, in a form for people.
    #[must_use]
    pub fn shown(&self) -> String {
        let addresses = |upstream: &Arc<Upstream>| {
            let all: Vec<_> = upstream.addresses.iter().map(Address::to_string).collect();
            all.join(", ")
        };
        match self.upstreams.as_slice() {
            [only] => addresses(only),
            several => several
                .iter()
                .map(|upstream| format!("{} ({})", upstream.name, addresses(upstream)))
                .collect::<Vec<_>>()
                .join("; "),
        }
    }
}

fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || prefix.is_empty())
}

fn without_port(host: &str) -> &str {
    match host.rfind(':') {
        // Colons within brackets belong to the address.
        Some(colon) if !host.ends_with(']') => &host[..colon],
        _ => host,
    }
}

#[cfg(test)]
mod tests;
