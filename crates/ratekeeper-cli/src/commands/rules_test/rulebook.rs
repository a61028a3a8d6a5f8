//! The rules that tests are about, each set read once.

use crate::rules;
use crate::settings::Settings;
use anyhow::{Context, Result};
use ratekeeper_rules::RuleSet;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The sets of rules that have been read, by their paths.
pub(super) struct Rulebook<'a> {
    settings: &'a Settings,
    /// The rules of the command line, which count for all tests.
    given: Option<&'a Path>,
    read: HashMap<PathBuf, RuleSet>,
}

impl<'a> Rulebook<'a> {
    pub(super) fn new(settings: &'a Settings, given: Option<&'a Path>) -> Self {
        Self {
            settings,
            given,
            read: HashMap::new(),
        }
    }

    pub(super) const fn settings(&self) -> &'a Settings {
        self.settings
    }

    /// The rules for a test in `file`, which names them by `named`.
    ///
    /// # Errors
    /// Nobody names rules, or they are refused.
    pub(super) fn rules(&mut self, file: &Path, named: Option<&str>) -> Result<RuleSet> {
        let beside = || Some(file.parent()?.join(named?));
        let given = self.given.map(Path::to_owned);
        let path = given
            .or_else(beside)
            .or_else(|| self.settings.rules.path.clone());
        let path = path.with_context(|| {
            let file = file.display();
            format!(
                "{file} names no rules; write `rules: api.yaml` into it, or name them: --rules PATH"
            )
        })?;
        if let Some(rules) = self.read.get(&path) {
            return Ok(rules.clone());
        }
        let loaded = rules::load(
            &path,
            self.settings.values.tenants.as_deref(),
            self.settings.rules.read,
            &self.settings.rules.options,
        )?;
        self.read.insert(path, loaded.rules.clone());
        Ok(loaded.rules)
    }
}
