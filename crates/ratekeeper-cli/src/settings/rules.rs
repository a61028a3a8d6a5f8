//! The settings of the rules.

use super::envoyproxy_ratelimit::RUNTIME_ROOT;
use super::layer::Origin;
use super::meaning::{failure_mode, path_folding, profile};
use super::requests::slas_base;
use super::typed::Typed;
use super::values;
use crate::home::Home;
use ratekeeper_limiter::Modes;
use ratekeeper_rules::{
    FailureMode, Options, PathFolding, PathKeys, PathPattern, Profile, ReadOptions, TenantKey,
};
use std::collections::BTreeSet;
use std::path::PathBuf;

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

impl Typed<'_> {
    /// All but the stores that rules may name.
    pub(super) fn rules(&mut self, home: &Home) -> RulesSettings {
        let runtime_root = Origin::Variable(RUNTIME_ROOT.to_owned());
        let profile = self.get("profile", profile);
        RulesSettings {
            read: ReadOptions {
                every_file: self.layers.said("rules").origin == runtime_root,
            },
            path: self.path("rules").or_else(|| home.rules()),
            watch: self.get("watch", values::switch),
            merge_domains: self.get("merge_domains", values::switch),
            profile,
            path_folding: self.path_folding(profile),
            path_keys: PathKeys::new(),
            profile_unsaid: self.layers.envoy_variables.clone(),
            on_store_failure: self.get("on_store_failure", failure_mode),
            slas_base: self.get("slas_base", slas_base),
            tenants: self.path("tenants"),
            tenant_key: self.get("tenant_key", |text| {
                let key = values::maybe(text, values::hash_key);
                key.map(|key| key.map(TenantKey::from_bytes))
            }),
            stores: Vec::new(),
            secrets: BTreeSet::new(),
        }
    }

    fn path_folding(&mut self, profile: Profile) -> PathFolding {
        let unset = path_folding(profile);
        let mut said = |key| self.get(key, |text| values::maybe(text, values::switch));
        PathFolding {
            ignores_case: said("ignore_path_case").unwrap_or(unset.ignores_case),
            ignores_trailing_slash: said("ignore_trailing_slash")
                .unwrap_or(unset.ignores_trailing_slash),
        }
    }

    pub(super) fn modes(&mut self) -> Modes {
        Modes {
            shadow: self.get("shadow_mode", values::switch),
            quota: self.get("quota_mode", values::switch),
        }
    }
}
