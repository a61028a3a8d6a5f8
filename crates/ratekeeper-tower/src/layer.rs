//! The layer and its settings.

use std::hash::RandomState;
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use ratekeeper_http::answer::{BodyForm, Headers, HttpDenial};
use ratekeeper_http::{Describer, Forwarding, Hop, Identity, Mapping};
use ratekeeper_limiter::CheckObserver;
use ratekeeper_rules::{JsonPointer, UsageRules};
use tower_layer::Layer;

use crate::observer::DenialObserver;
use crate::peer::peer_in_extensions;
use crate::shared::Shared;
use crate::watch::{LINES_PER_SECOND, LayerCounts, Watch};
use crate::{Enforcer, RateLimit, Shedder, Switch};

/// The default for the longest delay of a request.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The default for the most requests delayed at a time.
const WAITING_MAX: u64 = 1_024;

/// Limits the requests to the services that it wraps. Clones share counters and switch.
#[derive(Clone, Debug)]
pub struct RulesLayer<E> {
    pub(crate) shared: Arc<Shared<E>>,
}

impl<E: Clone> RulesLayer<E> {
    /// A layer that asks `enforcer`, such as a limiter in an [`Arc`], with the rules of `domain`.
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
                scheme: "http",
                peer: peer_in_extensions,
                check_observer: None,
                usage: None,
                headers: Headers::default(),
                body_form: BodyForm::default(),
                wait_max: WAIT_MAX,
                waiting_max: WAITING_MAX,
                switch: Switch::default(),
                watch: Arc::new(Watch::new(LINES_PER_SECOND)),
                observer: None,
                pacer: Arc::default(),
                hasher: RandomState::new(),
            }),
        }
    }

    /// Sets the mapping of requests to descriptors. The default is one descriptor each for
    /// `remote_address`, `api_key` (the header `x-api-key`), `method` and `path`.
    #[must_use]
    pub fn mapping(self, mapping: Mapping) -> Self {
        self.with(|shared| shared.describer.mapping = mapping)
    }

    /// Sets the identification of callers, for service levels and for descriptors that use it. The
    /// default is the header `x-api-key`, else the client's address.
    #[must_use]
    pub fn identity(self, identity: Identity) -> Self {
        self.with(|shared| shared.describer.identity = identity)
    }

    /// Sets domain, mapping and identity at once, as settings have them. Without a domain it is the
    /// only one in the rules. If the rules get several, or belong to a service, it is the layer's
    /// own domain, or the first of the rules if they do not have that one; this is logged and
    /// counted as [`unclear`](LayerCounts::unclear).
    #[must_use]
    pub fn describer(self, describer: Describer) -> Self {
        self.with(|shared| shared.describer = describer)
    }

    /// Sets the trusted proxies, and the header with the client's address; by default proxies on
    /// this host.
    #[must_use]
    pub fn forwarding(self, forwarding: Forwarding) -> Self {
        self.with(|shared| shared.forwarding = forwarding)
    }

    /// Says that clients connect over TLS, so that `from: scheme` is `https`. Otherwise it is `http`. Trusted proxies tell
    /// what their clients did; what a client writes into its request does not count.
    #[must_use]
    pub fn encrypted(self) -> Self {
        self.with(|shared| shared.scheme = "https")
    }

    /// Sets the function that finds the peer, which may be a proxy, in a request's extensions. The
    /// default is a [`Hop`], else a [`SocketAddr`](std::net::SocketAddr). axum has a `ConnectInfo`, tonic a
    /// `TcpConnectInfo`.
    #[must_use]
    pub fn peer(self, peer: fn(&Extensions) -> Option<Hop>) -> Self {
        self.with(|shared| shared.peer = peer)
    }

    /// Sets the function that finds the observer of a request's check in the request's extensions, for traces. An
    /// enforcer that asks a service hands its context on.
    #[must_use]
    pub fn check_observer(
        self,
        observer: fn(&Extensions) -> Option<Arc<dyn CheckObserver>>,
    ) -> Self {
        self.with(|shared| shared.check_observer = Some(observer))
    }

    /// Sets the way in which responses tell what their requests used of budgets, in place of `usage:` of the domain.
    #[must_use]
    pub fn usage(self, rules: UsageRules) -> Self {
        self.with(|shared| shared.usage = Some(Arc::new(rules)))
    }

    /// Sets the headers that report limits to clients.
    #[must_use]
    pub fn headers(self, headers: Headers) -> Self {
        self.with(|shared| shared.headers = headers)
    }

    /// Sets the form of a refusal's body, for requests that do not ask for one.
    #[must_use]
    pub fn body_form(self, form: BodyForm) -> Self {
        self.with(|shared| shared.body_form = form)
    }

    /// Sets the longest delay by a leaky bucket; a request that would have to wait longer is
    /// denied, and leaves its turn to others. The default is 10 s; zero denies all requests that
    /// would have to wait. Turns less than 30 ms apart are kept to about a tenth of a millisecond,
    /// others to one or two, on a machine with free processors; requests behind a late one keep 92
    /// % of their distance. If a client disconnects, its turn is free again unless others have
    /// turns behind it.
    #[must_use]
    pub fn wait_max(self, wait: Duration) -> Self {
        self.with(|shared| shared.wait_max = wait)
    }

    /// The most requests that are held back at a time. While so many are, one that would have to wait is denied with 429,
    /// and told when its turn would come; those that asked a store at the moment when the last place went get 503. 1,024 by
    /// default. One client address (of IPv6, one /64) has at most an eighth of the places, and one rule half of them.
    #[must_use]
    pub fn waiting_max(self, requests: u64) -> Self {
        self.with(|shared| shared.waiting_max = requests)
    }

    /// Sets the most lines that are logged in a second about refused requests, 10 by default; 0 for none.
    #[must_use]
    pub fn refusal_lines_max(self, lines: u64) -> Self {
        self.with(|shared| shared.watch = Arc::new(Watch::new(lines)))
    }

    /// Has each denied request told to `observer`, which must not block, instead of logged here.
    #[must_use]
    pub fn denial_observer(
        self,
        observer: impl Fn(HttpDenial<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.with(|shared| shared.observer = Some(DenialObserver(Arc::new(observer))))
    }

    /// Sets the switch that turns the layer off, to shadow, and on while it runs.
    #[must_use]
    pub fn switch(self, switch: Switch) -> Self {
        self.with(|shared| shared.switch = switch)
    }

    /// The switch that changes its mode.
    #[must_use]
    pub fn mode_switch(&self) -> Switch {
        self.shared.switch.clone()
    }

    fn with(mut self, change: impl FnOnce(&mut Shared<E>)) -> Self {
        change(Arc::make_mut(&mut self.shared));
        self
    }
}

impl<E> RulesLayer<E> {
    /// The places in bodies of JSON that its descriptors and callers depend on. The layer reads no bodies: a service outside
    /// of it that does puts [`BodyValues`](ratekeeper_http::BodyValues) among a request's extensions.
    #[must_use]
    pub fn body_places(&self) -> Arc<[JsonPointer]> {
        self.shared.describer.body_places()
    }

    /// Returns true if refusals have the id of the call, which a service outside puts among a request's extensions as an
    /// [`RpcId`](ratekeeper_http::RpcId).
    #[must_use]
    pub fn has_rpc_ids(&self) -> bool {
        self.shared.body_form == BodyForm::JsonRpc
    }

    /// Returns the counts since the layer was made.
    #[must_use]
    pub fn counts(&self) -> LayerCounts {
        self.shared.watch.counts()
    }
}

impl<E: Enforcer> RulesLayer<E> {
    /// Tells `shedder` the rules in force. Requests bring them along only while there are some.
    pub fn tell_shed_rules(&self, shedder: &Shedder) {
        shedder.follow(self.shared.enforcer.shed_rules().as_ref());
    }
}

impl<S, E> Layer<S> for RulesLayer<E> {
    type Service = RateLimit<S, E>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.shared))
    }
}
