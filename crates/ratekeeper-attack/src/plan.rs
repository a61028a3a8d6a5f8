//! The extent of a campaign.

use std::path::PathBuf;

/// The extent of the campaign.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Floods and crowds are this many times smaller than those of the full form.
    pub(crate) divisor: u32,
    pub(crate) h2spec: Option<PathBuf>,
    names: Vec<String>,
    without: Vec<&'static str>,
}

impl Plan {
    /// The campaign of `docs/measurements.md`.
    #[must_use]
    pub const fn full() -> Self {
        Self {
            divisor: 1,
            h2spec: None,
            names: Vec::new(),
            without: Vec::new(),
        }
    }

    /// A tenth of that, for tests.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            divisor: 10,
            ..Self::full()
        }
    }

    /// The same, with h2spec where there is one.
    #[must_use]
    pub fn with_h2spec(self, h2spec: Option<PathBuf>) -> Self {
        Self { h2spec, ..self }
    }

    /// Only families whose names contain one of `names`, or all if there are none.
    #[must_use]
    pub fn with_names(self, names: Vec<String>) -> Self {
        Self { names, ..self }
    }

    /// The same without the families of these names.
    #[must_use]
    pub fn without(mut self, without: &[&'static str]) -> Self {
        self.without.extend(without);
        self
    }

    /// Returns true if the campaign has this family.
    pub(crate) fn wants(&self, family: &str) -> bool {
        if self.without.contains(&family) {
            return false;
        }
        let is_named = |name: &String| family.contains(&name.to_lowercase());
        self.names.is_empty() || self.names.iter().any(is_named)
    }
}
