//! The settings of the rules.

use super::envoyproxy_ratelimit::RUNTIME_ROOT;
use super::layer::{Layers, Origin, RawValue};
use super::table::Values;
use super::value_error::ValueError;
use super::values::{hash_key, maybe, one_of};
use super::xds::control_plane;
use crate::home::Home;
use ratekeeper_limiter::Modes;
use ratekeeper_rules::{FailureMode, Options, PathFolding, Profile, ReadOptions, TenantKey};
use ratekeeper_sources::{TextsPlace, XdsConfig};
use std::path::PathBuf;

/// The place of the rules, and how to read them.
#[derive(Debug)]
pub(crate) struct RulesSettings {
    /// The file or folder; `None` where none was named and none was found.
    pub(crate) path: Option<PathBuf>,
    /// The place elsewhere that they are fetched from instead.
    pub(crate) fetched: Option<Fetched>,
    /// Reads every file in a folder under envoyproxy/ratelimit's RUNTIME_ROOT.
    pub(crate) read: ReadOptions,
    /// The variables of envoyproxy/ratelimit that are set although no profile is.
    pub(crate) profile_unsaid: Option<String>,
    /// The options of the rules crate.
    pub(crate) options: Options,
}

/// The place of the rules, as it is named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RulesPlace {
    /// A file or a folder.
    Path(PathBuf),
    /// The URL of a control plane, as its client spells it.
    ControlPlane(String),
    /// The URL of texts: of one on a web server, or of a key in Redis or etcd.
    Texts(String),
}

/// A place elsewhere than in files, and how to fetch from it.
#[derive(Clone, Debug)]
pub(crate) enum Fetched {
    Xds(XdsConfig),
    Texts(TextsPlace),
}

impl Fetched {
    /// The place, for people.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Xds(config) => config.name(),
            Self::Texts(place) => place.name().to_owned(),
        }
    }
}

/// Returns true for the URL of texts.
fn is_url(text: &str) -> bool {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    let family = scheme.map(|scheme| scheme.split('+').next().unwrap_or_default());
    let families = [
        "https", "http", "redis", "rediss", "valkey", "valkeys", "etcd", "etcds",
    ];
    family.is_some_and(|family| families.contains(&family))
}

/// Parses the place of the rules.
pub(super) fn rules_place(said: &RawValue) -> Result<Option<RulesPlace>, ValueError> {
    if said.text.is_empty() {
        return Ok(None);
    }
    let place = match control_plane(&said.text) {
        Some(url) => RulesPlace::ControlPlane(url?),
        None if is_url(&said.text) => RulesPlace::Texts(said.text.clone()),
        None => RulesPlace::Path(said.origin.path(&said.text)),
    };
    Ok(Some(place))
}

/// The start while the rules' files are broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnBrokenRules {
    /// With the last good rules.
    LastGood,
    /// None.
    Refuse,
}

impl RulesSettings {
    /// All but what follows from other settings: stores that rules may name, keys of entries, and the control plane.
    pub(super) fn new(values: &Values, layers: &Layers, home: &Home) -> Self {
        let mut options = Options::default();
        options.merge_domains = *values.merge_domains;
        options.profile = *values.profile;
        options.path_folding = values.path_folding();
        options.on_store_failure = *values.on_store_failure;
        options.slas_base.clone_from(&values.slas_base);
        options.tenant_key.clone_from(&values.tenant_key);
        Self {
            path: match &*values.rules {
                Some(RulesPlace::Path(path)) => Some(path.clone()),
                Some(RulesPlace::ControlPlane(_) | RulesPlace::Texts(_)) => None,
                None => home.rules(),
            },
            fetched: None,
            read: ReadOptions {
                every_file: values.rules.said.origin == Origin::Variable(RUNTIME_ROOT.to_owned()),
            },
            profile_unsaid: layers.envoy_variables.clone(),
            options,
        }
    }
}

impl Values {
    fn path_folding(&self) -> PathFolding {
        let unset = path_folding(*self.profile);
        PathFolding {
            ignores_case: self.ignore_path_case.unwrap_or(unset.ignores_case),
            ignores_trailing_slash: self
                .ignore_trailing_slash
                .unwrap_or(unset.ignores_trailing_slash),
        }
    }

    /// The modes of all rules.
    pub(crate) fn modes(&self) -> Modes {
        Modes {
            shadow: *self.shadow_mode,
            quota: *self.quota_mode,
        }
    }
}

/// Parses the profile, which says what rules mean where they leave it open.
pub(crate) fn profile(text: &str) -> Result<Profile, ValueError> {
    let words = [
        ("ratekeeper", Profile::Ratekeeper),
        ("envoy", Profile::Envoy),
    ];
    one_of(&words)(text)
}

/// The differences between paths that do not count unless the settings say which: envoyproxy/ratelimit
/// compares letter by letter.
pub(crate) const fn path_folding(profile: Profile) -> PathFolding {
    let ignores = matches!(profile, Profile::Ratekeeper);
    PathFolding {
        ignores_case: ignores,
        ignores_trailing_slash: ignores,
    }
}

/// Parses the answer while who decides cannot be asked.
pub(super) fn failure_mode(text: &str) -> Result<FailureMode, ValueError> {
    let words = [
        ("local", FailureMode::Local),
        ("allow", FailureMode::Allow),
        ("deny", FailureMode::Deny),
    ];
    one_of(&words)(text)
}

/// Parses the key of the hashes that name tenants.
pub(super) fn tenant_key(text: &str) -> Result<Option<TenantKey>, ValueError> {
    let key = maybe(hash_key)(text)?;
    Ok(key.map(TenantKey::from_bytes))
}
