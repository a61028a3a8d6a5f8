//! Binding, serving, draining.

mod listeners;

use std::future::Future;
use std::io;
use std::sync::Arc;

use ratekeeper_limiter::Limiter;
use ratekeeper_rules::{Change, RuleSet};
use ratekeeper_tls::TlsFileError;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::admin;
use crate::app::App;
use crate::callers::Callers;
use crate::chores;
use crate::config::{ServerConfig, WatchConfig};
use crate::drain::{Drain, DrainDelay};
use crate::follow::{Followed, follow};
use crate::front::{Front, NoFront};
use crate::grpc::{BadDescriptors, Grpc, Health};
use crate::http;
use crate::listen::{ListenAddress, Listener, Workers};
use crate::reload::{ReloadStatus, Reloader, RulesLoader};
use crate::store::ServedStore;
use listeners::{Listeners, Secrets};

/// Where a server listens: what was asked for, with free ports in place of 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// gRPC, if it is served.
    pub grpc: Option<ListenAddress>,
    /// HTTP, if it is served.
    pub http: Option<ListenAddress>,
    /// Metrics and rules.
    pub admin: ListenAddress,
    /// Metrics alone, if they were asked for.
    pub metrics: Option<ListenAddress>,
    /// The gateway, if there is one.
    pub front: Option<ListenAddress>,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} for {name}")]
    Listen {
        /// `grpc`, `http`, `admin`, `metrics` or `listen`, which is the gateway's.
        name: &'static str,
        /// What was asked for.
        address: ListenAddress,
        /// What the system said.
        source: io::Error,
    },
    /// The admin listener asks nobody who they are.
    #[error(
        "the admin address {0} can be reached from other hosts; use a loopback address such as \
         127.0.0.1:6070 and --metrics for scrapers elsewhere, or let in clients with a \
         certificate alone (--admin-tls-client-ca)"
    )]
    AdminNotLoopback(ListenAddress),
    /// A listener's certificate cannot be used.
    #[error("cannot use TLS for {name}")]
    Tls {
        /// `grpc`, `http`, `admin` or `listen`.
        name: &'static str,
        /// Which file, and why.
        source: TlsFileError,
    },
    /// The system has no threads to serve on.
    #[error("cannot start the worker threads")]
    Workers(#[source] io::Error),
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
    /// None for rules that stay as they are.
    loader: Option<RulesLoader>,
    reloads: watch::Sender<ReloadStatus>,
    wake: Arc<Notify>,
    delay: DrainDelay,
    health: Health,
    service: Grpc<S>,
    listeners: Listeners,
    workers: Workers,
}

impl<S: ServedStore> Server<S> {
    /// Binds every listener, or none.
    ///
    /// `limiter` starts with what `loader` loaded; if that failed, with no rules, and every
    /// request is refused until the files load. Without a loader the limiter's rules stay as they
    /// are: so where somebody else decides, and there are none.
    ///
    /// # Errors
    /// An address is taken or not ours, a certificate cannot be used, or the admin address can
    /// be reached by everyone.
    pub async fn bind(
        config: ServerConfig,
        limiter: Arc<Limiter<S>>,
        loader: impl Into<Option<RulesLoader>>,
    ) -> Result<Self, BindError> {
        let loader = loader.into();
        let secrets = Secrets::load(&config)?;
        if !config.admin.is_local() && !secrets.admin_is_closed() {
            return Err(BindError::AdminNotLoopback(config.admin));
        }
        let listeners = Listeners::bind(&config, &secrets).await?;
        let workers = Workers::start(config.worker_threads).map_err(BindError::Workers)?;
        workers
            .runtimes()
            .for_each(|runtime| limiter.store().prepare(runtime));
        let status = loader.as_ref().map(RulesLoader::status).cloned();
        let (reloads, receiver) = watch::channel(status.unwrap_or_else(ReloadStatus::settled));
        let app = Arc::new(App::new(
            limiter,
            config.rls.clone(),
            config.auth.clone(),
            Callers::new(config.callers.clone()),
            config.bounds,
            receiver,
            secrets.all(),
        ));
        let health = Health::new(app.is_ready()).await;
        let service = Grpc::new(&app, &health, config.constant_answer.clone())
            .map_err(BindError::Reflection)?;
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
            workers,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        let of = |listener: &Option<Listener>| Some(listener.as_ref()?.address.clone());
        let Listeners {
            grpc,
            http,
            admin,
            metrics,
            front,
        } = &self.listeners;
        Addresses {
            grpc: of(grpc),
            http: of(http),
            admin: admin.address.clone(),
            metrics: of(metrics),
            front: front.as_ref().map(|(front, _)| front.address.clone()),
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
        self.run_behind(None::<Arc<NoFront>>, shutdown).await
    }

    /// As [`Self::run`], with `front` on the listener of the configuration's `front`, which
    /// drains as the others do. Without that listener, or without `front`, nothing is in front.
    pub async fn run_behind<F: Front>(
        self,
        front: Option<Arc<F>>,
        shutdown: impl Future<Output = ()>,
    ) -> Drained {
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
            workers,
        } = self;
        let bounds = config.bounds;
        let mut tasks = JoinSet::new();
        if let Some(loader) = loader {
            let reloader = reloader(&app, config.watch, loader, reloads, &wake);
            tasks.spawn(chores::reload(Arc::clone(&app), reloader));
        }
        tasks.spawn(chores::tend(Arc::clone(&app)));
        if let Some(front) = &front {
            app.set_front(Arc::clone(front) as _);
            tasks.spawn(front.chores());
        }
        let mut wakes = vec![wake];
        let certificates = app
            .tls
            .iter()
            .map(|tls| Arc::clone(tls) as Arc<dyn Followed>);
        for files in certificates.chain(front.as_ref().and_then(|front| front.files())) {
            let wake = Arc::new(Notify::new());
            tasks.spawn(follow(files, config.watch, Arc::clone(&wake)));
            wakes.push(wake);
        }
        tasks.spawn(chores::wake_on_hangup(wakes));

        let Listeners {
            grpc,
            http,
            admin,
            metrics,
            front: front_listener,
        } = listeners;
        let last = Arc::new(Drain::new());
        // Operators get their answers however busy the workers are.
        let here = Workers::here();
        let mut watching = JoinSet::new();
        let admin_service = admin::router(Arc::clone(&app));
        let admin_service = move |_| admin_service.clone();
        watching.spawn(admin.serve(admin_service, bounds, Arc::clone(&last), here.turns()));
        if let Some(metrics) = metrics {
            let service = admin::metrics_router(Arc::clone(&app));
            let service = move |_| service.clone();
            watching.spawn(metrics.serve(service, bounds, Arc::clone(&last), here.turns()));
        }
        let mut serving = JoinSet::new();
        if let Some(grpc) = grpc {
            let service = move |_| service.clone();
            serving.spawn(grpc.serve(service, bounds, Arc::clone(&app.drain), workers.turns()));
        }
        if let Some(http) = http {
            let service = http::router(Arc::clone(&app));
            let service = move |_| service.clone();
            serving.spawn(http.serve(service, bounds, Arc::clone(&app.drain), workers.turns()));
        }
        if let Some(((listener, bounds), front)) = front_listener.zip(front) {
            let answers: Vec<_> = (0..workers.count()).map(|_| front.answer()).collect();
            let answers = move |worker: usize| answers[worker].clone();
            let drain = Arc::clone(&app.drain);
            serving.spawn(listener.serve(answers, bounds, drain, workers.turns()));
        }

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
