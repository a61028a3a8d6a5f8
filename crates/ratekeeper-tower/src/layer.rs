//! The layer, and how it is set up.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use ratekeeper_http::answer::{BodyForm, Headers};
use ratekeeper_http::{Describer, Forwarding, Hop, Identity, Mapping};
use tower_layer::Layer;

use crate::pacer::Pacer;
use crate::watch::{Counts, Watch};
use crate::{RateLimit, Switch};

/// The longest that a request is held back unless that is changed.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The most requests that are held back at a time unless that is changed.
const WAITING_MAX: u64 = 1_024;

/// Limits the requests to the services it is laid around. Clones share what they count, and their switch.
#[derive(Clone, Debug)]
pub struct RateLimitLayer<E> {
    pub(crate) shared: Arc<Shared<E>>,
}

/// What the services of a layer share.
#[derive(Clone, Debug)]
pub(crate) struct Shared<E> {
    pub(crate) enforcer: E,
    /// The domain that holds where the describer names none and the rules do not settle it.
    pub(crate) domain: Option<Box<str>>,
    pub(crate) describer: Describer,
    pub(crate) forwarding: Forwarding,
    pub(crate) peer: fn(&Extensions) -> Option<Hop>,
    pub(crate) headers: Headers,
    pub(crate) body_form: BodyForm,
    pub(crate) wait_max: Duration,
    pub(crate) waiting_max: u64,
    pub(crate) switch: Switch,
    pub(crate) watch: Arc<Watch>,
    pub(crate) pacer: Arc<Pacer>,
}

impl<E: Clone> RateLimitLayer<E> {
    /// A layer that asks `enforcer`, such as a limiter in an [`Arc`], about the rules of `domain`.
    #[must_use]
    pub fn new(enforcer: E, domain: &str) -> Self {
        Self {
            shared: Arc::new(Shared {
                enforcer,
                domain: (!domain.is_empty()).then(|| domain.into()),
                describer: Describer {
                    domain: Some(domain.into()),
                    ..Describer::default()
                },
                forwarding: Forwarding::default(),
                peer: peer_in_extensions,
                headers: Headers::default(),
                body_form: BodyForm::default(),
                wait_max: WAIT_MAX,
                waiting_max: WAITING_MAX,
                switch: Switch::default(),
                watch: Arc::new(Watch::new()),
                pacer: Arc::default(),
            }),
        }
    }

    /// What rules are asked about a request. By default one descriptor each for its `remote_address`, its `api_key` (the
    /// header `x-api-key`), its `method` and its `path`.
    #[must_use]
    pub fn mapping(self, mapping: Mapping) -> Self {
        self.with(|shared| shared.describer.mapping = mapping)
    }

    /// How a request tells who calls, for service levels and for descriptors that want it. By default the header
    /// `x-api-key`, else the client's address.
    #[must_use]
    pub fn identity(self, identity: Identity) -> Self {
        self.with(|shared| shared.describer.identity = identity)
    }

    /// Domain, mapping and identity at once, as settings have them. Without a domain it is the only one that the rules
    /// have. If they come to have several, or are a service's, it is the one that the layer was made with, or the first of
    /// the rules if they have no such domain; that is logged and counted as [`unclear`](Counts::unclear).
    #[must_use]
    pub fn describer(self, describer: Describer) -> Self {
        self.with(|shared| shared.describer = describer)
    }

    /// Which proxies are believed about a client's address, and in which header; by default those on this host.
    #[must_use]
    pub fn forwarding(self, forwarding: Forwarding) -> Self {
        self.with(|shared| shared.forwarding = forwarding)
    }

    /// Where a request's extensions say who sent it: whoever connected, which may be a proxy. By default a [`Hop`], else a
    /// [`SocketAddr`]. axum has a `ConnectInfo`, tonic a `TcpConnectInfo`.
    #[must_use]
    pub fn peer(self, peer: fn(&Extensions) -> Option<Hop>) -> Self {
        self.with(|shared| shared.peer = peer)
    }

    /// In which headers clients are told of their limits.
    #[must_use]
    pub fn headers(self, headers: Headers) -> Self {
        self.with(|shared| shared.headers = headers)
    }

    /// The form of a refusal's body, for requests that do not say which they want.
    #[must_use]
    pub fn body_form(self, form: BodyForm) -> Self {
        self.with(|shared| shared.body_form = form)
    }

    /// The longest that a request is held back by a leaky bucket; one that would have to wait longer is denied. 10 s by
    /// default; zero denies all that would have to wait. One that is denied leaves its turn to others. Turns that are less than 30 ms apart are kept to about a
    /// tenth of a millisecond, others to one or two, on a machine that has processors free; behind a request that left
    /// late the others keep 92 % of their distance. The turn of a client that goes is free again if nobody has one
    /// behind it.
    #[must_use]
    pub fn wait_max(self, wait: Duration) -> Self {
        self.with(|shared| shared.wait_max = wait)
    }

    /// The most requests that are held back at a time. While so many are, one that would have to wait is denied with 429,
    /// and told when its turn would come; those that asked a store at the moment when the last place went get 503. 1,024 by
    /// default.
    #[must_use]
    pub fn waiting_max(self, requests: u64) -> Self {
        self.with(|shared| shared.waiting_max = requests)
    }

    /// What switches the layer off, to watching, and on while it runs.
    #[must_use]
    pub fn switch(self, switch: Switch) -> Self {
        self.with(|shared| shared.switch = switch)
    }

    fn with(mut self, change: impl FnOnce(&mut Shared<E>)) -> Self {
        change(Arc::make_mut(&mut self.shared));
        self
    }
}

impl<E> RateLimitLayer<E> {
    /// What was counted since the layer was made.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.watch.counts()
    }
}

impl<S, E> Layer<S> for RateLimitLayer<E> {
    type Service = RateLimit<S, E>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.shared))
    }
}

fn peer_in_extensions(extensions: &Extensions) -> Option<Hop> {
    let hop = extensions.get::<Hop>().copied();
    hop.or_else(|| {
        let address = extensions.get::<SocketAddr>()?;
        Some(Hop::Address(address.ip()))
    })
}
