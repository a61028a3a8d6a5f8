//! The server: its parts and its listeners.

mod listeners;
pub(crate) mod maintenance;
mod run;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use ratekeeper_limiter::Limiter;
use ratekeeper_stores::Stores;
use ratekeeper_tls::TlsFileError;
use tokio::sync::{Notify, watch};
use tonic::body::Body;
use tower::Service;

use crate::access::{Access, KnownTokens};
use crate::app::App;
use crate::config::ServerConfig;
use crate::data_dir::fleet_switches::FleetSwitches;
use crate::data_dir::switches::SwitchFile;
use crate::figures::monitored::Monitored;
use crate::fleet;
use crate::grpc::{BadDescriptors, Grpc, Health};
use crate::listen::drain::DrainDelay;
use crate::listen::{Fault, ListenAddress, Listener, Workers};
use crate::reload::{ReloadStatus, RulesLoader};
use listeners::{Listeners, Secrets};
pub use run::OPERATORS_MAX;

/// The addresses a server listens on: those requested, with free ports in place of 0.
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
    pub gateway: Option<ListenAddress>,
}

/// The reason a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} for {name}")]
    Listen {
        /// `grpc`, `http`, `admin`, `metrics` or `listen`, which is the gateway's.
        name: &'static str,
        /// The requested address.
        address: ListenAddress,
        /// The error from the operating system.
        source: io::Error,
    },
    /// The admin listener does not authenticate clients.
    #[error(
        "the admin address {0} can be reached from other hosts; use a loopback address such as \
         127.0.0.1:6070 and --metrics for scrapers elsewhere, or let in only clients with a \
         certificate (--admin-tls-client-ca) or a token (`ratekeeper token create`)"
    )]
    AdminNotLoopback(ListenAddress),
    /// A listener's certificate cannot be used.
    #[error("cannot use TLS for {name}")]
    Tls {
        /// `grpc`, `http`, `admin` or `listen`.
        name: &'static str,
        /// The file and the reason.
        source: TlsFileError,
    },
    /// The system has no threads to serve on.
    #[error("cannot start the worker threads")]
    Workers(#[source] io::Error),
    /// The built-in descriptors do not fit together.
    #[error("the descriptors for reflection are broken")]
    Reflection(#[source] BadDescriptors),
}

/// The outcome of a server's drain.
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
pub struct Server {
    app: Arc<App>,
    /// None for rules that stay as they are.
    loader: Option<RulesLoader>,
    reloads: watch::Sender<ReloadStatus>,
    wake: Arc<Notify>,
    delay: DrainDelay,
    health: Health,
    service: Grpc,
    listeners: Listeners,
    workers: Workers,
}

impl Server {
    /// Binds every listener, or none.
    ///
    /// `limiter` starts with the rules that `loader` loaded; if that failed, it has none, and every
    /// request is refused until the files load. Without a loader the limiter's rules stay as they
    /// are, for deployments where another process decides and there are none.
    ///
    /// # Errors
    /// An address is taken or not ours, a certificate cannot be used, or the admin address can
    /// be reached by everyone.
    pub async fn bind(
        config: ServerConfig,
        limiter: Arc<Limiter<Stores>>,
        loader: impl Into<Option<RulesLoader>>,
    ) -> Result<Self, BindError> {
        let loader = loader.into();
        let secrets = Secrets::load(&config)?;
        let data_dir = config.data_dir.as_deref();
        let followed = config.quotas.as_ref();
        let followed = followed.map(|quotas| quotas.follower.quota_status().clone());
        if let Some(folder) = data_dir.filter(|_| followed.is_none()) {
            fleet::adopt_copy(folder);
        }
        let tokens = KnownTokens::new(data_dir, followed);
        let access = Access::new(&config.callers, tokens, secrets.admin_is_closed());
        if !config.admin.is_local() && !secrets.admin_is_closed() && !access.is_required() {
            return Err(BindError::AdminNotLoopback(config.admin));
        }
        let listeners = Listeners::bind(&config, &secrets).await?;
        let switches = SwitchFile::restore(data_dir, &limiter);
        let fleet_switches = fleet_switches(&config, &limiter);
        let config = ServerConfig {
            // With the port that was picked.
            admin: listeners.admin.address.clone(),
            ..config
        };
        let workers = Workers::start(config.worker_threads).map_err(BindError::Workers)?;
        for runtime in workers.runtimes() {
            let _entered = runtime.enter();
            limiter.store().prepare();
        }
        let status = loader.as_ref().map(RulesLoader::reload_status).cloned();
        let (reloads, receiver) = watch::channel(status.unwrap_or_else(ReloadStatus::settled));
        let app = Arc::new(App::new(
            limiter,
            config,
            (access, switches, fleet_switches),
            receiver,
            secrets.all(),
        ));
        app.monitor(listeners.refusals());
        fleet::begin(&app).await;
        let health = Health::new(app.is_ready()).await;
        let is_local = listeners.grpc.as_ref().is_some_and(Listener::is_local);
        let service = Grpc::new(&app, &health, app.config.constant_answer.clone(), is_local)
            .map_err(BindError::Reflection)?;
        let wake = Arc::new(Notify::new());
        Ok(Self {
            app,
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

    /// The addresses it listens on.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        let of = |listener: &Option<Listener>| Some(listener.as_ref()?.address.clone());
        let Listeners {
            grpc,
            http,
            admin,
            metrics,
            gateway,
        } = &self.listeners;
        Addresses {
            grpc: of(grpc),
            http: of(http),
            admin: admin.address.clone(),
            metrics: of(metrics),
            gateway: gateway.as_ref().map(|(gateway, _)| gateway.address.clone()),
        }
    }

    /// The services of the gRPC listener, for a server of the caller's own. It gives each request its
    /// [`Peer`](crate::Peer) as an extension, and keeps to its deadline, as the listener does.
    pub fn grpc_services<B>(
        &self,
    ) -> impl Service<
        Request<B>,
        Response = Response<Body>,
        Error = Infallible,
        Future: Send + 'static,
    >
    + Clone
    + Send
    + Sync
    + 'static
    + use<B>
    where
        B: hyper::body::Body<Data = Bytes, Error: Into<Fault>> + Send + 'static,
    {
        self.service.clone()
    }

    /// Shows the metrics and faults of `part` beside the server's own.
    pub fn monitor(&self, part: Arc<dyn Monitored>) {
        self.app.monitor(part);
    }

    /// The status of the rules, to read or to wait for.
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
}

/// The switches that all nodes of the quota database share, in force as far as they are known.
fn fleet_switches(config: &ServerConfig, limiter: &Limiter<Stores>) -> FleetSwitches {
    let kept = limiter.snapshot().switches().clone();
    let Some(quotas) = &config.quotas else {
        return FleetSwitches::new(kept, None);
    };
    let switches = FleetSwitches::new(kept, config.data_dir.as_deref());
    switches.begin(limiter);
    if let Some(state) = quotas.follower.quota_status().fleet() {
        switches.follow(limiter, &state);
    }
    switches
}
