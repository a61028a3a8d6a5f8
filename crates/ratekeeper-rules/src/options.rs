//! Options for loading rules.

use std::collections::BTreeSet;

use ratekeeper_core::Algorithm;

use crate::slas::PathPattern;
use crate::{FailureMode, NodeRegion, PathFolding, PathForm, PathKeys, TenantKey};

/// The defaults for keys that a file leaves out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Profile {
    /// Ratekeeper's own: `sliding_window`, and a denied request consumes nothing.
    #[default]
    Ratekeeper,
    /// Those of envoyproxy/ratelimit: `fixed_window`, and a denied request is counted.
    Envoy,
}

impl Profile {
    /// The algorithm of limits that name none.
    #[must_use]
    pub const fn algorithm(self) -> Algorithm {
        match self {
            Self::Ratekeeper => Algorithm::SlidingWindow,
            Self::Envoy => Algorithm::FixedWindow,
        }
    }

    /// Returns true if limits count denied requests, unless they say otherwise.
    #[must_use]
    pub const fn counts_denied(self) -> bool {
        match self {
            Self::Ratekeeper => false,
            Self::Envoy => true,
        }
    }
}

/// Options for loading rules.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Lets several files add to one domain; otherwise that is an error.
    pub merge_domains: bool,
    /// The defaults to apply.
    pub profile: Profile,
    /// The failure mode of rules without `on_store_failure`.
    pub on_store_failure: FailureMode,
    /// The names of the stores that exist; [`None`] if the caller does not know them.
    pub stores: Option<Vec<Box<str>>>,
    /// The region of this node, for rules with `regions`.
    pub region: NodeRegion,
    /// The base path of `slas:` patterns in files without `slas_base`.
    pub slas_base: Option<PathPattern>,
    /// Keys whose values are secrets in every domain, besides those that files list: the entries
    /// that settings make from credentials.
    pub secrets: BTreeSet<Box<str>>,
    /// The secret under which tenants in files are hashed; without it, files can name tenants by
    /// their values only.
    pub tenant_key: Option<TenantKey>,
    /// The differences between paths that do not count.
    pub path_folding: PathFolding,
    /// The keys of entries that are made from paths: their values are folded. `path` and
    /// `endpoint` unless set.
    pub path_keys: PathKeys,
}

impl Default for Options {
    fn default() -> Self {
        let key = |key: &str, form| (key.into(), BTreeSet::from([form]));
        Self {
            merge_domains: false,
            profile: Profile::default(),
            on_store_failure: FailureMode::default(),
            stores: None,
            region: NodeRegion::default(),
            slas_base: None,
            secrets: BTreeSet::new(),
            tenant_key: None,
            path_folding: PathFolding::default(),
            path_keys: PathKeys::from([
                key("path", PathForm::Path),
                key("endpoint", PathForm::Endpoint),
            ]),
        }
    }
}

/// The name of the store that keeps the counters of rules without `store`.
pub const DEFAULT_STORE: &str = "default";
