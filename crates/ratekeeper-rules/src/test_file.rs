//! Tests of rules that operators write beside them: requests at given times, and the answers that are expected.

mod parse;

use std::net::IpAddr;
use std::sync::Arc;

use ratekeeper_core::{Micros, Timestamp};

use crate::load::file;
use crate::report::Report;
use crate::test_values::{TestAnswer, WaitTime};
use crate::yaml::{self, Kind};
use crate::{Diagnostics, Position, Source};

/// The endings of files of tests. A folder of rules is read without them.
const ENDINGS: [&str; 2] = [".test.yaml", ".test.yml"];

/// A file of tests.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TestFile {
    /// The tests, at least one, in the order of the file.
    pub tests: Vec<RulesTest>,
}

/// A test: requests in their order, and the answers that they get.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RulesTest {
    /// The name, as results show it.
    pub name: Box<str>,
    /// The position of the test in its file.
    pub place: Position,
    /// The rules to test, relative to the folder of the file; [`None`] if the file names none.
    pub rules: Option<Box<str>>,
    /// The plan of each tenant that a request names, until a step gives it another.
    pub plan: Option<Box<str>>,
    /// The time at which it begins.
    pub start: Timestamp,
    /// The steps, at least one. Their times do not go back.
    pub steps: Vec<TestStep>,
}

/// A request, or several that are alike, and the answer.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TestStep {
    /// The position of the step in its file.
    pub place: Position,
    /// The time of the first request since the test began.
    pub at: Micros,
    /// The time between two requests.
    pub every: Micros,
    /// The number of requests, 1 to 1,000,000.
    pub times: u64,
    /// The plan of the tenants that the request names, from now on.
    pub plan: Option<Box<str>>,
    /// The request.
    pub request: TestRequest,
    /// The answers that are expected.
    pub expected: ExpectedAnswers,
}

impl TestStep {
    /// The time of a request, numbered from 0, since the test began.
    #[must_use]
    pub const fn time_of(&self, request: u64) -> Micros {
        let since = self.every.get().saturating_mul(request);
        Micros::new(self.at.get().saturating_add(since))
    }
}

/// The request of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TestRequest {
    /// Descriptors, as a proxy sends them.
    Descriptors {
        /// The namespace of the rules.
        domain: Box<str>,
        /// The descriptors, at least one.
        descriptors: Vec<TestDescriptor>,
    },
    /// A request to a gateway, which settings turn into descriptors.
    Http(HttpRequest),
}

/// A descriptor of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TestDescriptor {
    /// Keys and values, at least one.
    pub entries: Vec<(Box<str>, Box<str>)>,
    /// The hits that it costs: 0 only looks, a negative number gives back.
    pub hits: i64,
}

/// An HTTP request of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HttpRequest {
    /// The method and the path as they are written: `GET /product/7`.
    pub line: Box<str>,
    /// The position of the line.
    pub place: Position,
    /// Names and values of its headers, with the position of each.
    pub headers: Vec<(Box<str>, Box<str>, Position)>,
    /// The client's address.
    pub client: IpAddr,
    /// The domain, if the test names one.
    pub domain: Option<Box<str>>,
}

/// The answers that are expected of a step's requests; [`None`] is whatever comes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ExpectedAnswers {
    /// The answer to every request.
    pub decision: Option<TestAnswer>,
    /// The number of requests that are allowed.
    pub allowed: Option<u64>,
    /// The number of requests that are denied.
    pub denied: Option<u64>,
    /// The id of the rule that decides the last request; within, [`None`] for no limit at all.
    pub rule: Option<Option<Box<str>>>,
    /// The limit that callers are told with the last answer.
    pub limit: Option<u64>,
    /// The hits that the last request leaves.
    pub remaining: Option<u64>,
    /// The wait after the last request, if it is denied.
    pub retry_after: Option<WaitTime>,
    /// The time after the last request until more remains.
    pub reset_after: Option<Micros>,
    /// The time for which the last request is held back.
    pub delay: Option<Micros>,
    /// The rules in shadow that would have denied the last request, in any order.
    pub shadow_denied: Option<Vec<Box<str>>>,
    /// The status of a refusal before any limit is asked, of an HTTP request.
    pub refused: Option<u16>,
}

impl ExpectedAnswers {
    /// Returns true if nothing but the status of a refusal may be expected.
    fn is_refusal_alone(&self) -> bool {
        let refusal = Self {
            refused: self.refused,
            ..Self::default()
        };
        *self == refusal
    }
}

impl TestFile {
    /// Reads a file of tests.
    ///
    /// # Errors
    /// Every error in it, at once.
    pub fn parse(source: &Source) -> Result<Self, Diagnostics> {
        let mut report = Report::new(source);
        let read = match file::open(source, &mut report) {
            Some(root) => parse::file(root.as_deref(), &mut report),
            None => None,
        };
        let (errors, warnings) = report.finish();
        match read {
            // Of a key that is written twice the first one would be left out.
            Some(tests) if errors.is_empty() && warnings.is_empty() => Ok(Self { tests }),
            _ => Err(refused(errors, warnings, source)),
        }
    }

    /// Returns true for a file of tests, which is none of rules: by the ending of its name, and by the keys at its top, since
    /// rules may have such a name, too.
    #[must_use]
    pub fn is_one(source: &Source) -> bool {
        Self::has_name(&source.name) && has_keys(&source.text)
    }

    /// Returns true for a name that files of tests have.
    #[must_use]
    pub fn has_name(name: &str) -> bool {
        ENDINGS.iter().any(|ending| name.ends_with(ending))
    }
}

/// Returns true for a text with `tests` at its top, or with `rules`, which a file of tests begins with. No rules have
/// either. Lines tell it of a text that is no YAML.
fn has_keys(text: &str) -> bool {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match yaml::build(text).root.as_deref().map(|root| &root.kind) {
        Some(Kind::Map(pairs)) => pairs.iter().any(|pair| match &pair.key.kind {
            Kind::Scalar(key) => matches!(&*key.text, "tests" | "rules"),
            _ => false,
        }),
        _ => text.lines().any(|line| line.starts_with("tests:")),
    }
}

/// Turns warnings into errors: a test that does not do what is written is worse than none.
fn refused(
    errors: Vec<crate::Diagnostic>,
    warnings: Vec<crate::Diagnostic>,
    source: &Source,
) -> Diagnostics {
    let mut errors: Vec<_> = errors.into_iter().chain(warnings).collect();
    for error in &mut errors {
        error.severity = crate::Severity::Error;
    }
    errors.sort_by(|one, other| one.place.cmp(&other.place));
    if errors.is_empty() {
        errors.push(crate::Diagnostic {
            severity: crate::Severity::Error,
            place: Position {
                file: Arc::from(&*source.name),
                line: 1,
                column: 1,
            },
            message: "there are no tests in this file".to_owned(),
            help: Some("write `tests:` and a list".to_owned()),
            excerpt: crate::Excerpt::default(),
        });
    }
    Diagnostics {
        errors,
        warnings: Vec::new(),
    }
}
