//! Replays a log through the rules at the times in the log.

use std::collections::BTreeSet;

use ratekeeper_core::{Timestamp, Vote};
use ratekeeper_http::{Describer, Refused};
use ratekeeper_limiter::{
    BudgetUse, Check, Decision, LimitSource, Limiter, LimiterOptions, Waiting,
};
use ratekeeper_rules::{Domain, RuleIndex, RuleSet, SERVICE_LEVELS};
use ratekeeper_store::memory::MemoryStore;
use smallvec::SmallVec;

use crate::client::Clients;
use crate::compare::{Comparison, Step};
use crate::described::Requests;
use crate::error::{ReplayError, choose_domain};
use crate::growth::Grown;
use crate::input::{Line, Log};
use crate::keys::Keys;
use crate::options::ReplayOptions;
use crate::parse::{Format, LineParser};
use crate::read::{Progress, read_log};
use crate::record::{BadLine, MalformedLine, Record};
use crate::reorder::{HeldLine, Reorder};
use crate::report::{LineCounts, Report, Summary};
use crate::tally::Tally;

/// Replays logs through rules with the service's limiter and counters in memory, at the times in
/// the logs. Nothing is random: the same log gives the same report.
#[derive(Debug)]
pub struct Replay {
    pub(crate) options: ReplayOptions,
    /// None if the options have descriptors and there are no service levels.
    pub(crate) requests: Option<Requests>,
    pub(crate) limiter: Limiter<MemoryStore>,
    pub(crate) domain: String,
    keys: Keys,
    pub(crate) clients: Clients,
    pub(crate) tallies: Vec<Tally>,
    pub(crate) comparison: Option<Comparison>,
    pub(crate) lines: LineCounts,
    pub(crate) summary: Summary,
    grown: Grown,
    reorder: Reorder,
    /// The lines of logs that were read side by side and were earlier than one before them in their log.
    pub(crate) merged_out_of_order: u64,
    /// First keys of rules that no descriptor of the settings begins with.
    pub(crate) unasked: Vec<String>,
    /// Parses lines again that were held back.
    waited: LineParser,
}

/// The outcome of one limit for one line.
struct Seen {
    rule: RuleIndex,
    descriptor: usize,
    fits: bool,
    counted: bool,
}

impl Replay {
    /// Prepares a replay of `rules`.
    ///
    /// # Errors
    /// [`ReplayError`] if there is no domain to check, several to choose from, or not enough
    /// memory.
    pub fn new(mut options: ReplayOptions, rules: RuleSet) -> Result<Self, ReplayError> {
        let asked = options.domain.as_deref();
        let domain = choose_domain(&rules, asked.or(options.describer.domain.as_deref()))?;
        let named = rules.domains().find(|own| *own.name() == *domain);
        let matches = |key: &str| named.is_some_and(|domain| domain.may_begin_with(key));
        let mut describer = std::mem::take(&mut options.describer);
        let of_mapping = options.descriptors.is_none() && named.is_some();
        let unasked = named.filter(|_| of_mapping);
        let unasked = unasked.map_or_else(Vec::new, |domain| unasked_keys(domain, &describer));
        describer.mapping.retain_first_keys(matches);
        if let Some(descriptors) = &mut options.descriptors {
            descriptors.retain_first_keys(matches);
        }
        let is_described = options.descriptors.is_none() || !rules.service_levels().is_empty();
        let requests = is_described.then(|| {
            let mapped = of_mapping.then(|| domain.clone());
            let forwarding = options.forwarding.clone();
            Requests::new(describer, forwarding, mapped, &rules, &mut options.fields)
        });
        let rule_count = rules.rules().len();
        let store = MemoryStore::new(options.memory)?;
        let summary = Summary {
            domain: domain.clone(),
            ..Summary::default()
        };
        Ok(Self {
            keys: Keys::new(&rules, &domain),
            clients: Clients::new(&options.forwarding),
            comparison: options.compare.map(|_| Comparison::new(rule_count)),
            limiter: Limiter::new(rules, store, LimiterOptions::default()).with_growth_watch(),
            grown: Grown::default(),
            tallies: std::iter::repeat_with(Tally::default)
                .take(rule_count)
                .collect(),
            lines: LineCounts::default(),
            reorder: Reorder::new(options.sort_within),
            merged_out_of_order: 0,
            unasked,
            waited: LineParser::new(None, options.fields.clone()),
            domain,
            summary,
            options,
            requests,
        })
    }

    /// Replays `log` behind those before. [`Self::read_all`] puts the lines of several in order. `progress` is called every few thousand lines, and at the end.
    ///
    /// # Errors
    /// [`ReplayError::Read`] if the log cannot be opened or read to its end; the lines read before
    /// count.
    pub fn read(&mut self, log: &Log, progress: impl FnMut(Progress)) -> Result<(), ReplayError> {
        let mut parser = LineParser::new(self.options.format, self.options.fields.clone());
        let before = self.lines;
        let done = read_log(log, before.read, progress, |number, line| {
            self.line(&mut parser, number, line);
            Ok(self.lines.read)
        });
        self.summary.format = parser.format().or(self.summary.format);
        let lines = (
            self.lines.read - before.read,
            self.lines.parsed - before.parsed,
        );
        self.summary
            .faults
            .take(log, lines, self.options.format, done)
    }

    /// The results. Lines still held back for sorting are replayed first.
    #[must_use]
    pub fn report(&mut self) -> Report {
        while let Some(held) = self.reorder.pop_any() {
            self.held(&held);
        }
        let out_of_order = self.reorder.out_of_order() + self.merged_out_of_order;
        self.summary.sorted = out_of_order.saturating_sub(self.summary.late);
        let growth = self.grown.report(&self.limiter);
        let snapshot = self.limiter.snapshot();
        let rules = snapshot
            .rules()
            .rules()
            .iter()
            .zip(&self.tallies)
            .enumerate();
        let of_domain =
            rules.filter(|(_, (rule, _))| [&*self.domain, SERVICE_LEVELS].contains(&&*rule.domain));
        let reports = of_domain.map(|(index, (rule, tally))| {
            let mut report = tally.report(&rule.id, self.options.top_denied);
            report.compare = self.comparison.as_ref().map(|comparison| {
                let limit = rule.limited().filter(|limit| Comparison::covers(limit));
                limit.map(|_| comparison.of_rule(index).into())
            });
            report
        });
        let mut summary = self.summary.clone();
        summary.notes = self.notes(snapshot.rules());
        Report {
            lines: self.lines,
            warnings: self.warnings(snapshot.rules()),
            rules: reports.collect(),
            growth,
            summary,
        }
    }

    fn line(&mut self, parser: &mut LineParser, number: u64, line: Line<'_>) {
        if let Some((time, format, text)) = self.parsed(parser, number, line) {
            self.reorder.push(time, format, text);
            while let Some(held) = self.reorder.pop() {
                self.held(&held);
            }
        }
    }

    /// Counts a line; returns the time, the format and the text of one that is a request.
    pub(crate) fn parsed<'a>(
        &mut self,
        parser: &mut LineParser,
        number: u64,
        line: Line<'a>,
    ) -> Option<(Timestamp, Format, &'a [u8])> {
        let (text, parsed) = match line {
            Line::Whole(text) if text.trim_ascii().is_empty() => return None,
            Line::Whole(text) => (text, parser.parse(text)),
            Line::TooLong(start) => (start, Err(MalformedLine::TooLong)),
        };
        self.lines.read += 1;
        match parsed {
            Ok(record) => {
                self.lines.parsed += 1;
                let time = record.time;
                Some((time, parser.format().unwrap_or(Format::Common), text))
            }
            Err(reason) => {
                self.lines.malformed += 1;
                if self.summary.bad_lines.len() < self.options.bad_lines {
                    self.summary
                        .bad_lines
                        .push(BadLine::new(number, reason, text));
                }
                None
            }
        }
    }

    pub(crate) fn held(&mut self, held: &HeldLine) {
        // It was parsed when it was read, so parsing succeeds again.
        if let Ok(mut record) = self.waited.parse_as(held.format, &held.text) {
            self.clients.resolve(&mut record);
            self.request(&record);
        }
    }

    fn request(&mut self, record: &Record<'_>) {
        let now = self.advance(record.time);
        self.grown.advance(&self.limiter, now);
        if let Some(requests) = &mut self.requests {
            requests.take(record);
        }
        let snapshot = self.limiter.snapshot();
        let original = self.requests.as_ref().map(|it| (it, it.original(record)));
        let question = original.as_ref().map(|(requests, original)| {
            let asked = original.as_ref();
            let asked = asked.map_err(|malformed| Refused::from(malformed.clone()))?;
            requests.question(asked, snapshot.rules())
        });
        let Ok(question) = question.transpose() else {
            self.summary.refused += 1;
            return;
        };
        let own = self.options.descriptors.as_ref().map(|own| own.of(record));
        let mut check = Check::new(&self.domain);
        check.waiting = Waiting::Within(self.options.wait_max);
        let domain = snapshot.rules().domain(&self.domain);
        if domain.is_some_and(|domain| domain.usage().is_some()) {
            // A gateway charges budgets what responses used, which no log tells.
            check.budgets = BudgetUse::Look;
        }
        if let Some(own) = &own {
            own.add_to(&mut check);
        }
        if let Some(question) = &question {
            question.add_to(&mut check);
        }
        let mut seen: SmallVec<[Seen; 4]> = SmallVec::new();
        let mut steps: SmallVec<[Step; 4]> = SmallVec::new();
        let comparing = self.comparison.is_some();
        let (summary, tallies) = (&mut self.summary, &mut self.tallies);
        self.limiter.ask_at(&check, now, |ruling| {
            for (step, source, answered) in ruling.limits() {
                let LimitSource::Rule(rule) = source else {
                    continue;
                };
                let fits = answered.fits();
                seen.push(Seen {
                    rule,
                    descriptor: usize::from(step.descriptor),
                    fits,
                    counted: answered.counted,
                });
                if comparing {
                    steps.push(compared_step(rule, step, fits));
                }
            }
            count(summary, tallies, ruling.decision, &seen);
        });
        if let Some(comparison) = &mut self.comparison {
            comparison.add(&steps, now);
        }
        let snapshot = self.limiter.snapshot();
        let rules = snapshot.rules();
        for denied in seen.iter().filter(|seen| !seen.fits) {
            let Some(descriptor) = check.descriptors().nth(denied.descriptor) else {
                continue;
            };
            let key = self.keys.of(rules, denied.rule, descriptor.entries);
            self.tallies[denied.rule.get()].deny(key, now);
        }
    }

    /// The time of a line; a late line takes the latest time seen.
    fn advance(&mut self, time: Timestamp) -> Timestamp {
        let (first, latest) = self.summary.span.unwrap_or((time, time));
        self.summary.late += u64::from(time < latest);
        self.summary.late_by_max = self.summary.late_by_max.max(latest.since(time));
        self.summary.has_fractions |= !time.as_micros().is_multiple_of(1_000_000);
        let now = latest.max(time);
        self.summary.span = Some((first.min(time), now));
        now
    }
}

/// The keys with which rules of `domain` begin and no descriptor of the settings does: a gateway asks none of these rules.
fn unasked_keys(domain: &Domain, describer: &Describer) -> Vec<String> {
    let descriptors = describer.mapping.descriptors();
    let is_asked = |key: &str| {
        let mut first = descriptors.iter().filter_map(|fields| fields.first());
        first.any(|field| *field.key == *key)
    };
    let keys = domain.nodes().iter().map(|node| node.key());
    let unasked: BTreeSet<&str> = keys.filter(|key| !is_asked(key)).collect();
    unasked.into_iter().map(str::to_owned).collect()
}

/// Updates all counts except the rules' denials.
fn count(summary: &mut Summary, tallies: &mut [Tally], decision: &Decision, seen: &[Seen]) {
    if decision.allowed() {
        summary.allowed += 1;
    } else {
        summary.denied += 1;
    }
    let statuses = decision.answers().iter();
    let unlimited = statuses.filter_map(|status| status.unlimited);
    let fitted = seen.iter().filter(|seen| seen.fits).map(|seen| seen.rule);
    let mut is_matched = !seen.is_empty();
    for rule in fitted.chain(unlimited) {
        tallies[rule.get()].allow();
        is_matched = true;
    }
    summary.unmatched += u64::from(!is_matched);
    summary.uncounted += seen.iter().filter(|seen| !seen.counted).count() as u64;
}

fn compared_step(rule: RuleIndex, step: &ratekeeper_store::Step, fits: bool) -> Step {
    Step {
        rule: rule.0,
        key: step.key,
        limit: step.limit,
        charge: step.charge,
        vote: Vote {
            fits,
            descriptor: step.descriptor,
            shadow: step.shadow,
            quota_mode: step.quota_mode,
        },
    }
}
