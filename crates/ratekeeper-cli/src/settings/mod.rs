//! Settings: `ratekeeper.yaml` < the environment < flags, every value with the place it came from.
//!
//! Values stay text until all layers are merged; then [`Settings::from_layers`] parses each of them once and reports
//! all errors in one run. Nothing outside this crate reads the environment.

mod callers;
mod changed;
mod checks;
mod environment;
mod envoy;
mod envoyproxy_ratelimit;
mod file;
mod flags;
mod gateway;
mod given;
mod layer;
mod listen;
mod log;
mod nested;
mod problem;
mod quotas;
mod regions;
mod requests;
mod rules;
mod service;
mod setting;
mod store;
mod stores;
mod table;
mod tls;
mod traces;
mod value_error;
mod values;
mod xds;

pub(crate) use changed::AtStart;
pub(crate) use environment::{ADMIN_TOKEN, Environment};
pub(crate) use envoyproxy_ratelimit::heeds;
pub(crate) use file::fingerprint;
pub(crate) use flags::{CommandFlags, Flags, is_gateways};
pub(crate) use gateway::LogTo;
pub(crate) use layer::{Layers, RawValue};
pub(crate) use log::LogFormat;
pub(crate) use nested::parse as nested;
pub(crate) use problem::{Problem, Problems};
pub(crate) use quotas::{OnQuotaFailure, QuotaSettings};
pub(crate) use requests::slas_base;
pub(crate) use rules::{Fetched, OnBrokenRules, RulesSettings, path_folding, profile};
pub(crate) use service::ServiceSettings;
pub(crate) use setting::Setting;
pub(crate) use store::RedisSettings;
pub(crate) use table::{Values, all, row};
pub(crate) use tls::TlsSettings;
#[cfg(feature = "traces")]
pub(crate) use traces::TraceProtocol;
pub(crate) use traces::TraceSettings;
#[cfg(feature = "traces")]
pub(crate) use traces::trace_headers;
pub(crate) use values::{UNIX, duration, hash_key};
pub(crate) use values::{masked, masked_within, percent_encoded};

use crate::home::Home;
use checks::Checks;
use given::Reader;
use ratekeeper_gateway::RoutesConfig;
use ratekeeper_server::{AuthConfig, ListenersTls, RlsConfig, TlsConfig};
use std::io::Read;
use std::path::{Path, PathBuf};
use stores::NamedStore;

/// All settings, typed: each value, and what several of them make together.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) values: Values,
    pub(crate) rules: RulesSettings,
    pub(crate) tls: ListenersTls,
    /// The Redis that counters are in; `None` for memory.
    pub(crate) redis: Option<RedisSettings>,
    /// Further stores, for rules that name them; in the order of their names.
    pub(crate) stores: Vec<NamedStore>,
    /// The file that counters are saved in, if they are.
    pub(crate) state: Option<PathBuf>,
    pub(crate) quotas: QuotaSettings,
    /// The answers to Envoy, and the permissions that its protocol asks for.
    pub(crate) envoy: RlsConfig,
    /// The answers to forward-auth.
    pub(crate) auth: AuthConfig,
    /// The routes of the gateway.
    pub(crate) routes: RoutesConfig,
    /// TLS of the gateway's listener.
    pub(crate) gateway_tls: Option<TlsConfig>,
    /// The service that decides for the gateway, unless this process does.
    pub(crate) service: Option<ServiceSettings>,
    pub(crate) traces: TraceSettings,
    /// The fingerprint of the settings file as it was read; [`None`] if none was.
    pub(crate) file_read: Option<u64>,
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

/// The settings of this process with `flags`, for commands that serve nothing.
///
/// # Errors
/// Those of [`load`].
pub(crate) fn of_process(flags: &Flags) -> Result<Settings, Problems> {
    let loaded = load(flags, &Environment::of_process(), &Home::find());
    loaded.map(|(_, settings)| settings)
}

/// The settings that envoyproxy/ratelimit's variables make of themselves, and what a start with them and the profile
/// `envoy` would refuse. With `has_secrets`, settings may lack others whose values are not here.
pub(crate) fn of_ratelimit(environment: &Environment, has_secrets: bool) -> (Layers, Vec<Problem>) {
    let (mut layers, mut problems) = (Layers::default(), Vec::new());
    envoyproxy_ratelimit::put(environment, &mut layers, &mut problems);
    let mut planned = layers.clone();
    planned.put(&row::profile, "envoy", layer::Origin::Name);
    envoyproxy_ratelimit::judge(environment, &mut planned, &mut problems);
    if has_secrets {
        let mut reader = Reader::new(&planned);
        Values::read(&mut reader);
        problems.extend(reader.problems);
    } else {
        let nowhere = Home::find_in(&[], Path::new(""));
        let refused = Settings::from_layers(&planned, &nowhere).err();
        problems.extend(refused.into_iter().flat_map(|Problems(all)| all));
    }
    (layers, problems)
}

/// Returns true if the layers ask for a JSON log; read apart, so that messages about invalid settings follow it.
pub(crate) fn wants_json(flags: &Flags, environment: &Environment, home: &Home) -> bool {
    let layers = lay(flags, environment, home, &mut Vec::new());
    layers
        .get(&row::log_format)
        .text
        .eq_ignore_ascii_case("json")
}

/// The settings that were given but that only `ratekeeper gateway` uses, each with the place where it was set.
pub(crate) fn ignored_by_serve(layers: &Layers) -> Vec<String> {
    let gateways = table::GROUPS.iter().filter(|group| group.is_gateways);
    let said = gateways
        .flat_map(|group| group.settings)
        .map(|setting| layers.get(setting))
        .filter(|said| !said.is_default());
    said.map(|said| format!("{} ({})", said.setting.key, said.origin))
        .collect()
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
    let mut layers = Layers::default();
    environment.put_name(&mut layers);
    if let Some(path) = file_in_use(flags, environment, home) {
        match read(&path) {
            Ok(text) => {
                layers.file_read = Some(file::fingerprint(text.as_bytes()));
                file::put(&text, &path, &mut layers, problems);
            }
            Err(error) => problems.push(Problem {
                place: path.display().to_string(),
                message: error.to_string(),
            }),
        }
    }
    // Ours go before envoyproxy/ratelimit's.
    envoyproxy_ratelimit::put(environment, &mut layers, problems);
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
        let mut reader = Reader::new(layers);
        let values = Values::read(&mut reader);
        let mut checks = Checks::new(&values, reader.problems);
        checks.envoy_callers();
        let tls = checks.listeners_tls();
        let redis = checks.redis();
        let quotas = checks.quotas();
        let routes = checks.routes();
        let gateway_tls = checks.gateway_tls();
        let service = checks.service();
        let traces = checks.traces();
        let rules_tls = checks.control_plane();
        let region = checks.region();
        checks.finish()?;
        let defaults = values.redis_config();
        let stores = values.stores.iter();
        let stores: Vec<_> = stores.map(|it| NamedStore::new(it, &defaults)).collect();
        let auth = values.auth_config();
        let mut rules = RulesSettings::new(&values, layers, home);
        let options = &mut rules.options;
        options.secrets = auth.describer.secret_keys();
        options.path_keys = auth.describer.path_keys();
        options.region = region;
        options.stores = Some(stores.iter().map(|store| store.name.clone()).collect());
        let fetched = xds::fetched(&values, rules_tls, options);
        rules.fetched = fetched.map_err(|problem| Problems(vec![problem]))?;
        Ok(Settings {
            rules,
            tls,
            redis,
            stores,
            state: values.state_file(),
            quotas,
            envoy: values.rls_config(),
            auth,
            routes,
            gateway_tls,
            service,
            traces,
            file_read: layers.file_read,
            values,
        })
    }
}

#[cfg(test)]
mod defaults;
#[cfg(test)]
mod tests;
