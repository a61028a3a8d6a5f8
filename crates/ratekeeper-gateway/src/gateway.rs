//! The gateway: limits, the proxy behind them, and the metrics and health of both.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::Extensions;
use parking_lot::Mutex;
use ratekeeper_http::{Forwarding, Hop};
use ratekeeper_limiter::CheckObserver;
use ratekeeper_server::{
    ClassShedding, DenialLog, Families, Followed, GatewayService, Monitored, Patience, Peer,
    Shedding, UpstreamShedding, by,
};
use ratekeeper_tower::{Enforcer, RateLimit, RulesLayer, Shedder, SpentFrom, UsageTotals};
use ratekeeper_trace::{RequestSpan, TracedCall, Tracer};
use tokio::sync::Notify;
use tower::Layer;
use tracing::{error, info};

use crate::denials;
use crate::edge::Edge;
use crate::fleet::{self, FleetPeers};
use crate::health;
use crate::log::AccessLog;
use crate::metrics::{self, UpstreamCounts};
use crate::peek::BodyNeeds;
use crate::proxy::Proxy;
use crate::routes::{BadRoutes, Routes, RoutesConfig};
use crate::shared::Shared;
use crate::shed_metrics;
use crate::upstream::{Address, Health};

/// The settings of a [`Gateway`] besides its limits.
#[derive(Debug)]
pub struct GatewayConfig {
    /// The routes that requests take.
    pub routes: RoutesConfig,
    /// The proxies that are trusted to tell a client's address.
    pub forwarding: Forwarding,
    /// True if clients connect over TLS; upstreams are told so.
    pub is_encrypted: bool,
    /// The largest body of a request, in bytes.
    pub body_bytes_max: u64,
    /// The patience with a client that is slow to send the body of its request, or with either side of
    /// an upgraded connection that is slow to take what the other has sent.
    pub patience: Patience,
    /// The time without a byte in either direction after which an upgraded connection is closed.
    pub tunnel_silence_max: Duration,
    /// The access log; None to log no requests.
    pub log: Option<AccessLog>,
    /// Takes in the requests that are denied.
    pub denials: Arc<DenialLog>,
    /// Traces requests; None to trace none.
    pub tracer: Option<Tracer>,
    /// The board that the gateways of a fleet share; None for a gateway that stands alone.
    pub fleet: Option<Arc<dyn FleetPeers>>,
    /// Files that new routes come from.
    pub files: Option<Arc<dyn Followed>>,
}

/// A handle that replaces the routes of a running gateway. Clones refer to the same gateway.
#[derive(Clone, Debug)]
pub struct RoutesHandle(Arc<Shared>);

impl RoutesHandle {
    /// Routes new requests by `config`; those under way are not affected.
    ///
    /// # Errors
    /// The routes are refused whole, and the last good ones stay.
    pub fn replace(&self, config: &RoutesConfig) -> Result<(), BadRoutes> {
        let routes = Routes::new(config, &mut |name| self.0.kept_of(name));
        match routes {
            Ok(routes) => {
                info!(upstreams = routes.shown(), "new routes in use");
                routes.inherit(&self.0.routes.load());
                self.0.routes.store(Arc::new(routes));
                self.0.replaced.notify_one();
                Ok(())
            }
            Err(error) => {
                error!(%error, "new routes refused; the last good ones stay in use");
                Err(error)
            }
        }
    }
}

/// A reverse proxy that limits what it forwards: the [`GatewayService`] of a server.
#[derive(Debug)]
pub struct Gateway<E> {
    shared: Arc<Shared>,
    layer: RulesLayer<E>,
    files: Option<Arc<dyn Followed>>,
}

impl<E: Enforcer> Gateway<E> {
    /// Makes a gateway that passes every request through `layer` first.
    ///
    /// # Errors
    /// The routes are invalid, or an upstream's certificate authorities cannot be read.
    pub fn new(config: GatewayConfig, layer: RulesLayer<E>) -> Result<Self, BadRoutes> {
        let mut kept = BTreeMap::new();
        let routes = Routes::new(&config.routes, &mut |name| {
            Arc::clone(kept.entry(name.into()).or_default())
        })?;
        let log = Arc::clone(&config.denials);
        let mut layer = layer
            .forwarding(config.forwarding.clone())
            .peer(peer)
            .denial_observer(move |denied| denials::record(&log, &denied));
        if config.tracer.is_some() {
            layer = layer.check_observer(check_observer);
        }
        if config.is_encrypted {
            layer = layer.encrypted();
        }
        let shared = Shared {
            routes: ArcSwap::from_pointee(routes),
            replaced: Notify::new(),
            forwarding: config.forwarding,
            scheme: if config.is_encrypted { "https" } else { "http" },
            body_bytes_max: config.body_bytes_max,
            limits: layer.mode_switch(),
            body_needs: BodyNeeds::new(layer.body_places(), layer.has_rpc_ids()),
            patience: config.patience,
            tunnel_silence_max: config.tunnel_silence_max,
            log: config.log,
            denials: config.denials,
            tracer: config.tracer,
            shedder: Arc::default(),
            fleet: config.fleet,
            own: UpstreamCounts::default(),
            kept: Mutex::new(kept),
        };
        Ok(Self {
            shared: Arc::new(shared),
            layer,
            files: config.files,
        })
    }

    /// The handle to replace the routes with.
    #[must_use]
    pub fn routes(&self) -> RoutesHandle {
        RoutesHandle(Arc::clone(&self.shared))
    }

    /// The upstreams, in a form for people.
    #[must_use]
    pub fn upstreams(&self) -> String {
        self.shared.routes.load().shown()
    }
}

fn peer(extensions: &Extensions) -> Option<Hop> {
    extensions.get::<Peer>().map(crate::head::hop)
}

/// The observer of the check of a request that is traced.
fn check_observer(extensions: &Extensions) -> Option<Arc<dyn CheckObserver>> {
    let span = extensions.get::<Arc<RequestSpan>>()?;
    Some(span.check(TracedCall::check("gateway")))
}

impl<E: Enforcer + fmt::Debug> GatewayService for Gateway<E> {
    type Service = Edge<RateLimit<Proxy, E>>;

    fn service(&self) -> Self::Service {
        let proxy = Proxy::new(Arc::clone(&self.shared));
        Edge::new(self.layer.layer(proxy), Arc::clone(&self.shared))
    }

    fn files(&self) -> Option<Arc<dyn Followed>> {
        self.files.clone()
    }

    fn maintenance(&self) -> impl Future<Output = ()> + Send + 'static {
        let (checks, reports) = (Arc::clone(&self.shared), Arc::clone(&self.shared));
        let layer = self.layer.clone();
        let follow = move |shedder: &Shedder| layer.tell_shed_rules(shedder);
        // Neither ends by itself: if one does, the server begins both again.
        async {
            tokio::select! {
                () = health::check(checks) => {}
                () = fleet::share(reports, follow) => {}
            }
        }
    }

    fn settle(&self, patience: Duration) -> impl Future<Output = usize> + Send {
        let kept = self.shared.kept.lock();
        let all: Vec<_> = kept.values().map(|it| it.abandoned.clone()).collect();
        drop(kept);
        let end = Instant::now() + patience;
        async move {
            let mut cut = 0;
            for abandoned in all {
                let left = end.saturating_duration_since(Instant::now());
                cut += abandoned.settle(left).await;
            }
            cut
        }
    }
}

impl<E: Enforcer + fmt::Debug> Monitored for Gateway<E> {
    fn subject(&self) -> &'static str {
        "gateway"
    }

    fn shed(&self) -> u64 {
        let counts = self.shared.shedder.counts();
        counts.shed.iter().flat_map(|(_, row)| row).sum()
    }

    fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        let kept = self.shared.kept.lock();
        let upstreams = kept.iter().map(|(name, kept)| (&**name, &*kept.counts));
        let all = upstreams.chain([("", &self.shared.own)]);
        let abandoned = kept.iter();
        let abandoned = abandoned.map(|(name, kept)| (&**name, kept.abandoned.count() as u64));
        metrics::encode(all, abandoned, families)?;
        let sites = kept.iter().map(|(name, kept)| (&**name, &*kept.site));
        let shedder = &self.shared.shedder;
        shed_metrics::encode(shedder, sites, families)?;
        self.encode_health(families)?;
        let counts = self.layer.counts();
        let held = [
            ("denied", counts.denied),
            ("shadow_denied", counts.shadow_denied),
            ("waited", counts.waited),
            ("overloaded", counts.overloaded),
            ("malformed", counts.malformed),
            ("unclear", counts.unclear),
            ("degraded", counts.degraded),
        ];
        let help = "Requests by what the gateway did: denied, would have denied, delayed, or refused for other reasons";
        families.counters("ratelimit_gateway_held", help, by("what", held))?;
        encode_usage(&counts.usage, families)?;
        if let Some(log) = &self.shared.log {
            let help = "Lines dropped from the access log because it could not keep up";
            families.counter("ratelimit_gateway_access_log_dropped", help, log.dropped())?;
        }
        Ok(())
    }

    fn shedding(&self) -> Option<Shedding> {
        let shedder = &self.shared.shedder;
        let fleet = shedder.fleet_usage();
        let routes = self.shared.routes.load();
        let upstreams = routes.upstreams().iter().map(|upstream| {
            let site = &upstream.site;
            let state = site.state(shedder);
            UpstreamShedding {
                name: upstream.name.to_string(),
                limit: state.limit,
                in_flight: state.in_flight,
                utilisation: state.utilisation,
                share_shed: state.share_shed,
                classes: site
                    .classes(shedder)
                    .map(|class| ClassShedding {
                        part_shed: class.part_shed,
                        limit: class.limit,
                    })
                    .collect(),
            }
        });
        Some(Shedding {
            fleet_own: fleet.own,
            fleet_others: fleet.others,
            fleet_is_stale: fleet.is_stale,
            upstreams: upstreams.collect(),
        })
    }

    fn faults(&self) -> Vec<String> {
        let routes = self.shared.routes.load();
        let mut faults = Vec::new();
        if self.shared.shedder.fleet_usage().is_stale {
            let fault =
                "the usage of the rest of the fleet is not known: its last report stays in force";
            faults.push(fault.to_owned());
        }
        for upstream in routes.upstreams() {
            let mut note = |what: &str, is_so: fn(&Address) -> bool| {
                let found = upstream.addresses.iter().filter(|it| is_so(it));
                let found: Vec<_> = found.map(Address::to_string).collect();
                if !found.is_empty() {
                    faults.push(format!(
                        "upstream {} {what} at {}",
                        upstream.name,
                        found.join(", ")
                    ));
                }
            };
            note("cannot be reached", Address::is_left_alone);
            note("fails its health check", |it| {
                it.health() == Health::Unhealthy
            });
        }
        faults
    }
}

/// Encodes what responses told of their usage, from the start at zero.
fn encode_usage(usage: &UsageTotals, families: &mut Families<'_>) -> fmt::Result {
    let names = SpentFrom::ALL.map(SpentFrom::name);
    let help = "Responses whose usage was read for budgets, by what told it";
    let responses = names.into_iter().zip(usage.responses);
    families.counters("ratelimit_usage_responses", help, by("from", responses))?;
    let help = "Hits charged to budgets when responses ended, by what told them";
    let hits = names.into_iter().zip(usage.hits);
    families.counters("ratelimit_usage_hits", help, by("from", hits))
}

impl<E> Gateway<E> {
    /// Encodes the health of the addresses of all upstreams that have health checks.
    fn encode_health(&self, families: &mut Families<'_>) -> fmt::Result {
        let states = [
            (Health::Unknown, "unknown"),
            (Health::Healthy, "healthy"),
            (Health::Unhealthy, "unhealthy"),
        ];
        let routes = self.shared.routes.load();
        let upstreams = routes.upstreams().iter();
        let checked = upstreams.filter(|upstream| upstream.health_check.is_some());
        let counts = checked.flat_map(|upstream| {
            states.map(|(health, state)| {
                let addresses = upstream.addresses.iter();
                let count = addresses.filter(|it| it.health() == health).count();
                (
                    [("upstream", &*upstream.name), ("state", state)],
                    count as u64,
                )
            })
        });
        let help = "Addresses of an upstream by health";
        families.gauges("ratelimit_gateway_upstream_addresses", help, counts)
    }
}
