//! The rules that tests are about, each set read once.

use super::reached::Reached;
use super::report::Report;
use crate::rules;
use crate::settings::Settings;
use anyhow::{Context, Result};
use ratekeeper_rules::{Diagnostics, RuleSet};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The sets of rules that have been read, by their paths.
pub(super) struct Rulebook<'a> {
    settings: &'a Settings,
    /// The rules of the command line, which count for all tests.
    given: Option<&'a Path>,
    /// By one path, however tests spell it. [`None`] for rules that are refused.
    read: HashMap<PathBuf, Option<(RuleSet, Reached)>>,
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
    ) -> Result<Option<(RuleSet, &mut Reached)>> {
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
        let place = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        if !self.read.contains_key(&place) {
            let rules = self.load(&path, report)?;
            let rules = rules.map(|rules| {
                let reached = Reached::of(&rules);
                (rules, reached)
            });
            self.read.insert(place.clone(), rules);
        }
        let read = self.read.get_mut(&place).and_then(Option::as_mut);
        Ok(read.map(|(rules, reached)| (rules.clone(), reached)))
    }

    /// The sets that have been read, with the rules that answered.
    pub(super) fn reached(&self) -> impl Iterator<Item = &Reached> {
        self.read.values().flatten().map(|(_, reached)| reached)
    }

    fn load(&self, path: &Path, report: &mut Report) -> Result<Option<RuleSet>> {
        let loaded = rules::load(
            path,
            self.settings.values.tenants.as_deref(),
            self.settings.rules.read,
            &self.settings.rules.options,
        );
        match loaded.map_err(anyhow::Error::downcast::<Diagnostics>) {
            Ok(loaded) => Ok(Some(loaded.rules)),
            Err(Ok(refused)) => {
                report.refuse(&refused);
                Ok(None)
            }
            Err(Err(error)) => Err(error),
        }
    }
}
