//! Serving until the shutdown, and draining.

use std::future::Future;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ratekeeper_rules::{Change, RuleSet};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::listeners::Listeners;
use super::maintenance;
use super::{Drained, Server};
use crate::admin;
use crate::app::App;
use crate::config::gateway::{GatewayService, NoGateway};
use crate::fleet;
use crate::grpc::{Grpc, Health};
use crate::http;
use crate::listen::drain::Drain;
use crate::listen::{ConnectionSlots, Listener, ServerBounds, Workers};
use crate::reload::follow::{Followed, FollowedFiles};
use crate::reload::{ReloadStatus, Reloader, RulesLoader, WatchConfig};

/// The longest time for which a node that leaves posts to other regions.
const POSTING_LAST: Duration = Duration::from_secs(2);

impl Server {
    /// Serves until `shutdown` completes, then drains: readiness goes first, and requests are
    /// served for the drain delay. Then no more connections are accepted, HTTP/2 peers get GOAWAY,
    /// and requests under way are answered, within the drain timeout. The admin listener stops
    /// last.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Drained {
        self.run_behind(None::<Arc<NoGateway>>, shutdown).await
    }

    /// Runs as [`Self::run`] does, with `gateway` on the listener of the configuration's `gateway`,
    /// which drains as the others do. Without that listener, or without `gateway`, there is no
    /// gateway.
    pub async fn run_behind<F: GatewayService>(
        self,
        gateway: Option<Arc<F>>,
        shutdown: impl Future<Output = ()>,
    ) -> Drained {
        let Self {
            app,
            loader,
            reloads,
            wake,
            delay,
            health,
            service,
            listeners,
            workers,
        } = self;
        let config = &app.config;
        let bounds = config.bounds;
        let room = ConnectionSlots::new(config.connections_max);
        let mut tasks = JoinSet::new();
        if let Some(loader) = loader {
            let reloader = reloader(&app, config.watch, loader, reloads, &wake);
            tasks.spawn(maintenance::reload(Arc::clone(&app), reloader));
        }
        begin_maintenance(&mut tasks, &app, gateway.as_ref(), config.watch, wake);

        let Listeners {
            grpc,
            http,
            admin,
            metrics,
            gateway: gateway_listener,
        } = listeners;
        let last = Arc::new(Drain::new());
        let watching = serve_operators(&app, admin, metrics, bounds, &last);
        let mut serving = serve_checks(&app, (grpc, service), http, &room, &workers);
        let (mut settling, mut patience) = (None, Duration::ZERO);
        if let Some(((listener, bounds), gateway)) = gateway_listener.zip(gateway) {
            patience = bounds.drain_timeout;
            settling = Some(Arc::clone(&gateway));
            let answers: Vec<_> = (0..workers.count()).map(|_| gateway.service()).collect();
            let answers = move |worker: usize| answers[worker].clone();
            let drain = Arc::clone(&app.drain);
            serving.spawn(listener.serve(answers, bounds, room, drain, workers.turns()));
        }

        follow_readiness(&app, &health, shutdown).await;
        app.leave();
        health.set(false).await;
        info!(delay = ?config.drain_delay, "shutting down: /readyz fails, requests are still served during the drain delay");
        delay.pass(config.drain_delay).await;
        info!("draining: answering requests in flight");
        app.drain.begin();
        health.close().await;
        let begun = Instant::now();
        let cut = total(serving).await;
        if let Some(gateway) = settling {
            settle(&*gateway, patience.saturating_sub(begun.elapsed())).await;
        }
        post_last(&app, bounds.drain_timeout.saturating_sub(begun.elapsed())).await;
        last.begin_within(time_of_operators(bounds.drain_timeout, begun.elapsed()));
        let cut = cut + total(watching).await;
        tasks.shutdown().await;
        tokio::join!(maintenance::send_last_counts(&app), fleet::leave(&app));
        Drained { cut }
    }
}

/// Serves checks on the workers, by gRPC and by HTTP.
fn serve_checks(
    app: &Arc<App>,
    (grpc, service): (Option<Listener>, Grpc),
    http: Option<Listener>,
    room: &ConnectionSlots,
    workers: &Workers,
) -> JoinSet<usize> {
    let bounds = app.config.bounds;
    let mut serving = JoinSet::new();
    if let Some(grpc) = grpc {
        let service = move |_| service.clone();
        let (room, drain) = (room.clone(), Arc::clone(&app.drain));
        serving.spawn(grpc.serve_direct(service, bounds, room, drain, workers.turns()));
    }
    if let Some(http) = http {
        let service = http::router(Arc::clone(app));
        let service = move |_| service.clone();
        let (room, drain) = (room.clone(), Arc::clone(&app.drain));
        let bounds = of_http(bounds);
        serving.spawn(http.serve(service, bounds, room, drain, workers.turns()));
    }
    serving
}

/// The bounds of connections that do not speak gRPC: idle ones go by `idle_timeout` alone.
const fn of_http(bounds: ServerBounds) -> ServerBounds {
    ServerBounds {
        connection_idle_max: None,
        ..bounds
    }
}

/// Waits for work of the gateway whose clients are gone, no longer than `left`.
async fn settle(gateway: &impl GatewayService, left: Duration) {
    let unfinished = gateway.settle(left).await;
    if unfinished > 0 {
        warn!(
            requests = unfinished,
            "drain timeout: cutting off requests whose clients are gone"
        );
    }
}

/// Posts to other regions what this node has counted last, no longer than `left`.
async fn post_last(app: &App, left: Duration) {
    if let Some(loans) = app.region_loans() {
        loans.leave(left.min(POSTING_LAST)).await;
    }
}

/// Starts the background work. SIGHUP reloads certificates and, through `wake`, the rules' files.
fn begin_maintenance<F: GatewayService>(
    tasks: &mut JoinSet<()>,
    app: &Arc<App>,
    gateway: Option<&Arc<F>>,
    config: WatchConfig,
    wake: Arc<Notify>,
) {
    tasks.spawn(maintenance::upkeep(Arc::clone(app)));
    tasks.spawn(maintenance::share_top(Arc::clone(app)));
    tasks.spawn(maintenance::fleet(Arc::clone(app)));
    tasks.spawn(maintenance::send_counts(Arc::clone(app)));
    tasks.spawn(maintenance::watch_breakers(Arc::clone(app)));
    if let Some(gateway) = gateway {
        app.monitor(Arc::clone(gateway) as _);
        tasks.spawn(maintenance::gateway(Arc::clone(app), Arc::clone(gateway)));
    }
    let mut wakes = vec![wake];
    let certificates = app
        .tls
        .iter()
        .map(|tls| Arc::clone(tls) as Arc<dyn Followed>);
    let all = certificates.chain(gateway.and_then(|gateway| gateway.files()));
    let all: Vec<_> = all.collect();
    app.monitor(Arc::new(FollowedFiles(all.clone())));
    for files in all {
        let wake = Arc::new(Notify::new());
        tasks.spawn(maintenance::files(
            Arc::clone(app),
            files,
            config,
            Arc::clone(&wake),
        ));
        wakes.push(wake);
    }
    tasks.spawn(maintenance::wake_on_hangup(Arc::clone(app), wakes));
}

/// The connections of the admin listener, and of that for metrics: room that is theirs alone.
pub const OPERATORS_MAX: usize = 32;

/// The least time that a request of an operator may take: to reach the quota database, an import of the longest kind, and
/// until that is in force here.
const OPERATORS_TIME: Duration = Duration::from_secs(43);

/// The silence after which a connection of an operator is closed, whatever clients have: there are few of them, and a
/// request that is answered only after [`OPERATORS_TIME`] is silent for as long.
const OPERATORS_IDLE: Duration = Duration::from_secs(60);

/// The bounds of the admin listener, and of that for metrics.
fn of_operators(bounds: ServerBounds) -> ServerBounds {
    let request_timeout = bounds.request_timeout.max(OPERATORS_TIME);
    ServerBounds {
        connections_max: OPERATORS_MAX,
        connections_per_address_max: OPERATORS_MAX / 2,
        idle_timeout: OPERATORS_IDLE
            .max(request_timeout.saturating_add(OPERATORS_IDLE - OPERATORS_TIME)),
        request_timeout,
        ..of_http(bounds)
    }
}

/// The most and the least time that requests of operators get to finish once all others have. Whoever stops the node waits
/// for both, and kills what has not ended by then.
const OPERATORS_LAST: RangeInclusive<Duration> =
    Duration::from_millis(500)..=Duration::from_secs(5);

/// The time for requests of operators in a drain that has lasted `elapsed`: what is left of the drain timeout, within
/// bounds.
fn time_of_operators(drain_timeout: Duration, elapsed: Duration) -> Duration {
    let left = drain_timeout.saturating_sub(elapsed);
    left.clamp(*OPERATORS_LAST.start(), *OPERATORS_LAST.end())
}

/// Serves operators on the calling task's runtime, so that they get answers however busy the
/// workers are.
fn serve_operators(
    app: &Arc<App>,
    admin: Listener,
    metrics: Option<Listener>,
    bounds: ServerBounds,
    drain: &Arc<Drain>,
) -> JoinSet<usize> {
    let bounds = of_operators(bounds);
    let room = || ConnectionSlots::new(OPERATORS_MAX);
    let here = Workers::here();
    let mut watching = JoinSet::new();
    let service = admin::router(Arc::clone(app));
    let service = move |_| service.clone();
    watching.spawn(admin.serve(service, bounds, room(), Arc::clone(drain), here.turns()));
    if let Some(metrics) = metrics {
        let service = admin::metrics_router(Arc::clone(app));
        let service = move |_| service.clone();
        watching.spawn(metrics.serve(service, bounds, room(), Arc::clone(drain), here.turns()));
    }
    watching
}

fn reloader(
    app: &Arc<App>,
    config: WatchConfig,
    loader: RulesLoader,
    reloads: watch::Sender<ReloadStatus>,
    wake: &Arc<Notify>,
) -> Reloader<impl Fn(RuleSet) -> Vec<Change> + Send + Sync + 'static + use<>> {
    let app = Arc::clone(app);
    let apply = move |rules: RuleSet| {
        let own = app.limiter.own_counters();
        let changes = rules.changes_with(app.limiter.snapshot().rules(), own);
        let refuses_some = !rules.refused_domains().is_empty();
        app.limiter.replace_rules(rules);
        app.set_loaded(refuses_some);
        changes
    };
    Reloader::new(loader, config, reloads, Arc::clone(wake), apply)
}

/// Waits for `shutdown`, and meanwhile tells health checks when the first rules are in force.
async fn follow_readiness(app: &App, health: &Health, shutdown: impl Future<Output = ()>) {
    let mut reloads = app.reloads.clone();
    let readiness = async {
        // The sender lives as long as the reloader, which nothing ends before the drain.
        if reloads.wait_for(ReloadStatus::is_loaded).await.is_ok() {
            health.set(true).await;
        }
        std::future::pending().await
    };
    tokio::select! {
        () = shutdown => {}
        () = readiness => {}
    }
}

/// The sum of what the tasks answer; one that panicked cut off no one knows how many.
async fn total(mut tasks: JoinSet<usize>) -> usize {
    let mut total = 0;
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(cut) => total += cut,
            Err(error) => warn!(%error, "a listener failed"),
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_grpc_goes_by_its_idle_time() {
        let bounds = ServerBounds {
            connection_idle_max: Some(Duration::from_secs(2)),
            ..ServerBounds::default()
        };
        assert_eq!(of_http(bounds).connection_idle_max, None);
        assert_eq!(of_operators(bounds).connection_idle_max, None);
    }

    #[test]
    fn operators_are_waited_for_whatever_clients_have() {
        for seconds in [30, 90, 86_400] {
            let bounds = of_operators(ServerBounds {
                idle_timeout: Duration::from_secs(seconds),
                ..ServerBounds::default()
            });
            assert!(bounds.idle_timeout > bounds.request_timeout, "{seconds} s");
            assert_eq!(bounds.idle_timeout, OPERATORS_IDLE, "{seconds} s");
        }
    }

    #[test]
    fn operators_get_what_the_drain_leaves_them() {
        let ms = Duration::from_millis;
        for (elapsed, time) in [
            (0, 5_000),
            (15_000, 5_000),
            (17_000, 3_000),
            (19_600, 500),
            (20_000, 500),
            (90_000, 500),
        ] {
            let given = time_of_operators(ms(20_000), ms(elapsed));
            assert_eq!(given, ms(time), "after {elapsed} ms");
        }
    }
}
