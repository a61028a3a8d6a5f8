//! Binding, serving, draining.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ratekeeper_limiter::Limiter;
use ratekeeper_rules::{Change, RuleSet};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::admin;
use crate::app::App;
use crate::chores;
use crate::config::{ServerConfig, WatchConfig};
use crate::drain::{Drain, DrainDelay};
use crate::grpc::{BadDescriptors, Grpc, Health};
use crate::http;
use crate::listen::{Listener, Protocol};
use crate::reload::{ReloadStatus, Reloader, RulesLoader};
use crate::store::ServedStore;

/// Where a server listens: what was asked for, with free ports in place of 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// gRPC.
    pub grpc: SocketAddr,
    /// HTTP.
    pub http: SocketAddr,
    /// Metrics and rules.
    pub admin: SocketAddr,
    /// Metrics alone, if they were asked for.
    pub metrics: Option<SocketAddr>,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} for {name}")]
    Listen {
        /// `grpc`, `http`, `admin` or `metrics`.
        name: &'static str,
        /// What was asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The admin listener asks nobody who they are.
    #[error(
        "the admin address {0} can be reached from other hosts; use a loopback address such as \
         127.0.0.1:6070, and --metrics for scrapers elsewhere"
    )]
    AdminNotLoopback(SocketAddr),
    /// The built-in descriptors do not fit together.
    #[error("the descriptors for reflection are broken")]
    Reflection(#[source] BadDescriptors),
}

/// How a server ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drained {
    /// Connections that had not finished when the drain timeout was over, and were cut off.
    pub cut: usize,
}

/// Makes a running server look at its rules' files; SIGHUP does the same.
#[derive(Clone, Debug)]
pub struct Reload(Arc<Notify>);

impl Reload {
    /// Looks soon. What reads as before is not loaded again.
    pub fn look(&self) {
        self.0.notify_one();
    }
}

/// A service that is bound and not running yet.
#[derive(Debug)]
pub struct Server<S> {
    app: Arc<App<S>>,
    config: ServerConfig,
    loader: RulesLoader,
    reloads: watch::Sender<ReloadStatus>,
    wake: Arc<Notify>,
    delay: DrainDelay,
    health: Health,
    service: Grpc<S>,
    listeners: Listeners,
}

#[derive(Debug)]
struct Listeners {
    grpc: Listener,
    http: Listener,
    admin: Listener,
    metrics: Option<Listener>,
}

impl<S: ServedStore> Server<S> {
    /// Binds every listener, or none.
    ///
    /// `limiter` starts with what `loader` loaded; if that failed, with no rules, and every
    /// request is refused until the files load.
    ///
    /// # Errors
    /// An address is taken or not ours, or the admin address is no loopback address.
    pub async fn bind(
        config: ServerConfig,
        limiter: Arc<Limiter<S>>,
        loader: RulesLoader,
    ) -> Result<Self, BindError> {
        if !config.admin.ip().is_loopback() {
            return Err(BindError::AdminNotLoopback(config.admin));
        }
        let listeners = Listeners::bind(&config).await?;
        let (reloads, receiver) = watch::channel(loader.status().clone());
        let app = Arc::new(App::new(
            limiter,
            config.rls.clone(),
            config.bounds,
            receiver,
        ));
        let health = Health::new(app.is_ready()).await;
        let service = Grpc::new(&app, &health).map_err(BindError::Reflection)?;
        let wake = Arc::new(Notify::new());
        Ok(Self {
            app,
            config,
            loader,
            reloads,
            wake,
            delay: DrainDelay::new(),
            health,
            service,
            listeners,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        Addresses {
            grpc: self.listeners.grpc.address,
            http: self.listeners.http.address,
            admin: self.listeners.admin.address,
            metrics: self
                .listeners
                .metrics
                .as_ref()
                .map(|listener| listener.address),
        }
    }

    /// What becomes of the rules, to be looked at or waited for.
    #[must_use]
    pub fn reloads(&self) -> watch::Receiver<ReloadStatus> {
        self.reloads.subscribe()
    }

    /// A handle that makes it look at the rules' files.
    #[must_use]
    pub fn reload(&self) -> Reload {
        Reload(Arc::clone(&self.wake))
    }

    /// The time between the shutdown and the drain, to be cut short.
    #[must_use]
    pub fn drain_delay(&self) -> DrainDelay {
        self.delay.clone()
    }

    /// Serves until `shutdown` completes, then drains: readiness goes first, and everyone is
    /// served for the drain delay. Then no connection is accepted any more, HTTP/2 peers get
    /// GOAWAY, and whatever is under way is answered, for as long as the drain timeout lets it.
    /// The admin listener goes last.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Drained {
        let Self {
            app,
            config,
            loader,
            reloads,
            wake,
            delay,
            health,
            service,
            listeners,
        } = self;
        let bounds = config.bounds;
        let mut tasks = JoinSet::new();
        let reloader = reloader(&app, config.watch, loader, reloads, &wake);
        tasks.spawn(chores::reload(Arc::clone(&app), reloader));
        tasks.spawn(chores::tend(Arc::clone(&app)));
        tasks.spawn(chores::wake_on_hangup(wake));

        let Listeners {
            grpc,
            http,
            admin,
            metrics,
        } = listeners;
        let last = Arc::new(Drain::new());
        let mut watching = JoinSet::new();
        let admin_service = admin::router(Arc::clone(&app));
        watching.spawn(admin.serve(admin_service, bounds, Arc::clone(&last)));
        if let Some(metrics) = metrics {
            let service = admin::metrics_router(Arc::clone(&app));
            watching.spawn(metrics.serve(service, bounds, Arc::clone(&last)));
        }
        let mut serving = JoinSet::new();
        serving.spawn(grpc.serve(service, bounds, Arc::clone(&app.drain)));
        let http_service = http::router(Arc::clone(&app));
        serving.spawn(http.serve(http_service, bounds, Arc::clone(&app.drain)));

        follow_readiness(&app, &health, shutdown).await;
        app.leave();
        health.set(false).await;
        info!(delay = ?config.drain_delay, "shutting down: not ready any more, and serving until that is known");
        delay.pass(config.drain_delay).await;
        info!("draining: requests under way are answered first");
        app.drain.begin();
        health.close().await;
        let cut = total(serving).await;
        last.begin();
        let cut = cut + total(watching).await;
        tasks.shutdown().await;
        Drained { cut }
    }
}

impl Listeners {
    async fn bind(config: &ServerConfig) -> Result<Self, BindError> {
        let metrics = match config.metrics {
            Some(address) => Some(bind("metrics", Protocol::Http1, address).await?),
            None => None,
        };
        Ok(Self {
            grpc: bind("grpc", Protocol::Http2, config.grpc).await?,
            http: bind("http", Protocol::Http1, config.http).await?,
            admin: bind("admin", Protocol::Http1, config.admin).await?,
            metrics,
        })
    }
}

async fn bind(
    name: &'static str,
    protocol: Protocol,
    address: SocketAddr,
) -> Result<Listener, BindError> {
    let bound = Listener::bind(name, protocol, address).await;
    bound.map_err(|source| BindError::Listen {
        name,
        address,
        source,
    })
}

fn reloader<S: ServedStore>(
    app: &Arc<App<S>>,
    config: WatchConfig,
    loader: RulesLoader,
    reloads: watch::Sender<ReloadStatus>,
    wake: &Arc<Notify>,
) -> Reloader<impl Fn(RuleSet) -> Vec<Change> + Send + Sync + 'static + use<S>> {
    let app = Arc::clone(app);
    let apply = move |rules: RuleSet| {
        let changes = rules.changes_since(app.limiter.snapshot().rules());
        app.limiter.replace_rules(rules);
        app.set_loaded();
        changes
    };
    Reloader::new(loader, config, reloads, Arc::clone(wake), apply)
}

/// Waits for `shutdown`, and meanwhile tells health checks when the first rules are in force.
async fn follow_readiness<S: ServedStore>(
    app: &App<S>,
    health: &Health,
    shutdown: impl Future<Output = ()>,
) {
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
