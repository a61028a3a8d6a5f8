//! One row: nodes, callers, a fault, and the outcome.

mod goals;
mod signals;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::Campaign;
use crate::ask::{Asker, Key};
use crate::fault::{Fault, Scene, Stage, Start};
use crate::ledger::{Entry, Ledger, shared_again};
use crate::load::{Asked, Load};
use crate::look::{Look, Looks};
use crate::node::Settings;
use crate::row::Row;
use crate::rules::{self, AMPLE, PERMITS, Rule};
use crate::verdict::{self, Readiness, Span};
use goals::{back, has_not_met, overpaid, unpaid, unspared, unused};
use ratekeeper_testkit::process::within;
use ratekeeper_testkit::ratekeeper::Ratekeeper;
use signals::{is_seen_open, is_told, is_too_many, still};

const NODES: usize = 3;

/// The time that nodes may take to share their counters before the fault begins.
const BEFORE_MAX: Duration = Duration::from_secs(60);

/// The time that readiness may take to be clean after recovery: it reports the last ten seconds.
const CLEAN_MAX: Duration = Duration::from_secs(15);

/// The time that nodes may take for what has no goal, on machines that are slow and busy.
const SLOW_MAX: Duration = Duration::from_secs(60);

/// The time in which callers get the answers to their last requests, and settle them.
const STOP_MAX: Duration = Duration::from_secs(60);

/// The goals.
const BACK_MAX: Duration = Duration::from_secs(1);
const FROZEN_MAX: Duration = Duration::from_millis(2_500);
const LINES_MAX: f64 = 2.0;
/// The share of looks, one in 20, that may miss a change that has just happened.
const MISSED_SHARE: u64 = 20;

/// The evidence that a row is judged by.
struct Evidence {
    span: Span,
    entries: Vec<Entry>,
    looks: Vec<Look>,
    /// The last look at each node; None if one could not be looked at.
    last: Option<Vec<Look>>,
    /// Hits that were charged to keys of ample limits.
    charged: Vec<(Key, u64)>,
    /// Log lines of all nodes during `watched`, which starts with the fault.
    lines: u64,
    watched: Duration,
    resident_kib: usize,
    /// The ends of the nodes' logs.
    logs: Vec<String>,
    is_restarted: bool,
}

impl Campaign<'_> {
    /// Goes through a fault, and returns its row and the nodes' logs.
    pub(super) fn live_through<S: Scene>(&self, fault: &Fault<S>) -> Result<(Row, Vec<String>)> {
        let mut scene = (fault.scene)();
        (fault.before)(&mut scene);
        let settings = Settings {
            program: self.program.to_owned(),
            rules: rules::yaml(),
            store: scene.url(),
            quotas: scene.quotas(),
            deadline: self.plan.deadline,
        };
        let mut stage = Stage::new(settings, NODES, self.plan.lasting);
        stage.next = self.next.map(Path::to_owned);
        (fault.prepare)(&mut scene, &mut stage);
        let ledger = Arc::new(Ledger::open(fault.excused));
        let ports: Vec<u16> = stage.nodes.iter().map(|node| node.admin).collect();
        stage.looks = Some(Looks::start(self.runtime, &ports, &ledger));
        let load = match fault.is_idle {
            true => None,
            false => Some(self.load(&stage, &ledger)?),
        };
        if fault.start == Start::Healthy {
            self.until_shared(&ledger, fault.is_idle);
        }
        let before = lines(&stage);
        let span = self.strike_and_heal(fault, &mut scene, &mut stage, &ledger);
        if !self.plan.is_timed && !fault.is_idle {
            self.until_back(&ledger, span.healed);
        }
        std::thread::sleep(self.plan.after);
        if let Some(load) = load {
            load.stop(self.runtime, &ledger, STOP_MAX);
        }
        let watched = ledger.now().saturating_sub(span.struck);
        let lines = lines(&stage).saturating_sub(before);
        let mut evidence = self.evidence(&stage, &ledger, span, (lines, watched))?;
        if fault.answers_late {
            self.until_given_back(&stage, &mut evidence)?;
        }
        self.until_paid(fault, &stage, &mut evidence)?;
        let row = self.row(fault, &ledger, &evidence);
        Ok((row, evidence.logs))
    }

    fn load(&self, stage: &Stage, ledger: &Arc<Ledger>) -> Result<Load> {
        let _entered = self.runtime.enter();
        let asked = stage.nodes.iter().zip(&stage.muted).map(|(node, muted)| {
            Ok(Asked {
                asker: self.asker(node)?,
                is_muted: Arc::clone(muted),
            })
        });
        Ok(Load::start(
            self.runtime,
            asked.collect::<Result<_>>()?,
            ledger,
            self.plan.patience,
        ))
    }

    fn asker(&self, node: &Ratekeeper) -> Result<Asker> {
        Asker::new(node.grpc, node.port, self.plan.patience)
    }

    /// Waits until all nodes have decided in Redis for a while.
    fn until_shared(&self, ledger: &Ledger, is_idle: bool) {
        within(BEFORE_MAX, Duration::from_millis(50), || {
            is_idle || shared_again(&ledger.entries(), NODES, Duration::ZERO).is_some()
        });
        std::thread::sleep(Duration::from_secs(1));
    }

    /// Waits until all nodes have decided in Redis again since `healed`.
    fn until_back(&self, ledger: &Ledger, healed: Duration) {
        within(SLOW_MAX, Duration::from_millis(100), || {
            shared_again(&ledger.entries(), NODES, healed).is_some()
        });
    }

    fn strike_and_heal<S>(
        &self,
        fault: &Fault<S>,
        scene: &mut S,
        stage: &mut Stage,
        ledger: &Ledger,
    ) -> Span {
        let struck = match fault.start {
            Start::Healthy => ledger.now(),
            Start::Faulty => Duration::ZERO,
        };
        (fault.begin)(scene);
        (fault.strike)(scene, stage);
        if fault.opens && !self.plan.is_timed {
            stage.until(SLOW_MAX, |look| look.is_open);
        }
        (fault.heal)(scene, stage);
        Span {
            struck,
            healed: ledger.now(),
        }
    }

    fn evidence(
        &self,
        stage: &Stage,
        ledger: &Ledger,
        span: Span,
        (lines, watched): (u64, Duration),
    ) -> Result<Evidence> {
        let looks = stage.looks.as_ref();
        let patience = match self.plan.is_timed {
            true => CLEAN_MAX,
            false => SLOW_MAX,
        };
        let last = looks.and_then(|looks| clean(looks, ledger.now(), patience));
        let entries = ledger.entries();
        let resident = stage.nodes.iter().map(|node| node.process.resident_kib());
        Ok(Evidence {
            span,
            charged: self.charged(stage, &entries)?,
            entries,
            looks: looks.map(Looks::all).unwrap_or_default(),
            last,
            lines,
            watched,
            resident_kib: resident.max().unwrap_or(0),
            logs: stage.nodes.iter().map(|node| node.log()).collect(),
            is_restarted: !stage.restarted.is_empty(),
        })
    }

    /// Waits until nothing that was denied is charged, or that takes too long, and reads the charges again.
    fn until_given_back(&self, stage: &Stage, evidence: &mut Evidence) -> Result<()> {
        let end = Instant::now() + CLEAN_MAX;
        while charged_denied(evidence) > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(200));
            evidence.charged = self.charged(stage, &evidence.entries)?;
        }
        Ok(())
    }

    /// Waits until what nodes owe is charged, or that takes too long, and reads charges and nodes again.
    fn until_paid<S>(
        &self,
        fault: &Fault<S>,
        stage: &Stage,
        evidence: &mut Evidence,
    ) -> Result<()> {
        let end = Instant::now() + CLEAN_MAX;
        while unpaid(fault, evidence).is_some() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(200));
            evidence.charged = self.charged(stage, &evidence.entries)?;
            let looks = stage.looks.as_ref();
            let latest = looks.and_then(|looks| looks.latest(NODES, Duration::ZERO));
            evidence.last = latest.or_else(|| evidence.last.take());
        }
        Ok(())
    }

    /// The hits that Redis has charged to each key of an ample limit.
    fn charged(&self, stage: &Stage, entries: &[Entry]) -> Result<Vec<(Key, u64)>> {
        let keys: BTreeSet<&Key> = entries
            .iter()
            .map(|entry| &entry.key)
            .filter(|key| matches!(key.rule, Rule::Spend | Rule::Shut | Rule::Tokens))
            .collect();
        let _entered = self.runtime.enter();
        let asker = self.asker(&stage.nodes[0])?;
        self.runtime.block_on(async {
            let mut charged = Vec::new();
            for key in keys {
                if let Some(left) = asker.left(key).await? {
                    charged.push((key.clone(), AMPLE.saturating_sub(left)));
                }
            }
            Ok(charged)
        })
    }

    fn row<S>(&self, fault: &Fault<S>, ledger: &Ledger, evidence: &Evidence) -> Row {
        let Evidence { span, entries, .. } = evidence;
        let (errors, kept) = ledger.errors();
        for error in &kept {
            eprintln!("{}: {error}", fault.name);
        }
        let passed = |rule| verdict::passed(entries, rule, *span, fault.counters);
        // A node that is restarted starts over.
        let nodes = NODES as u64 + u64::from(evidence.is_restarted);
        let settled = ledger.settled();
        let permits_lost = fault.counters != crate::fault::Counters::Kept;
        let tokens = charged_to(evidence, Rule::Tokens);
        let tokens: u64 = tokens.iter().map(|(_, hits)| hits).sum();
        let mut row = Row {
            name: fault.name,
            lasted: span.healed.saturating_sub(span.struck),
            asked: entries.len() as u64 + errors,
            errors,
            degraded: verdict::degraded(entries),
            failopen: failopen(evidence),
            hard: passed(Rule::Hard),
            soft: passed(Rule::Soft),
            leased: passed(Rule::Leased),
            synced: verdict::passed_by_each(entries, Rule::Synced, *span, nodes),
            permits_over: match permits_lost {
                true => 0,
                false => settled.held_max.saturating_sub(PERMITS),
            },
            permits_held: settled.held_max,
            charged_denied: charged_denied(evidence),
            charged_twice: verdict::charged_twice(entries, &charged_to(evidence, Rule::Spend))
                + tokens.saturating_sub(settled.spent),
            lies: Vec::new(),
            back: back(fault, evidence),
            lines: evidence.lines as f64 / evidence.watched.as_secs_f64().max(1.0) / NODES as f64,
            resident_kib: evidence.resident_kib,
            missed: Vec::new(),
        };
        row.lies = self.lies(fault, evidence, &row);
        row.missed = self.missed(fault, evidence, &row, kept.first());
        row
    }

    /// The signals that did not tell the truth.
    fn lies<S>(&self, fault: &Fault<S>, evidence: &Evidence, row: &Row) -> Vec<String> {
        let mut lies = Vec::new();
        if let Some(failopen) = row.failopen
            && failopen != row.degraded
        {
            lies.push(format!("`failopen` says {failopen}"));
        }
        let readiness = verdict::readiness(&evidence.entries, &evidence.looks);
        if is_too_many(readiness) {
            let Readiness { looks, clean } = readiness;
            lies.push(format!("readyz clean in {clean} of {looks} looks"));
        }
        let closed = verdict::closed(&evidence.looks, evidence.span);
        if fault.opens && self.plan.is_timed && is_too_many(closed) {
            let Readiness { looks, clean } = closed;
            lies.push(format!("circuit closed in {clean} of {looks} looks"));
        }
        if fault.opens && !(0..NODES).all(|node| is_seen_open(evidence, node)) {
            lies.push("circuit never open".to_owned());
        }
        if let Some(text) = fault.told
            && !is_told(evidence, text)
        {
            lies.push(match text {
                "" => "no node tells".to_owned(),
                _ => format!("no node tells of {text}"),
            });
        }
        match &evidence.last {
            None => lies.push("a node cannot be looked at".to_owned()),
            Some(last) => {
                lies.extend(still(last));
                let errors: u64 = last.iter().map(|look| look.errors).sum();
                let stranded: u64 = last.iter().map(|look| look.stranded).sum();
                if row.charged_denied > stranded && !evidence.is_restarted {
                    lies.push(format!("only {stranded} stranded hits are counted"));
                }
                if row.degraded > 0 && errors == 0 && !evidence.is_restarted {
                    lies.push("no error of Redis is counted".to_owned());
                }
            }
        }
        if self.plan.is_timed && row.lines > LINES_MAX {
            lies.push("log too loud".to_owned());
        }
        lies
    }

    /// The goals missed, apart from signals.
    fn missed<S>(
        &self,
        fault: &Fault<S>,
        evidence: &Evidence,
        row: &Row,
        error: Option<&String>,
    ) -> Vec<String> {
        let mut missed = Vec::new();
        if let Some(error) = error {
            let error = error.replace(['|', '\n'], " ");
            missed.push(format!("errors: {error}"));
        }
        if row.charged_denied > 0 && fault.answers_late {
            missed.push(format!("{} denied hits stay charged", row.charged_denied));
        }
        if row.over() > 0 {
            missed.push("over the limit".to_owned());
        }
        match row.back {
            None => missed.push("never shared again".to_owned()),
            Some(back) if self.plan.is_timed && back > BACK_MAX => missed.push("late".to_owned()),
            Some(_) => {}
        }
        let frozen = verdict::frozen(&evidence.entries);
        if frozen > FROZEN_MAX {
            missed.push(format!("a window froze for {:.1} s", frozen.as_secs_f64()));
        }
        if let Some(hits) = unpaid(fault, evidence) {
            missed.push(format!("{hits} hits were never charged"));
        }
        if let Some(hits) = overpaid(fault, evidence, row.charged_twice) {
            missed.push(format!("{hits} hits were charged twice, and nobody tells"));
        }
        missed.extend(unspared(fault.spares, evidence, self.plan.is_timed));
        missed.extend(
            unused(fault, evidence, row.permits_held, self.plan.is_timed)
                .into_iter()
                .map(str::to_owned),
        );
        if has_not_met(fault.spares, row.synced, self.plan.is_timed) {
            missed.push("nodes did not know of each other in time".to_owned());
        }
        missed
    }
}

/// The hits that were charged to the keys of `rule`.
fn charged_to(evidence: &Evidence, rule: Rule) -> Vec<(Key, u64)> {
    let charged = evidence.charged.iter().cloned();
    charged.filter(|(key, _)| key.rule == rule).collect()
}

/// The hits that were charged though they were denied, of the rule that denies without Redis.
fn charged_denied(evidence: &Evidence) -> u64 {
    verdict::charged_twice(&evidence.entries, &charged_to(evidence, Rule::Shut))
}

/// The number of log lines of all nodes.
fn lines(stage: &Stage) -> u64 {
    stage.nodes.iter().map(|node| node.process.lines()).sum()
}

/// Waits until every node is ready without a fault, or that takes too long, and returns the latest looks.
fn clean(looks: &Looks, from: Duration, patience: Duration) -> Option<Vec<Look>> {
    let is_clean = |look: &Look| look.faults.is_empty() && !look.is_open;
    let mut latest = None;
    within(patience, Duration::from_millis(50), || {
        latest = looks.latest(NODES, from);
        let latest: Option<&Vec<Look>> = latest.as_ref();
        latest.is_some_and(|looks| looks.iter().all(is_clean))
    });
    latest
}

fn failopen(evidence: &Evidence) -> Option<u64> {
    let last = evidence.last.as_ref().filter(|_| !evidence.is_restarted)?;
    Some(last.iter().map(|look| look.failopen).sum())
}
