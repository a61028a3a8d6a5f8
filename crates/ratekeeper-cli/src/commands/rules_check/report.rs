//! The outcome of a check as JSON. `docs/rules.md` has the fields, which later versions only add to.

use super::Checked;
use crate::output;
use ratekeeper_core::Limit;
use ratekeeper_rules::{Diagnostic, Domain, Enforce, Loaded, RegionMode, Rule};
use serde::Serialize;
use std::collections::HashMap;

/// The version of the fields: it changes if one is renamed, removed or means something else.
const SCHEMA: u32 = 1;

/// The outcome of a check.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    schema: u32,
    ok: bool,
    /// The number of files that were found.
    files: usize,
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
    domains: Vec<DomainEntry<'a>>,
    rules: Vec<RuleEntry<'a>>,
}

/// An error or a warning.
#[derive(Serialize)]
struct Problem {
    /// The place; null for what is about no place in a file.
    file: Option<String>,
    line: Option<u32>,
    column: Option<u32>,
    message: String,
    /// The text to write instead, if that is known.
    help: Option<String>,
}

/// A domain.
#[derive(Serialize)]
struct DomainEntry<'a> {
    name: &'a str,
    evaluation: &'static str,
    rules: usize,
    /// Tenants that files give a plan or limits of their own.
    tenants: usize,
}

/// A rule.
#[derive(Serialize)]
struct RuleEntry<'a> {
    id: &'a str,
    domain: &'a str,
    plan: Option<&'a str>,
    mode: &'static str,
    /// The share of subjects that it denies, 0 to 100.
    enforce_percent: f64,
    quota_mode: bool,
    /// The limit in words.
    limit: String,
    /// The hits of a window; null if it is unlimited.
    quota: Option<u64>,
    /// Null for limits without a window.
    window_ms: Option<f64>,
    algorithm: Option<&'static str>,
    /// The way in which regions share the limit; null if they do not.
    regions: Option<&'static str>,
    /// The hits of a window that the region of `--config` enforces; null if regions do not share the limit, or the
    /// region is not known.
    region_quota: Option<u64>,
    file: &'a str,
    line: u32,
    column: u32,
}

impl<'a> Report<'a> {
    pub(super) fn of(checked: &'a Checked) -> Self {
        let none = Self {
            schema: SCHEMA,
            ok: false,
            files: checked.files,
            errors: Vec::new(),
            warnings: Vec::new(),
            domains: Vec::new(),
            rules: Vec::new(),
        };
        match &checked.outcome {
            Ok(loaded) => Self {
                ok: true,
                warnings: problems(&loaded.warnings),
                domains: domains(loaded),
                rules: loaded.rules.rules().iter().map(RuleEntry::of).collect(),
                ..none
            },
            Err(refused) => Self {
                errors: problems(refused.errors()),
                warnings: problems(refused.warnings()),
                ..none
            },
        }
    }

    /// The report where no file could be checked.
    pub(super) fn without_files(error: &anyhow::Error) -> Self {
        let problem = Problem {
            file: None,
            line: None,
            column: None,
            message: output::with_causes(error),
            help: None,
        };
        Self {
            schema: SCHEMA,
            ok: false,
            files: 0,
            errors: vec![problem],
            warnings: Vec::new(),
            domains: Vec::new(),
            rules: Vec::new(),
        }
    }
}

fn problems(all: &[Diagnostic]) -> Vec<Problem> {
    let problem = |diagnostic: &Diagnostic| Problem {
        file: Some(diagnostic.place.file.to_string()),
        line: Some(diagnostic.place.line),
        column: Some(diagnostic.place.column),
        message: diagnostic.message.clone(),
        help: diagnostic.help.clone(),
    };
    all.iter().map(problem).collect()
}

fn domains(loaded: &Loaded) -> Vec<DomainEntry<'_>> {
    let mut rules: HashMap<&str, usize> = HashMap::new();
    for rule in loaded.rules.rules() {
        *rules.entry(&rule.domain).or_default() += 1;
    }
    let entry = |domain| DomainEntry {
        name: Domain::name(domain),
        evaluation: domain.evaluation().name(),
        rules: rules.get(domain.name()).copied().unwrap_or_default(),
        tenants: domain.tenants_listed(),
    };
    loaded.rules.domains().map(entry).collect()
}

impl<'a> RuleEntry<'a> {
    fn of(rule: &'a Rule) -> Self {
        let limit = rule.limited();
        let has_window = |limit: &&Limit| !limit.algorithm().holds_permits();
        Self {
            id: &rule.id,
            domain: &rule.domain,
            plan: rule.plan.as_deref(),
            mode: mode(rule),
            enforce_percent: f64::from(rule.enforce.hundredths()) / 100.0,
            quota_mode: rule.quota_mode,
            limit: rule.in_words(),
            quota: limit.map(|limit| limit.quota()),
            window_ms: limit
                .filter(has_window)
                .map(|limit| millis(limit.window().get())),
            algorithm: limit.map(|limit| limit.algorithm().name()),
            regions: rule.regions.map(RegionMode::name),
            region_quota: rule.share.as_ref().map(|share| share.limit.quota()),
            file: &rule.place.file,
            line: rule.place.line,
            column: rule.place.column,
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a window is far below 2^53 microseconds"
)]
fn millis(micros: u64) -> f64 {
    micros as f64 / 1_000.0
}

fn mode(rule: &Rule) -> &'static str {
    match rule.enforce {
        _ if !rule.enabled => "disabled",
        share if rule.shadow || share == Enforce::NONE => "shadow",
        share if share.is_all() => "enforced",
        _ => "partial",
    }
}
