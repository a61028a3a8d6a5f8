//! Every mistake that tests, fuzz seeds and examples of this project make, and what is said about each: file, line,
//! column, length, text and help.
//!
//! `RATEKEEPER_BLESS=1 cargo test -p ratekeeper-rules --test corpus` writes the answers anew. Their difference is then
//! to be read line by line: a message may get better, and may not get lost.

use std::fmt::Write as _;
use std::path::Path;

use ratekeeper_rules::{
    Diagnostic, FailureMode, Options, PathPattern, Profile, Severity, Source, TenantKey,
    TenantOverride, TenantQuotas, load,
};
use serde::Deserialize;

/// Rules files, and the options under which they are loaded.
#[derive(Deserialize)]
struct Case {
    options: Settings,
    files: Vec<String>,
}

/// The options that a case sets.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    profile: Option<String>,
    merge_domains: bool,
    on_store_failure: Option<FailureMode>,
    stores: Option<Vec<Box<str>>>,
    slas_base: Option<String>,
    tenant_key: bool,
}

impl Settings {
    fn options(self) -> Options {
        let mut options = Options::default();
        if self.profile.is_some() {
            options.profile = Profile::Envoy;
        }
        options.merge_domains = self.merge_domains;
        options.on_store_failure = self.on_store_failure.unwrap_or_default();
        options.stores = self.stores;
        options.slas_base = self
            .slas_base
            .map(|base| PathPattern::parse(&base).expect("a path"));
        options.tenant_key = self.tenant_key.then(|| TenantKey::from_bytes([7; 16]));
        options
    }
}

/// The diagnostics of a case, one on each line, with its help below it.
fn said_of(case: Case) -> String {
    let sources: Vec<_> = (0..)
        .zip(case.files)
        .map(|(at, text)| Source {
            name: format!("{at}.yaml"),
            text,
        })
        .collect();
    let (errors, warnings) = match load(&sources, &case.options.options()) {
        Ok(loaded) => (Vec::new(), loaded.warnings),
        Err(wrong) => (wrong.errors().to_vec(), wrong.warnings().to_vec()),
    };
    errors.iter().chain(&warnings).map(line_of).collect()
}

fn line_of(said: &Diagnostic) -> String {
    let kind = match said.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let length = said.excerpt.length;
    let message = &said.message;
    let mut line = format!("{}+{length}: {kind}: {message:?}\n", said.place);
    if let Some(help) = &said.help {
        let _ = writeln!(line, "    {help:?}");
    }
    line
}

/// Compares the answers with those that are checked in, or writes them anew.
fn compare(answers: &str, file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(file);
    if std::env::var_os("RATEKEEPER_BLESS").is_some() {
        std::fs::write(&path, answers).expect("tests are writable");
    }
    let checked_in = std::fs::read_to_string(&path).expect("the answers are checked in");
    let differ = answers.lines().zip(checked_in.lines());
    let first = differ.enumerate().find(|(_, (now, then))| now != then);
    if let Some((at, (now, then))) = first {
        panic!("{file}:{}: now {now}\nbut was {then}", at + 1);
    }
    assert_eq!(answers.len(), checked_in.len(), "{file} has another length");
}

#[test]
fn mistakes_in_files_are_told_as_ever() {
    let cases = include_str!("files.jsonl").lines();
    let mut answers = String::new();
    for (number, case) in (1..).zip(cases) {
        let case = serde_json::from_str(case).expect("a case");
        let said = said_of(case);
        assert!(!said.is_empty(), "there is no mistake in case {number}");
        let _ = write!(answers, "# {number}\n{said}");
    }
    compare(&answers, "files.txt");
}

#[test]
fn mistakes_in_overrides_of_a_store_are_told_as_ever() {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: include_str!("overrides.yaml").to_owned(),
    };
    let rules = load(&[source], &Options::default()).expect("rules").rules;
    let mut answers = String::new();
    for case in include_str!("overrides.jsonl").lines() {
        let quota: TenantOverride = serde_json::from_str(case).expect("an override");
        let quotas = TenantQuotas {
            overrides: vec![quota],
            ..TenantQuotas::default()
        };
        let wrong = quotas.check("api", &rules).expect_err(case);
        let _ = writeln!(answers, "{case}\n    {}: {wrong}", wrong.field());
    }
    compare(&answers, "overrides.txt");
}
