//! Settings: `ratekeeper.yaml` < the environment < flags, every value with the place it came from.
//!
//! Values stay text until all layers are merged; then [`Settings::from_layers`] parses each of them once and reports
//! all errors in one run. Nothing outside this crate reads the environment.

mod callers;
mod environment;
mod envoyproxy_ratelimit;
mod file;
mod flags;
mod gateway;
mod groups;
mod layer;
mod meaning;
mod nested;
mod problem;
mod quotas;
mod requests;
mod service;
mod setting;
mod store;
mod stores;
mod table;
mod tls;
mod traces;
mod typed;
mod value_error;
mod values;

pub(crate) use environment::{ADMIN_TOKEN, Environment};
pub(crate) use flags::{Flags, ServeFlags, is_gateways};
pub(crate) use gateway::{GatewaySettings, LogTo};
pub(crate) use layer::Layers;
pub(crate) use meaning::{path_folding, profile};
pub(crate) use nested::parse as nested;
pub(crate) use problem::{Problem, Problems};
pub(crate) use quotas::QuotaSettings;
pub(crate) use requests::slas_base;
pub(crate) use service::ServiceSettings;
pub(crate) use setting::Setting;
pub(crate) use table::SETTINGS;
pub(crate) use tls::TlsSettings;
pub(crate) use traces::TraceSettings;
pub(crate) use values::{UNIX, duration, hash_key};
pub(crate) use values::{masked, masked_within};

use crate::home::Home;
use ratekeeper_limiter::Modes;
use ratekeeper_rules::{
    FailureMode, Options, PathFolding, PathKeys, PathPattern, Profile, ReadOptions, TenantKey,
};
use ratekeeper_server::{
    AuthConfig, Caller, DenialLogConfig, EnvoyCallers, LimitHeaderNames, ListenAddress,
    ListenersTls, Patience, StatsdConfig,
};
use ratekeeper_store_redis::{Endpoint, RedisConfig};
use std::collections::BTreeSet;
use std::io::Read;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use typed::Typed;

/// All settings, typed.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) rules: RulesSettings,
    pub(crate) listen: Listen,
    pub(crate) counters: Counters,
    pub(crate) quotas: QuotaSettings,
    pub(crate) modes: Modes,
    pub(crate) envoy: EnvoySettings,
    /// The answers to forward-auth.
    pub(crate) auth: AuthConfig,
    /// Callers with permissions beyond checks.
    pub(crate) callers: Vec<Caller>,
    /// The folder for what outlives a restart, if there is one.
    pub(crate) data_dir: Option<PathBuf>,
    /// The gateway in front of a service, where there is one.
    pub(crate) gateway: GatewaySettings,
    pub(crate) log: LogSettings,
    pub(crate) traces: TraceSettings,
}

/// The place of the rules, and how to read them.
#[derive(Debug)]
pub(crate) struct RulesSettings {
    /// The file or folder; `None` where none was named and none was found.
    pub(crate) path: Option<PathBuf>,
    /// Reads every file in a folder under envoyproxy/ratelimit's RUNTIME_ROOT.
    pub(crate) read: ReadOptions,
    pub(crate) watch: bool,
    pub(crate) merge_domains: bool,
    pub(crate) profile: Profile,
    /// The variables of envoyproxy/ratelimit that are set although no profile is.
    pub(crate) profile_unsaid: Option<String>,
    /// For rules that do not say.
    pub(crate) on_store_failure: FailureMode,
    /// For files with service levels that do not say.
    pub(crate) slas_base: Option<PathPattern>,
    /// The stores that they may name.
    pub(crate) stores: Vec<Box<str>>,
    /// The file or folder of tenants, where they are not among the rules.
    pub(crate) tenants: Option<PathBuf>,
    /// The secret under which tenants are hashed in files.
    pub(crate) tenant_key: Option<TenantKey>,
    /// The keys of entries that are made from credentials.
    pub(crate) secrets: BTreeSet<Box<str>>,
    /// The differences between paths that do not count.
    pub(crate) path_folding: PathFolding,
    /// The keys of entries that are made from paths.
    pub(crate) path_keys: PathKeys,
}

impl RulesSettings {
    /// As the rules crate wants them.
    pub(crate) fn options(&self) -> Options {
        let mut options = Options::default();
        options.merge_domains = self.merge_domains;
        options.profile = self.profile;
        options.on_store_failure = self.on_store_failure;
        options.slas_base = self.slas_base.clone();
        options.stores = Some(self.stores.clone());
        options.secrets = self.secrets.clone();
        options.tenant_key = self.tenant_key.clone();
        options.path_folding = self.path_folding;
        options.path_keys = self.path_keys.clone();
        options
    }
}

/// The addresses that are opened, and when they are closed.
#[derive(Debug)]
pub(crate) struct Listen {
    pub(crate) grpc: ListenAddress,
    pub(crate) http: ListenAddress,
    pub(crate) admin: ListenAddress,
    pub(crate) metrics: Option<ListenAddress>,
    /// Of Unix sockets' files; `None` leaves them to the umask.
    pub(crate) unix_mode: Option<u32>,
    pub(crate) tls: ListenersTls,
    pub(crate) grpc_connections: GrpcConnections,
    /// The number of threads that serve them.
    pub(crate) worker_threads: NonZeroUsize,
    /// Limits on how slow their clients may be.
    pub(crate) patience: Patience,
    /// The time they stay open after a shutdown began.
    pub(crate) drain_delay: Duration,
}

/// The lifetime of gRPC connections, and their keepalive.
#[derive(Debug)]
pub(crate) struct GrpcConnections {
    pub(crate) age_max: Option<Duration>,
    pub(crate) age_grace: Duration,
    pub(crate) idle_max: Option<Duration>,
    pub(crate) keepalive_time: Duration,
    pub(crate) keepalive_timeout: Duration,
}

/// The stores of counters.
#[derive(Debug)]
pub(crate) struct Counters {
    /// In bytes, 1 MiB at least.
    pub(crate) memory_limit: u64,
    /// The most of it that one rule may hold, 1 to 100.
    pub(crate) max_share_percent: u8,
    /// The file they are saved in, if they are.
    pub(crate) state: Option<PathBuf>,
    /// The Redis they are in; `None` for memory.
    pub(crate) redis: Option<RedisSettings>,
    /// Further ones, for rules that name them; in the order of their names.
    pub(crate) stores: Vec<NamedStore>,
    /// The factor applied to limits while a store cannot be reached, above 0 and at most 1.
    pub(crate) local_factor: f64,
    /// True if the process refuses to start unless all stores can be reached.
    pub(crate) is_required: bool,
}

impl Counters {
    /// The file that counters in memory are saved in, if they are in memory and are saved.
    pub(crate) fn kept(&self) -> Option<&Path> {
        self.state.as_deref().filter(|_| self.redis.is_none())
    }
}

/// A Redis, and how to connect to it.
#[derive(Debug)]
pub(crate) struct RedisSettings {
    pub(crate) endpoint: Endpoint,
    /// The URL without its password.
    pub(crate) shown: String,
    pub(crate) config: RedisConfig,
    /// The settings that name its files.
    pub(crate) files: TlsSettings,
}

/// A store that rules may name.
#[derive(Debug)]
pub(crate) struct NamedStore {
    pub(crate) name: Box<str>,
    pub(crate) redis: RedisSettings,
}

/// The answers to Envoy.
#[derive(Debug)]
pub(crate) struct EnvoySettings {
    pub(crate) limit_headers: Option<LimitHeaderNames>,
    pub(crate) draft_headers: bool,
    pub(crate) degraded_header: bool,
    pub(crate) dynamic_metadata: bool,
    /// The permissions that Envoy's protocol asks for; `None` for those of the profile.
    pub(crate) callers: Option<EnvoyCallers>,
}

/// The filter and the format of the log.
#[derive(Debug)]
pub(crate) struct LogSettings {
    /// A level or a filter, as tracing understands it.
    pub(crate) filter: String,
    pub(crate) format: LogFormat,
    pub(crate) denials: DenialLogConfig,
    /// True if top keys may be labels of a metric.
    pub(crate) top_denied: bool,
    /// True if metrics have envoyproxy/ratelimit's names too.
    pub(crate) envoy_metrics: bool,
    /// The statsd agent, if there is one.
    pub(crate) statsd: Option<StatsdConfig>,
}

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Merges all layers (defaults, the settings file, the environment, flags) and parses every value.
///
/// # Errors
/// All errors in names and values at once.
pub(crate) fn load(
    flags: &Flags,
    environment: &Environment,
    home: &Home,
) -> Result<(Layers, Settings), Problems> {
    let mut problems = Vec::new();
    let layers = lay(flags, environment, home, &mut problems);
    match Settings::from_layers(&layers, home) {
        Ok(settings) if problems.is_empty() => Ok((layers, settings)),
        Ok(_) => Err(Problems(problems)),
        Err(Problems(values)) => {
            problems.extend(values);
            Err(Problems(problems))
        }
    }
}

/// Returns true if the layers ask for a JSON log; read apart, so that messages about invalid settings follow it.
pub(crate) fn wants_json(flags: &Flags, environment: &Environment, home: &Home) -> bool {
    let layers = lay(flags, environment, home, &mut Vec::new());
    let format = layers.said("log_format");
    format.is_some_and(|said| said.text.eq_ignore_ascii_case("json"))
}

/// The settings that were given but that only `ratekeeper gateway` uses, each with the place where it was set.
pub(crate) fn ignored_by_serve(layers: &Layers) -> Vec<String> {
    let gateways = groups::GROUPS.iter().filter(|group| group.is_gateways);
    let said = gateways
        .flat_map(|group| group.settings())
        .filter_map(|setting| {
            let said = layers.get(setting);
            let origin = said.origin;
            (origin != layer::Origin::Default).then(|| format!("{} ({origin})", setting.key))
        });
    said.collect()
}

/// The settings file that is named, else the one that is found.
pub(crate) fn file_in_use(
    flags: &Flags,
    environment: &Environment,
    home: &Home,
) -> Option<PathBuf> {
    let named = || environment.get(environment::CONFIG).map(PathBuf::from);
    let named = flags.config.clone().or_else(named);
    named.or_else(|| home.settings_file())
}

/// Merges the layers; errors in names go to `problems`.
fn lay(
    flags: &Flags,
    environment: &Environment,
    home: &Home,
    problems: &mut Vec<Problem>,
) -> Layers {
    let mut layers = Layers::defaults();
    if let Some(path) = file_in_use(flags, environment, home) {
        match read(&path) {
            Ok(text) => file::put(&text, &path, &mut layers, problems),
            Err(error) => problems.push(Problem {
                place: path.display().to_string(),
                message: error.to_string(),
            }),
        }
    }
    environment.put(&mut layers, problems);
    flags.put(&mut layers);
    envoyproxy_ratelimit::judge(environment, &mut layers, problems);
    layers
}

/// The reason a settings file is not read.
#[derive(Debug, thiserror::Error)]
enum UnreadFile {
    #[error("the settings file cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    #[error("the settings file is larger than {} bytes", file::SIZE_MAX)]
    TooLarge,
}

fn read(path: &Path) -> Result<String, UnreadFile> {
    let file = std::fs::File::open(path)?;
    let mut text = String::new();
    file.take(file::SIZE_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > file::SIZE_MAX {
        return Err(UnreadFile::TooLarge);
    }
    Ok(text)
}

impl Settings {
    /// Parses every value.
    ///
    /// # Errors
    /// All values that are invalid, at once.
    pub(crate) fn from_layers(layers: &Layers, home: &Home) -> Result<Settings, Problems> {
        let mut typed = Typed::new(layers);
        let envoy = typed.envoy();
        let mut settings = Settings {
            rules: typed.rules(home),
            listen: typed.listen(),
            counters: typed.counters(),
            quotas: typed.quotas(),
            modes: typed.modes(),
            auth: typed.auth(),
            callers: typed.callers(&envoy),
            envoy,
            data_dir: typed.data_dir(),
            gateway: typed.gateway(),
            log: typed.log(),
            traces: typed.traces(),
        };
        let stores = settings.counters.stores.iter();
        settings.rules.secrets = settings.auth.describer.secret_keys();
        settings.rules.path_keys = settings.auth.describer.path_keys();
        settings.rules.stores = stores.map(|store| store.name.clone()).collect();
        typed.finish(settings)
    }
}

#[cfg(test)]
mod defaults;
#[cfg(test)]
mod tests;
