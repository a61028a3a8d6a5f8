//! The rules that tests are about, each set read once.

use super::report::Report;
use crate::rules;
use crate::settings::Settings;
use anyhow::{Context, Result};
use ratekeeper_rules::{Diagnostics, RuleSet};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The sets of rules that have been read, by their paths.
pub(super) struct Rulebook<'a> {
    settings: &'a Settings,
    /// The rules of the command line, which count for all tests.
    given: Option<&'a Path>,
    /// [`None`] for rules that are refused.
    read: HashMap<PathBuf, Option<RuleSet>>,
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

    /// The rules for a test in `file`, which names them by `named`. [`None`] if they are refused, which is reported once.
    ///
    /// # Errors
    /// Nobody names rules, or they cannot be read.
    pub(super) fn rules(
        &mut self,
        file: &Path,
        named: Option<&str>,
        report: &mut Report,
    ) -> Result<Option<RuleSet>> {
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
        );
        let rules = match loaded.map_err(anyhow::Error::downcast::<Diagnostics>) {
            Ok(loaded) => Some(loaded.rules),
            Err(Ok(refused)) => {
                report.refuse(&refused);
                None
            }
            Err(Err(error)) => return Err(error),
        };
        self.read.insert(path, rules.clone());
        Ok(rules)
    }
}
