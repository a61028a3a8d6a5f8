//! The results of tests, for people and as JSON. `docs/rules-tests.md` has the fields, which later versions only add to.

use super::compare::Mismatch;
use super::junit::{Case, Outcome};
use super::reached::Reached;
use super::trial::FailedStep;
use crate::output::{self, count, within_line};
use ratekeeper_core::duration::format_duration;
use ratekeeper_rules::{Diagnostics, Position, RulesTest};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The version of the fields: it changes if one is renamed, removed or means something else.
const SCHEMA: u32 = 1;
/// The most ids of rules that no test reached, for people. JSON has all.
const UNREACHED_SHOWN: usize = 10;

/// The results of all tests.
#[derive(Serialize)]
pub(super) struct Report {
    schema: u32,
    ok: bool,
    passed: usize,
    failed: usize,
    /// Files that are refused, or cannot be read.
    errors: Vec<Problem>,
    tests: Vec<TestResult>,
    /// The number of rules, those that are off or unlimited left out; null if tests were left out, or their file is refused.
    rules: Option<usize>,
    /// The ids of the rules that answered no test, sorted; null likewise.
    unreached: Option<Vec<String>>,
    /// Tests that were not run, since their rules are refused.
    #[serde(skip)]
    skipped: Vec<Skipped>,
}

#[derive(Serialize)]
struct Problem {
    /// The place; null for what is about no place in a file.
    file: Option<String>,
    line: Option<u32>,
    column: Option<u32>,
    message: String,
    help: Option<String>,
    /// All of it, for people.
    #[serde(skip)]
    text: String,
}

struct Skipped {
    name: String,
    file: String,
    line: u32,
}

#[derive(Serialize)]
struct TestResult {
    name: String,
    file: String,
    line: u32,
    column: u32,
    ok: bool,
    failures: Vec<Failure>,
}

/// A step whose answers are others than expected.
#[derive(Serialize)]
struct Failure {
    line: u32,
    column: u32,
    /// The time of the step's last request since the test began: `1m30s`.
    at: String,
    /// The number of its requests.
    requests: u64,
    mismatches: Vec<Mismatch>,
    decided_by: String,
}

impl Default for Report {
    fn default() -> Self {
        Self {
            schema: SCHEMA,
            ok: true,
            passed: 0,
            failed: 0,
            errors: Vec::new(),
            tests: Vec::new(),
            rules: None,
            unreached: None,
            skipped: Vec::new(),
        }
    }
}

impl Report {
    /// The report where no test could be run.
    pub(super) fn failed(error: &anyhow::Error) -> Self {
        let mut report = Self::default();
        let message = output::with_causes(error);
        report.error(Problem {
            file: None,
            line: None,
            column: None,
            text: message.clone(),
            message,
            help: None,
        });
        report
    }

    /// Adds a file of tests, or rules, that are refused.
    pub(super) fn refuse(&mut self, refused: &Diagnostics) {
        for error in refused.errors() {
            let Position { file, line, column } = &error.place;
            self.error(Problem {
                file: Some(file.to_string()),
                line: Some(*line),
                column: Some(*column),
                message: error.message.clone(),
                help: error.help.clone(),
                text: error.to_string(),
            });
        }
    }

    fn error(&mut self, problem: Problem) {
        self.ok = false;
        self.errors.push(problem);
    }

    /// Adds a test that cannot be run, since its rules are refused.
    pub(super) fn skip(&mut self, test: &RulesTest) {
        self.skipped.push(Skipped {
            name: test.name.to_string(),
            file: test.place.file.to_string(),
            line: test.place.line,
        });
    }

    /// Adds a test that was run.
    pub(super) fn add(&mut self, test: &RulesTest, failed: Vec<FailedStep>) {
        let ok = failed.is_empty();
        self.ok &= ok;
        self.passed += usize::from(ok);
        self.failed += usize::from(!ok);
        self.tests.push(TestResult {
            name: test.name.to_string(),
            file: test.place.file.to_string(),
            line: test.place.line,
            column: test.place.column,
            ok,
            failures: failed.into_iter().map(Failure::of).collect(),
        });
    }

    /// Sets the rules that the tests have reached.
    pub(super) fn set_reached<'a>(&mut self, sets: impl Iterator<Item = &'a Reached>) {
        let (mut rules, mut unreached) = (0, Vec::new());
        for set in sets {
            rules += set.len();
            unreached.extend(set.missing().map(ToString::to_string));
        }
        unreached.sort();
        (self.rules, self.unreached) = (Some(rules), Some(unreached));
    }

    /// The tests, and each file with errors.
    pub(super) fn cases(&self) -> Vec<Case<'_>> {
        let tests = self.tests.iter().map(|test| Case {
            file: &test.file,
            line: test.line,
            name: &test.name,
            outcome: match test.ok {
                true => Outcome::Passed,
                false => Outcome::Failed(test.text()),
            },
        });
        let skipped = self.skipped.iter().map(|test| Case {
            file: &test.file,
            line: test.line,
            name: &test.name,
            outcome: Outcome::Skipped("its rules are refused"),
        });
        let mut cases: Vec<_> = tests.chain(skipped).chain(self.refused()).collect();
        cases.sort_by_key(|case| case.file);
        cases
    }

    /// A case for each file with errors: two of one name would be one for those who read them.
    fn refused(&self) -> impl Iterator<Item = Case<'_>> {
        let mut files: BTreeMap<&str, Vec<&Problem>> = BTreeMap::new();
        for error in &self.errors {
            let file = error.file.as_deref().unwrap_or("ratekeeper");
            files.entry(file).or_default().push(error);
        }
        files.into_iter().map(|(file, errors)| {
            let texts: Vec<_> = errors.iter().map(|error| &*error.text).collect();
            Case {
                file,
                line: errors.iter().find_map(|error| error.line).unwrap_or(1),
                name: "is accepted",
                outcome: Outcome::Error(texts.join("\n")),
            }
        })
    }

    /// Returns true if nothing was run or refused.
    pub(super) const fn is_empty(&self) -> bool {
        self.tests.is_empty() && self.errors.is_empty()
    }

    pub(super) const fn is_ok(&self) -> bool {
        self.ok
    }

    /// The errors of files that are refused, for people.
    pub(super) fn errors(&self) -> impl Iterator<Item = &str> {
        self.errors.iter().map(|error| &*error.text)
    }

    /// For people: a line for each test, those that passed left out if `is_quiet`.
    pub(super) fn text(&self, is_quiet: bool) -> String {
        let mut text = String::new();
        for test in &self.tests {
            test.add_to(&mut text, is_quiet);
        }
        if !is_quiet {
            self.add_unreached(&mut text);
        }
        let passed = count(self.passed, "test");
        match (self.failed, self.errors.len()) {
            (0, 0) if is_quiet => {}
            (0, 0) => {
                let _ = writeln!(text, "ok: {passed} passed");
            }
            (failed, refused) => {
                let _ = write!(text, "FAILED: {passed} passed, {failed} failed");
                if refused > 0 {
                    let _ = write!(text, ", {}", count(refused, "error"));
                }
                text.push('\n');
            }
        }
        text
    }
}

impl Report {
    /// Adds the number of rules that no test reached, and the first of them.
    fn add_unreached(&self, text: &mut String) {
        let (Some(rules), Some(unreached)) = (self.rules, &self.unreached) else {
            return;
        };
        if unreached.is_empty() {
            return;
        }
        let shown = unreached.iter().take(UNREACHED_SHOWN);
        let mut shown: Vec<_> = shown.map(|id| within_line(id)).collect();
        if unreached.len() > UNREACHED_SHOWN {
            shown.push("…".into());
        }
        let (missing, all) = (unreached.len(), count(rules, "rule"));
        let _ = writeln!(
            text,
            "no test reaches {missing} of {all}: {}",
            shown.join(", ")
        );
    }
}

impl TestResult {
    /// The result for people.
    fn text(&self) -> String {
        let mut text = String::new();
        self.add_to(&mut text, false);
        text
    }

    fn add_to(&self, text: &mut String, is_quiet: bool) {
        let name = within_line(&self.name);
        if self.ok {
            if !is_quiet {
                let _ = writeln!(text, "ok    {name}");
            }
            return;
        }
        let file = within_line(&self.file);
        let _ = writeln!(text, "FAIL  {name}  {file}:{}:{}", self.line, self.column);
        for failure in &self.failures {
            let Failure { line, column, .. } = failure;
            let requests = match failure.requests {
                1 => String::new(),
                requests => format!(", the last of {requests} requests"),
            };
            let _ = writeln!(
                text,
                "  {file}:{line}:{column}: at {}{requests}",
                failure.at
            );
            let row = |it: &Mismatch| {
                let expected = format!("expected {}", it.expected);
                vec![it.what.to_owned(), expected, format!("was {}", it.actual)]
            };
            let rows: Vec<_> = failure.mismatches.iter().map(row).collect();
            text.push_str(&output::table(&rows, 4));
            let _ = writeln!(text, "    decided by: {}", within_line(&failure.decided_by));
        }
    }
}

impl Failure {
    fn of(step: FailedStep) -> Self {
        Self {
            line: step.place.line,
            column: step.place.column,
            at: format_duration(step.at),
            requests: step.times,
            mismatches: step.mismatches,
            decided_by: step.decided_by,
        }
    }
}
