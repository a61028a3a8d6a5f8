//! Routes from requests to upstreams.

mod config;
mod fault;
mod written;

pub use config::{HealthCheckConfig, RouteConfig, RoutesConfig, UpstreamConfig};
pub use fault::{BadRoutes, RoutesFault};

use std::sync::Arc;

use http::Uri;
use ratekeeper_http::{Target, spelling};

use crate::upstream::{Address, Upstream};

/// A routing table by host and path.
#[derive(Debug)]
pub struct Routes {
    /// The routes, the most specific first.
    routes: Vec<Route>,
    upstreams: Vec<Arc<Upstream>>,
}

#[derive(Debug)]
struct Route {
    host: HostMatch,
    /// The path prefix without a trailing slash: `/orders` matches `/orders`, `/orders/` and `/orders/7`.
    path: Box<str>,
    upstream: Arc<Upstream>,
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
    /// The upstream for a request for `uri`, and to `host`, which may have a port, as a header says. Hosts go before
    /// paths: an exact host, then the longest suffix, then any; within one the longest prefix. Both are looked at in the
    /// spelling that rules see.
    pub(crate) fn find(&self, host: &[u8], uri: &Uri) -> Option<&Arc<Upstream>> {
        if let [route] = self.routes.as_slice()
            && route.host == HostMatch::Any
            && route.path.is_empty()
        {
            return Some(&route.upstream);
        }
        let host = spelling::host(host).unwrap_or_default();
        let target = Target::of(uri);
        let path = target.as_ref().map_or("", |target| &*target.path);
        let found = self
            .routes
            .iter()
            .find(|route| route.host.matches(&host) && is_below(path, &route.path))?;
        Some(&found.upstream)
    }

    pub(crate) fn upstreams(&self) -> &[Arc<Upstream>] {
        &self.upstreams
    }

    /// Takes over the health known about upstreams of the same name.
    pub(crate) fn inherit(&self, before: &Self) {
        for upstream in &self.upstreams {
            if let Some(same) = before.upstreams.iter().find(|it| it.name == upstream.name) {
                upstream.inherit(same);
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
