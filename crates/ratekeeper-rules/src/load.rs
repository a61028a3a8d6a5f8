//! From texts to a [`RuleSet`].

use crate::{Diagnostic, Diagnostics, FailureMode, RuleSet, Source};

/// Which defaults hold where a file says nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Profile {
    /// Ours: `sliding_window`, and a denied request consumes nothing.
    #[default]
    Ratekeeper,
    /// The incumbent's: `fixed_window`, and a denied request is counted.
    Envoy,
}

/// How files are to be understood.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// Whether several files may add to one domain; else that is an error.
    pub merge_domains: bool,
    /// Which defaults hold.
    pub profile: Profile,
    /// What rules without `on_store_failure` answer while the store cannot.
    pub on_store_failure: FailureMode,
    /// What patterns of `slas:` are relative to in files without `slas_base`.
    pub slas_base: Option<String>,
}

/// What was loaded.
#[derive(Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The rules.
    pub rules: RuleSet,
    /// What may not be as it was meant.
    pub warnings: Vec<Diagnostic>,
}

/// Compiles all rules of `sources`.
///
/// # Errors
/// Everything that is wrong with them, in all files at once.
pub fn load(sources: &[Source], options: &Options) -> Result<Loaded, Diagnostics> {
    let _ = (sources, options);
    Ok(Loaded {
        rules: RuleSet::default(),
        warnings: Vec::new(),
    })
}
