//! Settings: `ratekeeper.yaml` < the environment < flags, every value with the place it came from.
//!
//! Values stay text until all layers lie on each other; then [`Settings::from_layers`] gives each its meaning, once, and
//! says everything that is wrong in one run. Nothing outside this crate reads the environment.

mod environment;
mod file;
mod flags;
mod layer;
mod problem;
mod table;
mod typed;
mod values;

pub(crate) use environment::Environment;
pub(crate) use flags::Flags;
pub(crate) use layer::Layers;
pub(crate) use problem::{Problem, Problems};
pub(crate) use table::{SETTINGS, Setting};
pub(crate) use typed::profile;

use crate::home::Home;
use ratekeeper_limiter::Modes;
use ratekeeper_rules::{FailureMode, Options, Profile};
use ratekeeper_server::LimitHeaders;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use typed::Typed;

/// All settings, typed.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) rules: RulesSettings,
    pub(crate) listen: Listen,
    pub(crate) counters: Counters,
    pub(crate) modes: Modes,
    pub(crate) envoy: EnvoySettings,
    pub(crate) log: LogSettings,
}

/// Where rules are and how they are read.
#[derive(Debug)]
pub(crate) struct RulesSettings {
    /// The file or folder; `None` where none was named and none was found.
    pub(crate) path: Option<PathBuf>,
    /// Whether every file of a folder is one of rules, whatever its name (the incumbent's RUNTIME_ROOT).
    pub(crate) every_file: bool,
    pub(crate) watch: bool,
    pub(crate) merge_domains: bool,
    pub(crate) profile: Profile,
    /// For rules that do not say.
    pub(crate) on_store_failure: FailureMode,
}

impl RulesSettings {
    /// As the rules crate wants them.
    pub(crate) fn options(&self) -> Options {
        let mut options = Options::default();
        options.merge_domains = self.merge_domains;
        options.profile = self.profile;
        options.on_store_failure = self.on_store_failure;
        options
    }
}

/// The addresses that are opened, and when they are closed.
#[derive(Debug)]
pub(crate) struct Listen {
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) metrics: Option<SocketAddr>,
    /// For how long they stay open after a shutdown began.
    pub(crate) drain_delay: Duration,
}

/// Where counters live.
#[derive(Debug)]
pub(crate) struct Counters {
    /// In bytes, 1 MiB at least.
    pub(crate) memory_limit: u64,
    /// The most of it that one rule may hold, 1 to 100.
    pub(crate) max_share_percent: u8,
    /// Where they are saved, if anywhere.
    pub(crate) state: Option<PathBuf>,
}

/// How Envoy is answered.
#[derive(Debug)]
pub(crate) struct EnvoySettings {
    pub(crate) limit_headers: Option<LimitHeaders>,
    pub(crate) draft_headers: bool,
    pub(crate) dynamic_metadata: bool,
}

/// What is logged, and how.
#[derive(Debug)]
pub(crate) struct LogSettings {
    /// A level or a filter, as tracing understands it.
    pub(crate) filter: String,
    pub(crate) format: LogFormat,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Lays all layers on each other: defaults, the settings file, the environment, flags.
///
/// # Errors
/// All that is wrong with them, at once.
pub(crate) fn layers(
    flags: &Flags,
    environment: &Environment,
    home: &Home,
) -> Result<Layers, Problems> {
    let mut layers = Layers::defaults();
    let mut problems = Vec::new();
    let named = flags
        .config
        .clone()
        .or_else(|| environment.get(environment::CONFIG).map(PathBuf::from));
    if let Some(path) = named.or_else(|| home.settings_file()) {
        match read(&path) {
            Ok(text) => file::put(&text, &path, &mut layers, &mut problems),
            Err(message) => problems.push(Problem {
                place: path.display().to_string(),
                message,
            }),
        }
    }
    environment.put(&mut layers, &mut problems);
    flags.put(&mut layers);
    if problems.is_empty() {
        Ok(layers)
    } else {
        Err(Problems(problems))
    }
}

fn read(path: &Path) -> Result<String, String> {
    let file = std::fs::File::open(path)
        .map_err(|error| format!("the settings file cannot be read: {error}"))?;
    let mut text = String::new();
    let limit = file::SIZE_MAX;
    file.take(limit + 1)
        .read_to_string(&mut text)
        .map_err(|error| format!("the settings file cannot be read: {error}"))?;
    if text.len() as u64 > limit {
        return Err(format!("the settings file is larger than {limit} bytes"));
    }
    Ok(text)
}

impl Settings {
    /// Gives every value its meaning.
    ///
    /// # Errors
    /// All values that have none, at once.
    pub(crate) fn from_layers(layers: &Layers, home: &Home) -> Result<Settings, Problems> {
        let mut typed = Typed::new(layers);
        let settings = Settings {
            rules: typed.rules(home),
            listen: typed.listen(),
            counters: typed.counters(),
            modes: typed.modes(),
            envoy: typed.envoy(),
            log: typed.log(),
        };
        typed.finish(settings)
    }
}

#[cfg(test)]
mod tests;
