//! The gateway, wired.

use super::files::Files;
use crate::home::Home;
use crate::settings::{self, AtStart, Environment, Flags, Layers, LogTo, Problems, Settings};
use anyhow::{Context, Result};
use parking_lot::Mutex;
use ratekeeper_gateway::{
    AccessLog, FleetPeers, Gateway, GatewayConfig, RoutesConfig, RoutesHandle,
};
use ratekeeper_http::EncodedSlashes;
use ratekeeper_limiter::Limiter;
use ratekeeper_server::{DenialLog, FilesRead, Followed, GatewayListener, ServerConfig};
use ratekeeper_stores::Stores;
use ratekeeper_tower::{Enforcer, RulesLayer, Switch};
use ratekeeper_trace::Tracer;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tracing::{error, info, warn};

/// After how long without a byte an upgraded connection is closed: what keeps one open longer
/// sends something now and then.
const TUNNEL_SILENCE_MAX: Duration = Duration::from_secs(600);

/// After how long without a request a client's HTTP/2 connection is told to go: what its client
/// has not taken by then of what it asked for goes with it.
const CONNECTION_IDLE_MAX: Duration = Duration::from_secs(300);

/// Besides the gateway and admin only what was asked for is opened.
pub(super) fn open_only(config: &mut ServerConfig, settings: &Settings) {
    let values = &settings.values;
    config.grpc = config
        .grpc
        .take()
        .filter(|_| !values.grpc.said.is_default());
    config.http = config
        .http
        .take()
        .filter(|_| !values.http.said.is_default());
    let mut bounds = config.bounds;
    bounds.streams_max = *values.connection_requests_max;
    // HTTP/1 goes by it as well, and has to be kept for as long as is said.
    bounds.connection_idle_max = Some(CONNECTION_IDLE_MAX.max(bounds.idle_timeout));
    // One that has closed its side is: it does not wait for its answer.
    bounds.half_close = false;
    config.gateway = Some(GatewayListener {
        address: values.listen.clone(),
        tls: settings.gateway_tls.clone(),
        bounds,
    });
}

/// The gateway that decides by `limiter`.
pub(super) fn embedding(
    flags: &Flags,
    home: &Home,
    settings: &Settings,
    files: Files,
    limiter: &Arc<Limiter<Stores>>,
    beside: Beside,
) -> Result<Gateway<Arc<Limiter<Stores>>>> {
    let snapshot = limiter.snapshot();
    let domain = settings.auth.describer.domain(None, snapshot.rules());
    let domain = domain
        .context("say which is the gateway's, with `auth: { domain: NAME }` in ratekeeper.yaml")?;
    let enforcer = Arc::clone(limiter);
    let domain = domain.unwrap_or_default();
    gateway(flags, home, settings, files, enforcer, domain, beside)
}

/// The parts of the node that its gateway shares.
pub(super) struct Beside {
    /// The board of the gateways with the same Redis.
    pub(super) fleet: Option<Arc<dyn FleetPeers>>,
    /// The log of denied requests.
    pub(super) denials: Arc<DenialLog>,
    /// Traces requests; None to trace none.
    pub(super) tracer: Option<Tracer>,
}

/// The gateway as the settings want it, deciding by `enforcer`.
pub(super) fn gateway<E: Enforcer>(
    flags: &Flags,
    home: &Home,
    settings: &Settings,
    files: Files,
    enforcer: E,
    domain: &str,
    beside: Beside,
) -> Result<Gateway<E>> {
    let values = &settings.values;
    let auth = &settings.auth;
    let mut describer = auth.describer.clone();
    // What nothing says is strict here: routes and descriptors go by the path, too.
    if describer.encoded_slashes == EncodedSlashes::RefuseWhereItCounts {
        describer.encoded_slashes = EncodedSlashes::Refuse;
    }
    let layer = RulesLayer::new(enforcer, domain)
        .describer(describer)
        .headers(auth.headers)
        .body_form(auth.denial_body)
        .wait_max(*values.wait_max)
        .waiting_max(*values.waiting_max)
        .refusal_lines_max(*values.denial_log)
        .switch(Switch::new(*values.limits));
    let followed = settings::file_in_use(flags, &Environment::of_process(), home)
        .map(|path| Arc::new(RoutesFile::new(path, flags, home, files, settings)));
    let config = GatewayConfig {
        routes: within(files, settings.routes.clone()),
        forwarding: auth.forwarding.clone(),
        is_encrypted: settings.gateway_tls.is_some(),
        body_bytes_max: *values.request_body_max,
        patience: values.bounds().patience,
        tunnel_silence_max: TUNNEL_SILENCE_MAX,
        log: log(settings)?,
        denials: beside.denials,
        fleet: beside.fleet,
        tracer: beside.tracer,
        files: followed.clone().map(|files| files as Arc<dyn Followed>),
    };
    let gateway = Gateway::new(config, layer)?;
    if let Some(followed) = followed {
        // It is set once: here.
        let _ = followed.routes.set(gateway.routes());
    }
    Ok(gateway)
}

/// Routes with no more requests than there are file descriptors for.
fn within(files: Files, mut routes: RoutesConfig) -> RoutesConfig {
    let each = files.upstream_requests_max / routes.upstreams.len().max(1);
    routes.requests_max = routes.requests_max.map(|most| most.min(each.max(1)));
    routes
}

fn log(settings: &Settings) -> Result<Option<AccessLog>> {
    let format = *settings.values.access_log_format;
    let path = match &*settings.values.access_log {
        None => return Ok(None),
        Some(LogTo::Stdout) => None,
        Some(LogTo::File(path)) => Some(path.as_path()),
    };
    let opened = AccessLog::open(path, format);
    let opened = opened.with_context(|| {
        format!(
            "access_log: {}",
            path.map_or_else(|| "-".into(), Path::to_string_lossy)
        )
    })?;
    Ok(Some(opened))
}

/// The settings file and the authorities it names, of which routes and upstreams are made again
/// while it is served by them.
#[derive(Debug)]
struct RoutesFile {
    path: PathBuf,
    flags: Flags,
    home: Home,
    files: Files,
    first: u64,
    routes: OnceLock<RoutesHandle>,
    named: Mutex<Named>,
    in_force: Mutex<InForce>,
    at_start: AtStart,
    /// The reason that the routes in the file are not those in force.
    refused: Mutex<Option<String>>,
}

/// The routes in force, and a fingerprint of the authorities' files that they name.
#[derive(PartialEq, Eq, Debug)]
struct InForce {
    routes: RoutesConfig,
    authorities: u64,
}

impl InForce {
    fn of(settings: &Settings) -> Self {
        Self {
            routes: settings.routes.clone(),
            authorities: of_files(&authorities(settings)),
        }
    }
}

/// The authorities' files that settings name, and what the settings' file said then.
#[derive(Debug, Default)]
struct Named {
    by: u64,
    files: Vec<PathBuf>,
}

impl Named {
    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.by.hash(&mut hasher);
        of_files(&self.files).hash(&mut hasher);
        hasher.finish()
    }
}

/// The files of authorities that upstreams name.
fn authorities(settings: &Settings) -> Vec<PathBuf> {
    let upstreams = settings.routes.upstreams.values();
    upstreams
        .filter_map(|upstream| upstream.ca.clone())
        .collect()
}

impl RoutesFile {
    /// The file that `settings` were read from. It may have changed since, which is for the first look to find.
    fn new(path: PathBuf, flags: &Flags, home: &Home, files: Files, settings: &Settings) -> Self {
        let named = Named {
            // Without a reading nothing is known of the file, and the first look takes it.
            by: settings.file_read.unwrap_or_default(),
            files: authorities(settings),
        };
        Self {
            path,
            flags: flags.clone(),
            home: home.clone(),
            files,
            first: named.fingerprint(),
            routes: OnceLock::new(),
            named: Mutex::new(named),
            in_force: Mutex::new(InForce::of(settings)),
            at_start: AtStart::of(&settings.values),
            refused: Mutex::default(),
        }
    }

    /// Of what all files say.
    fn fingerprint(&self) -> u64 {
        let by = of_file(&self.path);
        let mut named = self.named.lock();
        if named.by != by {
            // What makes no sense names nothing else.
            if let Ok((_, settings)) = self.settings() {
                named.files = authorities(&settings);
            }
            named.by = by;
        }
        named.fingerprint()
    }

    fn settings(&self) -> std::result::Result<(Layers, Settings), Problems> {
        settings::load(&self.flags, &Environment::of_process(), &self.home)
    }

    /// Puts in force what the file says of routes; all of it has to make sense.
    fn take(&self) {
        let taken = match self.settings() {
            Ok((_, settings)) => {
                self.tell_of_others(&settings);
                self.take_routes(&settings)
            }
            Err(problems) => {
                let why = problems.to_string();
                error!("changed settings refused; the last good routes stay in use: {why}");
                Err(why)
            }
        };
        let before = std::mem::replace(&mut *self.refused.lock(), taken.err());
        if before.is_some() && self.refused.lock().is_none() {
            info!("the routes of the settings are those in use again");
        }
    }

    /// # Errors
    /// The routes are refused, which is logged.
    fn take_routes(&self, settings: &Settings) -> std::result::Result<(), String> {
        let asked = InForce::of(settings);
        let mut in_force = self.in_force.lock();
        let Some(routes) = self.routes.get().filter(|_| *in_force != asked) else {
            return Ok(());
        };
        let within = within(self.files, asked.routes.clone());
        routes.replace(&within).map_err(|error| error.to_string())?;
        *in_force = asked;
        Ok(())
    }

    /// Tells of changes that have no effect yet.
    fn tell_of_others(&self, settings: &Settings) {
        let changed = self.at_start.changed(&AtStart::of(&settings.values));
        if !changed.is_empty() {
            let changed = changed.join(", ");
            warn!(
                settings = changed,
                "changed settings that are read at the start only: restart to apply them"
            );
        }
    }
}

impl Followed for RoutesFile {
    fn name(&self) -> String {
        format!("the routes in {}", self.path.display())
    }

    fn label(&self) -> String {
        "routes".to_owned()
    }

    fn refused(&self) -> Option<String> {
        self.refused.lock().clone()
    }

    fn paths(&self) -> Vec<PathBuf> {
        let mut paths = self.named.lock().files.clone();
        paths.push(self.path.clone());
        paths
    }

    fn known(&self) -> u64 {
        self.first
    }

    fn read(self: Arc<Self>) -> FilesRead {
        FilesRead {
            fingerprint: self.fingerprint(),
            take: Box::new(move || self.take()),
        }
    }
}

/// Of what files say.
fn of_files(paths: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in paths {
        of_file(path).hash(&mut hasher);
    }
    hasher.finish()
}

/// Of what one file says, or why it cannot be read.
fn of_file(path: &Path) -> u64 {
    match std::fs::read(path) {
        Ok(bytes) => settings::fingerprint(&bytes),
        Err(error) => settings::fingerprint(error.to_string().as_bytes()),
    }
}
