//! Faults of the settings of routes and upstreams.

use ratekeeper_http::Malformed;
use ratekeeper_tls::TlsFileError;

/// The reason why routes are refused.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {fault}")]
pub struct BadRoutes {
    /// The place in the settings: `upstreams.orders`, `routes[2]`.
    pub place: String,
    /// The problem there.
    pub fault: RoutesFault,
}

impl BadRoutes {
    pub(super) fn new(place: impl Into<String>, fault: RoutesFault) -> Self {
        Self {
            place: place.into(),
            fault,
        }
    }
}

/// The fault behind [`BadRoutes`]. Its text says what to write instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RoutesFault {
    /// There is no upstream at all.
    #[error(
        "there is nothing to forward to; write --upstream http://127.0.0.1:3000, or `upstreams:` and `routes:` in \
         ratekeeper.yaml"
    )]
    NoUpstream,
    /// There are several upstreams, and no route says which requests each gets.
    #[error(
        "there are several upstreams; say which requests each is for, as in `- {{ path: /orders, upstream: orders }}`"
    )]
    NoRoutes,
    /// There are more routes or upstreams than this.
    #[error("there are more than {0}")]
    TooMany(usize),
    /// A route names an upstream that does not exist.
    #[error("there is no upstream `{name}`; there are {known}")]
    UnknownUpstream {
        /// The name.
        name: Box<str>,
        /// The names of those that exist.
        known: Box<str>,
    },
    /// A wildcard that matches no subdomains.
    #[error("`{0}` is not a host; write *.example.com")]
    Wildcard(Box<str>),
    /// A host of a route that no request can have.
    #[error("`{0}` is not a host; write a name without a port")]
    RouteHost(Box<str>),
    /// A path of a route that is not a plain prefix.
    #[error("`{0}` is not a path; write a prefix, such as /orders")]
    Path(Box<str>),
    /// A path of a route that no request can have.
    #[error(transparent)]
    Target(#[from] Malformed),
    /// Two routes match the same requests.
    #[error("another route is for the same host and path; keep one of the two")]
    SameRoute,
    /// An upstream has an empty name.
    #[error("an upstream needs a name")]
    NoName,
    /// An upstream has no URL, or more than this.
    #[error("expected 1 to {0} URLs")]
    Urls(usize),
    /// The URLs of an upstream are of several kinds.
    #[error("its URLs must all have the same scheme: http, h2c or https")]
    MixedUrls,
    /// A URL that names no upstream.
    #[error(
        "`{0}` is not a URL of an upstream; write http://HOST:PORT, h2c://HOST:PORT, https://HOST or unix:/PATH"
    )]
    Url(Box<str>),
    /// A URL with a path.
    #[error("`{0}`: leave its path out; requests are forwarded with the path they have")]
    UrlPath(Box<str>),
    /// A path that is no Unix socket.
    #[error("`{0}` is not a Unix socket; write its whole path, as in unix:/run/app.sock")]
    UnixSocket(Box<str>),
    /// Settings of TLS for an upstream without it.
    #[error("`ca` and `server_name` mean nothing without https")]
    NotEncrypted,
    /// The authorities of an upstream cannot be used.
    #[error("ca: {0}")]
    Authorities(#[from] TlsFileError),
    /// No certificate can have this name.
    #[error("server_name: `{0}` is not a name")]
    ServerName(Box<str>),
    /// No request can have this `Host`.
    #[error("`{0}` is not a host")]
    Host(Box<str>),
    /// The path of a health check is not a path.
    #[error("health_check: `{0}` is not a path; write one such as /healthz")]
    HealthPath(Box<str>),
    /// A time of a health check is too short or too long.
    #[error("health_check: `{0}` must be from 10ms to 1h")]
    HealthTime(&'static str),
    /// A threshold of a health check is 0.
    #[error("health_check: thresholds begin at 1")]
    HealthThreshold,
}
