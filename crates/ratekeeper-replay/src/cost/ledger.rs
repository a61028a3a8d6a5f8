//! One way to pay: its counters, the calls in flight, and what was let in.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ratekeeper_core::{Micros, Mode, Timestamp};
use ratekeeper_limiter::{Answered, LimitSource, Limiter, LimiterOptions, MAX_HITS};
use ratekeeper_rules::{RuleIndex, RuleSet};
use ratekeeper_store::memory::{MemoryError, MemoryStore};
use ratekeeper_store::{Charge, Extra, Request, Step, StepOutcome, Store as _};
use smallvec::SmallVec;

use super::options::{CostOptions, CostWeights, PayWay};
use super::peak::Peaks;
use super::report::{BudgetReport, MinuteReport, Split, TokenCounts, WayReport};
use super::trace::{Asked, Row, TokenKind};
use crate::keys::Keys;
use crate::report::words::time_text;
use crate::tally::Tally;
use crate::top::TopKeys;

/// The most calls in flight. One that would be more ends the oldest of them.
const IN_FLIGHT_MAX: usize = 1 << 20;

/// The most minutes whose tokens are told apart.
const MINUTES_MAX: usize = 7 * 24 * 60;

/// The calls that are let in by one way to pay, and what they use.
#[derive(Debug)]
pub(crate) struct Ledger {
    way: PayWay,
    terms: Terms,
    limiter: Limiter<MemoryStore>,
    domain: String,
    keys: Keys,
    tallies: Vec<Tally>,
    peaks: Peaks,
    in_flight: BinaryHeap<Reverse<Stream>>,
    calls: Split,
    tokens: TokenCounts,
    /// The first minute since the epoch, and the tokens of prompts and outputs of each one from there on.
    minutes: (u64, Vec<(u64, u64)>),
}

/// The terms of calls.
#[derive(Clone, Copy, Debug)]
struct Terms {
    weights: CostWeights,
    reserve: u64,
    tokens_per_second: u64,
}

/// A call that was let in and has not ended.
#[derive(Debug)]
struct Stream {
    ends: Timestamp,
    began: Timestamp,
    number: u64,
    prompt: u64,
    output: u64,
    shares: SmallVec<[BudgetCharge; 4]>,
}

/// The part of a call that one budget pays.
#[derive(Clone, Copy, Debug)]
struct BudgetCharge {
    rule: RuleIndex,
    step: Step,
    /// The hits that were charged when it began.
    charged: u64,
    cost: u64,
}

/// The answer of one budget.
struct Seen {
    share: BudgetCharge,
    descriptor: usize,
    fits: bool,
    denies: bool,
}

impl Ledger {
    pub(crate) fn new(
        way: PayWay,
        options: &CostOptions,
        rules: &RuleSet,
        domain: &str,
    ) -> Result<Self, MemoryError> {
        let count = rules.rules().len();
        let store = MemoryStore::new(options.memory)?;
        Ok(Self {
            way,
            terms: Terms {
                weights: options.weights,
                reserve: options.reserve,
                tokens_per_second: options.tokens_per_second.max(1),
            },
            keys: Keys::new(rules, domain),
            limiter: Limiter::new(rules.clone(), store, LimiterOptions::default()),
            domain: domain.to_owned(),
            tallies: std::iter::repeat_with(Tally::default).take(count).collect(),
            peaks: Peaks::new(count),
            in_flight: BinaryHeap::new(),
            calls: Split::default(),
            tokens: TokenCounts::default(),
            minutes: (0, Vec::new()),
        })
    }

    pub(crate) fn has_budgets(&self) -> bool {
        self.budgets().next().is_some()
    }

    /// Decides a call that comes at `now`, after all that have ended by then.
    pub(crate) fn call(&mut self, row: &Row, asked: &Asked<'_>, now: Timestamp) {
        while self
            .in_flight
            .peek()
            .is_some_and(|Reverse(first)| first.ends <= now)
        {
            self.end_first();
        }
        let (way, terms) = (self.way, self.terms);
        let seen = self.limiter.ask_at(&asked.check, now, |ruling| {
            let limits = ruling.limits();
            let seen = limits.filter_map(|(step, source, answered)| {
                let part = *asked.parts.get(usize::from(step.descriptor))?;
                terms.seen(way, row, part, (step, source, &answered))
            });
            seen.collect::<SmallVec<[Seen; 4]>>()
        });
        self.count(&seen, asked, now);
        let allowed = !seen.iter().any(|seen| seen.denies);
        self.calls.add(allowed, 1);
        self.tokens.prompt.add(allowed, row.prompt);
        self.tokens.output.add(allowed, row.output);
        if !allowed {
            return;
        }
        let mut shares: SmallVec<[BudgetCharge; 4]> =
            seen.into_iter().map(|seen| seen.share).collect();
        self.reserve(&mut shares, now);
        if self.in_flight.len() >= IN_FLIGHT_MAX {
            self.end_first();
        }
        self.in_flight.push(Reverse(Stream {
            ends: now.after(terms.duration(row.output)),
            began: now,
            number: self.calls.all(),
            prompt: row.prompt,
            output: row.output,
            shares,
        }));
    }

    /// Ends all calls.
    pub(crate) fn end_all(&mut self) {
        while !self.in_flight.is_empty() {
            self.end_first();
        }
    }

    /// Ends the call that ends first: it is charged what its budgets do not have yet.
    fn end_first(&mut self) {
        let Some(Reverse(stream)) = self.in_flight.pop() else {
            return;
        };
        let now = stream.ends;
        for share in &stream.shares {
            let counter = (share.step.key, &share.step.limit);
            self.peaks.add(share.rule.get(), counter, share.cost, now);
        }
        if self.way != PayWay::InAdvance {
            let rest =
                |share: &BudgetCharge| share.cost.cast_signed() - share.charged.cast_signed();
            let steps = stream.shares.iter().map(|share| share.step_of(rest(share)));
            self.charge(steps.collect(), stream.began, now);
        }
        self.add_minute(&stream);
    }

    /// Charges what each budget is to have at the beginning, as far as it takes that.
    fn reserve(&self, shares: &mut SmallVec<[BudgetCharge; 4]>, now: Timestamp) {
        let mut charging: SmallVec<[&mut BudgetCharge; 4]> = shares
            .iter_mut()
            .filter(|share| share.charged > 0)
            .collect();
        let steps = charging.iter().map(|share| Step {
            limit: share.step.limit.reserving(),
            ..share.step_of(share.charged.cast_signed())
        });
        let outcomes = self.charge(steps.collect(), now, now);
        for (share, outcome) in charging.iter_mut().zip(&outcomes) {
            if let StepOutcome::Counted(outcome) = outcome {
                share.charged = share.charged.saturating_sub(outcome.cut);
            }
        }
    }

    /// Carries out steps with hits: those that are negative give back what was taken at `began`.
    fn charge(
        &self,
        mut steps: SmallVec<[Step; 4]>,
        began: Timestamp,
        now: Timestamp,
    ) -> SmallVec<[StepOutcome; 4]> {
        steps.retain(|step| step.hits != 0);
        if steps.is_empty() {
            return SmallVec::new();
        }
        let extra = Extra {
            taken_at: Some(began),
            ..Extra::default()
        };
        let request = Request {
            extra: Some(&extra),
            ..Request::new(&steps, Mode::default(), now)
        };
        // Memory answers at once. No call depends on it, as each one is decided by a look.
        let ratekeeper_store::Answer::Decided(verdicts) = self.limiter.store().decide(&request);
        verdicts.outcomes
    }

    fn count(&mut self, seen: &[Seen], asked: &Asked<'_>, now: Timestamp) {
        let snapshot = self.limiter.snapshot();
        let rules = snapshot.rules();
        for seen in seen {
            let rule = seen.share.rule;
            let Some(tally) = self.tallies.get_mut(rule.get()) else {
                continue;
            };
            match (seen.fits, asked.check.descriptors().nth(seen.descriptor)) {
                (false, Some(descriptor)) => {
                    tally.deny(self.keys.of(rules, rule, descriptor.entries), now);
                }
                _ => tally.allow(),
            }
        }
    }

    fn add_minute(&mut self, stream: &Stream) {
        let minute = stream.ends.as_micros() / 60_000_000;
        let (first, minutes) = &mut self.minutes;
        if minutes.is_empty() {
            *first = minute;
        }
        let at = usize::try_from(minute.saturating_sub(*first)).unwrap_or(usize::MAX);
        if at < MINUTES_MAX {
            minutes.resize(minutes.len().max(at + 1), (0, 0));
            let (prompt, output) = &mut minutes[at];
            *prompt = prompt.saturating_add(stream.prompt);
            *output = output.saturating_add(stream.output);
        }
    }

    /// The budgets of the domain, with their places among all rules.
    fn budgets(&self) -> impl Iterator<Item = (usize, ratekeeper_rules::Rule)> {
        let snapshot = self.limiter.snapshot();
        let rules = snapshot.rules().rules().iter().cloned().enumerate();
        let domain = self.domain.clone();
        let budgets = rules.filter(move |(_, rule)| {
            let is_budget = rule.limited().is_some_and(|limit| limit.is_post_paid());
            *rule.domain == *domain && rule.enabled && is_budget
        });
        budgets.collect::<Vec<_>>().into_iter()
    }

    /// Notes about rules that are left out, one sentence each.
    pub(crate) fn notes(&self) -> Vec<String> {
        let snapshot = self.limiter.snapshot();
        let rules = snapshot.rules().rules().iter();
        let others = rules.filter(|rule| {
            let is_other = rule.limited().is_some_and(|limit| !limit.is_post_paid());
            *rule.domain == *self.domain && rule.enabled && is_other
        });
        let mut notes: Vec<String> = others
            .map(|rule| {
                format!(
                    "{} is no budget (`post_paid: true`): it was left out.",
                    rule.id
                )
            })
            .collect();
        let silent = self
            .budgets()
            .filter(|(at, _)| self.tallies[*at].requests() == 0);
        notes.extend(silent.map(|(_, rule)| format!("{} matched no call.", rule.id)));
        notes
    }

    /// The results, with all keys that the budgets are known to deny.
    pub(crate) fn report(&self) -> WayReport {
        let rules = self.budgets().filter_map(|(at, rule)| {
            let limit = rule.limited()?;
            Some(BudgetReport {
                limit: limit.quota(),
                window: rule.window_text.to_string(),
                most_in_a_window: self.peaks.most(at, limit),
                decisions: self.tallies[at].report(&rule.id, TopKeys::CAPACITY),
            })
        });
        let (first, minutes) = &self.minutes;
        let minutes = (*first..)
            .zip(minutes)
            .map(|(minute, (prompt, output))| MinuteReport {
                minute: time_text(Timestamp::from_secs(60 * minute)),
                prompt_tokens: *prompt,
                output_tokens: *output,
            });
        WayReport {
            way: self.way.name(),
            calls: self.calls,
            tokens: self.tokens,
            rules: rules.collect(),
            minutes: minutes.collect(),
        }
    }
}

impl Terms {
    /// The time that the output takes.
    fn duration(self, output: u64) -> Micros {
        Micros::new(output.saturating_mul(1_000_000) / self.tokens_per_second)
    }

    /// The hits of the part of a call that a descriptor pays for.
    fn hits(self, part: TokenKind, prompt: u64, output: u64) -> u64 {
        match part {
            TokenKind::All => self.weights.hits(prompt, output),
            TokenKind::Prompt => prompt,
            TokenKind::Output => output,
        }
    }

    /// The answer of a budget to a call; None for other limits.
    fn seen(
        self,
        way: PayWay,
        row: &Row,
        part: TokenKind,
        (step, source, answered): (&Step, LimitSource, &Answered),
    ) -> Option<Seen> {
        let LimitSource::Rule(rule) = source else {
            return None;
        };
        if !step.limit.is_post_paid() {
            return None;
        }
        // The length of the prompt is known from the beginning.
        let asked = self.hits(part, row.prompt, self.reserve);
        let fits = match way {
            PayWay::PostPaid | PayWay::Reserved => answered.fits(),
            PayWay::InAdvance => answered.remaining >= asked,
        };
        Some(Seen {
            share: BudgetCharge {
                rule,
                step: *step,
                charged: match way {
                    PayWay::PostPaid => 0,
                    PayWay::Reserved | PayWay::InAdvance => asked,
                },
                cost: self.hits(part, row.prompt, row.output),
            },
            descriptor: usize::from(step.descriptor),
            denies: !fits && !step.shadow,
            fits,
        })
    }
}

impl BudgetCharge {
    fn step_of(&self, hits: i64) -> Step {
        Step {
            hits: hits.clamp(-MAX_HITS, MAX_HITS),
            charge: Charge::Always,
            ..self.step
        }
    }
}

impl Stream {
    const fn order(&self) -> (Timestamp, u64) {
        (self.ends, self.number)
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Stream {}

impl PartialOrd for Stream {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Stream {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}
