//! Settings: `ratekeeper.yaml` < the environment < flags, every value with the place it came from.
//!
//! Values stay text until all layers are merged; then [`Settings::from_layers`] parses each of them once and reports
//! all errors in one run. Nothing outside this crate reads the environment.

mod callers;
mod environment;
mod envoy;
mod envoyproxy_ratelimit;
mod file;
mod flags;
mod gateway;
mod layer;
mod listen;
mod log;
mod meaning;
mod nested;
mod problem;
mod quotas;
mod requests;
mod rules;
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
pub(crate) use flags::{CommandFlags, Flags, is_gateways};
pub(crate) use gateway::{GatewaySettings, LogTo};
pub(crate) use layer::Layers;
pub(crate) use log::{LogFormat, LogSettings};
pub(crate) use meaning::{path_folding, profile};
pub(crate) use nested::parse as nested;
pub(crate) use problem::{Problem, Problems};
pub(crate) use quotas::QuotaSettings;
pub(crate) use requests::slas_base;
pub(crate) use rules::RulesSettings;
pub(crate) use service::ServiceSettings;
pub(crate) use setting::Setting;
pub(crate) use store::RedisSettings;
pub(crate) use table::settings as all;
pub(crate) use tls::TlsSettings;
pub(crate) use traces::TraceSettings;
#[cfg(feature = "traces")]
pub(crate) use traces::headers as trace_headers;
pub(crate) use values::{UNIX, duration, hash_key};
pub(crate) use values::{masked, masked_within, percent_encoded};

use crate::home::Home;
use listen::Listen;
use ratekeeper_limiter::Modes;
use ratekeeper_server::{AuthConfig, Caller, OnUnreadable, RlsConfig};
use std::io::Read;
use std::path::{Path, PathBuf};
use store::Counters;
use typed::Typed;

/// All settings, typed.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) rules: RulesSettings,
    pub(crate) listen: Listen,
    pub(crate) counters: Counters,
    pub(crate) quotas: QuotaSettings,
    pub(crate) modes: Modes,
    /// The answers to Envoy, and the permissions that its protocol asks for.
    pub(crate) envoy: RlsConfig,
    /// The answer to a check that cannot be read.
    pub(crate) on_unreadable: OnUnreadable,
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

/// Returns true if the layers ask for a JSON log; read apart, so that messages about invalid settings follow it.
pub(crate) fn wants_json(flags: &Flags, environment: &Environment, home: &Home) -> bool {
    let layers = lay(flags, environment, home, &mut Vec::new());
    layers.said("log_format").text.eq_ignore_ascii_case("json")
}

/// The settings that were given but that only `ratekeeper gateway` uses, each with the place where it was set.
pub(crate) fn ignored_by_serve(layers: &Layers) -> Vec<String> {
    let gateways = table::GROUPS.iter().filter(|group| group.is_gateways);
    let said = gateways
        .flat_map(|group| group.settings)
        .filter_map(|setting| {
            let origin = layers.get(setting).origin;
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
    let mut layers = Layers::default();
    if let Some(path) = file_in_use(flags, environment, home) {
        match read(&path) {
            Ok(text) => file::put(&text, &path, &mut layers, problems),
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
            on_unreadable: typed.get("on_unreadable", meaning::on_unreadable),
            data_dir: typed.path("data_dir"),
            gateway: typed.gateway(),
            log: typed.log(),
            traces: typed.traces(),
        };
        let stores = settings.counters.stores.iter();
        let options = &mut settings.rules.options;
        options.secrets = settings.auth.describer.secret_keys();
        options.path_keys = settings.auth.describer.path_keys();
        options.stores = Some(stores.map(|store| store.name.clone()).collect());
        settings.envoy.profile = options.profile;
        typed.finish(settings)
    }
}

#[cfg(test)]
mod defaults;
#[cfg(test)]
mod tests;
