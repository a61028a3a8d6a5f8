//! Checks files of tests.

use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use ratekeeper_core::{Micros, Timestamp};

use super::{
    ExpectedAnswers, HttpRequest, RulesTest, TestAnswer, TestDescriptor, TestRequest, TestStep,
};
use crate::choice::choose;
use crate::draft::Field;
use crate::format::mapping::{read_item, read_mapping};
use crate::format::test_file::{Expect, Step, Test, TestFile, View};
use crate::mark::{At, Mark};
use crate::report::Report;
use crate::yaml::{Kind, Node};

/// The time at which tests begin: the start of a second, a minute, an hour, a day and a week since the epoch, and of a month
/// and a year of the calendar. Windows of 30 and 365 days are in their midst.
const START: Timestamp = Timestamp::from_secs(1_767_225_600);

/// The parts of a file or a test that hold for all that is in it.
#[derive(Clone, Default)]
struct Around {
    rules: Option<Box<str>>,
    domain: Option<Box<str>>,
}

impl Around {
    /// The same, with what is written further in.
    fn with(&self, rules: &mut Field<Box<str>>, domain: &mut Field<Box<str>>) -> Self {
        Self {
            rules: rules.take_text().or_else(|| self.rules.clone()),
            domain: domain.take_text().or_else(|| self.domain.clone()),
        }
    }
}

/// Checks a file. [`None`] if there is nothing in it to check; errors have been reported.
pub(super) fn file(root: Option<&Node>, report: &mut Report<'_>) -> Option<Vec<RulesTest>> {
    let root = root.filter(|root| !root.is_null())?;
    let At { mut value, mark } = read_mapping::<TestFile>(root, report)?;
    let around = Around::default().with(&mut value.rules, &mut value.domain);
    let items = value.tests.take().unwrap_or_default();
    if items.is_empty() {
        let mark = value.tests.key().unwrap_or(mark);
        report.error(mark, "there are no tests", "write `tests:` and a list");
    }
    let tests = items.iter().filter_map(|item| test(item, &around, report));
    Some(tests.collect())
}

fn test(item: &Node, around: &Around, report: &mut Report<'_>) -> Option<RulesTest> {
    let At { mut value, mark } = read_item::<Test>(item, report)?;
    let around = around.with(&mut value.rules, &mut value.domain);
    let name = value.name.take_text();
    if name.is_none() {
        let mark = value.name.key().unwrap_or(mark);
        report.error(mark, "the test has no name", "write `name: what it shows`");
    }
    let items = value.steps.take().unwrap_or_default();
    if items.is_empty() {
        let mark = value.steps.key().unwrap_or(mark);
        report.error(mark, "the test has no steps", "write `steps:` and a list");
    }
    let mut clock = Micros::ZERO;
    let mut steps = Vec::new();
    for item in &items {
        steps.extend(step(item, &around, &mut clock, report));
    }
    Some(RulesTest {
        name: name?,
        place: report.place(mark),
        rules: around.rules,
        plan: value.plan.take_text(),
        start: value.start.copied().unwrap_or(START),
        steps,
    })
}

/// Checks a step, which begins at `clock` unless it says another time, and moves the clock to its last request.
fn step(
    item: &Node,
    around: &Around,
    clock: &mut Micros,
    report: &mut Report<'_>,
) -> Option<TestStep> {
    let At { mut value, mark } = read_item::<Step>(item, report)?;
    let at = value.at.copied().unwrap_or(*clock);
    if let Some(written) = value.at.at().filter(|written| *written.value < *clock) {
        let before = ratekeeper_core::duration::format_duration(*clock);
        let message = format!("the step before ends at {before}, and time does not go back");
        report.error(
            written.mark,
            message,
            format!("write `at: {before}` or later"),
        );
    }
    let times = value.times.copied().unwrap_or(1);
    if let (Some(mark), 1) = (value.every.key(), times) {
        report.error(mark, "`every` needs `times`", "write `times: 2` or more");
    }
    let domain = value.domain.take_text().or_else(|| around.domain.clone());
    let request = request(&mut value, domain, mark, report);
    let expected = expected(&mut value.expect, times, report);
    let step = TestStep {
        place: report.place(mark),
        at,
        every: value.every.copied().unwrap_or_default(),
        times,
        plan: value.plan.take_text(),
        request: request?,
        expected: expected?,
    };
    *clock = step.time_of(times.saturating_sub(1));
    Some(step)
}

/// Checks the request of a step, which is written in one of three ways.
fn request(
    step: &mut Step,
    domain: Option<Box<str>>,
    mark: Mark,
    report: &mut Report<'_>,
) -> Option<TestRequest> {
    const WAYS: &str = "write one of `entries`, `descriptors` and `request`";
    let ways = [
        step.entries.key(),
        step.descriptors.key(),
        step.request.key(),
    ];
    let mut written = ways.iter().flatten();
    match (written.next(), written.next()) {
        (Some(_), None) => {}
        (None, _) => {
            report.error(mark, "the step has no request", WAYS);
            return None;
        }
        (_, Some(second)) => {
            report.error(*second, "the step has several requests", WAYS);
            return None;
        }
    }
    let of_http = [step.headers.key(), step.client.key()];
    if let Some(line) = step.request.take_at() {
        if let Some(mark) = step.hits.key() {
            report.error(mark, "an HTTP request costs one hit", "leave `hits` out");
        }
        return http(step, line, domain, report).map(TestRequest::Http);
    }
    if let Some(mark) = of_http.into_iter().flatten().next() {
        let message = "only an HTTP request has headers and a client";
        report.error(mark, message, "write `request: GET /path`, or leave it out");
    }
    let hits = step.hits.copied().unwrap_or(1);
    let descriptors = match step.entries.take() {
        Some(entries) => vec![TestDescriptor { entries, hits }],
        None => {
            let views = step.descriptors.take().unwrap_or_default();
            let views = views.iter().filter_map(|item| view(item, hits, report));
            views.collect()
        }
    };
    let Some(domain) = domain else {
        report.error(mark, "the request has no domain", "write `domain: name`");
        return None;
    };
    let is_any = !descriptors.is_empty();
    is_any.then_some(TestRequest::Descriptors {
        domain,
        descriptors,
    })
}

fn view(item: &Rc<Node>, hits: i64, report: &mut Report<'_>) -> Option<TestDescriptor> {
    let At { mut value, mark } = read_item::<View>(item, report)?;
    if !value.entries.is_set() {
        let help = "write `entries: { key: value }`";
        report.error(mark, "the descriptor has no entries", help);
    }
    Some(TestDescriptor {
        entries: value.entries.take()?,
        hits: value.hits.copied().unwrap_or(hits),
    })
}

fn http(
    step: &mut Step,
    line: At<Box<str>>,
    domain: Option<Box<str>>,
    report: &mut Report<'_>,
) -> Option<HttpRequest> {
    let client = match step.client.at() {
        None => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        Some(At { value, mark }) => {
            let client = value.parse().ok();
            if client.is_none() {
                let message = format!("'{value}' is not an IP address");
                report.error(mark, message, "write `client: 192.0.2.7`");
            }
            client
        }
    };
    let headers = step.headers.take().unwrap_or_default().into_iter();
    let headers = headers.map(|(name, value)| (name.value, value, report.place(name.mark)));
    Some(HttpRequest {
        place: report.place(line.mark),
        line: line.value,
        headers: headers.collect(),
        client: client?,
        domain,
    })
}

/// Checks what is expected of `times` requests.
fn expected(
    field: &mut Field<Rc<Node>>,
    times: u64,
    report: &mut Report<'_>,
) -> Option<ExpectedAnswers> {
    const EMPTY: (&str, &str) = (
        "`expect` is empty",
        "write `expect: allowed` or `expect: denied`",
    );
    let Some(node) = field.take() else {
        if let Some(mark) = field.key() {
            report.error(mark, EMPTY.0, EMPTY.1);
        }
        return Some(ExpectedAnswers::default());
    };
    if matches!(&node.kind, Kind::Map(pairs) if pairs.is_empty()) {
        report.error(node.mark, EMPTY.0, EMPTY.1);
        return None;
    }
    if let Kind::Scalar(scalar) = &node.kind {
        let decision = choose::<TestAnswer>("expect", &scalar.text);
        let decision = decision.map_err(|(message, help)| report.error(node.mark, message, help));
        return Some(ExpectedAnswers {
            decision: Some(decision.ok()?),
            ..ExpectedAnswers::default()
        });
    }
    let mut keys = read_mapping::<Expect>(&node, report)?.value;
    counts(&keys, times, report);
    let rule = match (keys.rule.key(), keys.rule.take_text()) {
        (None, _) => None,
        (Some(_), rule) => Some(rule),
    };
    let ids = |ids: Vec<At<Box<str>>>| ids.into_iter().map(|id| id.value).collect();
    let expected = ExpectedAnswers {
        decision: keys.decision.copied(),
        allowed: keys.allowed.copied(),
        denied: keys.denied.copied(),
        rule,
        limit: keys.limit.copied(),
        remaining: keys.remaining.copied(),
        retry_after: keys.retry_after.copied(),
        reset_after: keys.reset_after.copied(),
        delay: keys.delay.copied(),
        shadow_denied: keys.shadow_denied.take().map(ids),
        refused: keys.refused.copied().and_then(|it| u16::try_from(it).ok()),
    };
    if let Some(mark) = keys.refused.key()
        && !expected.is_refusal_alone()
    {
        let message = "no limit is asked about a request that is refused";
        report.error(mark, message, "leave out `refused`, or the rest");
    }
    Some(expected)
}

/// Reports counts that no answers can have.
fn counts(keys: &Expect, times: u64, report: &mut Report<'_>) {
    let counted = [&keys.allowed, &keys.denied];
    if let Some(mark) = keys.decision.key()
        && counted.iter().any(|count| count.is_set())
    {
        let help = "leave out `decision`, or `allowed` and `denied`";
        report.error(mark, "`decision` is that of every request", help);
    }
    let sum = counted.iter().filter_map(|count| count.copied());
    let sum = sum.fold(0, u64::saturating_add);
    if let Some(mark) = counted.iter().find_map(|count| count.mark())
        && sum > times
    {
        let message = format!("{sum} answers are expected, and there are only {times} requests");
        report.error(mark, message, format!("write `times: {sum}` in the step"));
    }
}
