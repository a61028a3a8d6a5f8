//! The settings of the rules.

use super::envoyproxy_ratelimit::RUNTIME_ROOT;
use super::layer::Origin;
use super::meaning::{failure_mode, path_folding, profile};
use super::requests::slas_base;
use super::typed::Typed;
use super::values;
use crate::home::Home;
use ratekeeper_limiter::Modes;
use ratekeeper_rules::{Options, PathFolding, Profile, ReadOptions, TenantKey};
use std::path::PathBuf;

/// The place of the rules, and how to read them.
#[derive(Debug)]
pub(crate) struct RulesSettings {
    /// The file or folder; `None` where none was named and none was found.
    pub(crate) path: Option<PathBuf>,
    /// Reads every file in a folder under envoyproxy/ratelimit's RUNTIME_ROOT.
    pub(crate) read: ReadOptions,
    pub(crate) watch: bool,
    /// Starts with the last good rules while the files are broken.
    pub(crate) uses_last_good: bool,
    /// The variables of envoyproxy/ratelimit that are set although no profile is.
    pub(crate) profile_unsaid: Option<String>,
    /// The file or folder of tenants, where they are not among the rules.
    pub(crate) tenants: Option<PathBuf>,
    /// The options of the rules crate.
    pub(crate) options: Options,
}

impl Typed<'_> {
    /// All but what follows from other settings: stores that rules may name, and keys of entries.
    pub(super) fn rules(&mut self, home: &Home) -> RulesSettings {
        let runtime_root = Origin::Variable(RUNTIME_ROOT.to_owned());
        let mut options = Options::default();
        options.merge_domains = self.get("merge_domains", values::switch);
        options.profile = self.get("profile", profile);
        options.path_folding = self.path_folding(options.profile);
        options.on_store_failure = self.get("on_store_failure", failure_mode);
        options.slas_base = self.get("slas_base", slas_base);
        options.tenant_key = self.get("tenant_key", |text| {
            let key = values::maybe(text, values::hash_key);
            key.map(|key| key.map(TenantKey::from_bytes))
        });
        RulesSettings {
            read: ReadOptions {
                every_file: self.layers.said("rules").origin == runtime_root,
            },
            path: self.path("rules").or_else(|| home.rules()),
            watch: self.get("watch", values::switch),
            uses_last_good: self.get("on_broken_rules", |text| {
                values::one_of(text, &[("last_good", true), ("refuse", false)])
            }),
            profile_unsaid: self.layers.envoy_variables.clone(),
            tenants: self.path("tenants"),
            options,
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
