//! The parts that a request takes of its limits, which a token or a receipt gives back.

use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_store::{Charge, Step, Verdicts};

use super::Receipt;
use super::receipt::ReceiptPart;
use crate::decision::Answered;
use crate::plan::Plan;
use crate::token::HoldPart;
use crate::{LimitSource, Snapshot};

/// The part that a request took of one limit.
pub(super) struct TakenPart {
    pub(super) part: HoldPart,
    /// The number of the descriptor.
    pub(super) descriptor: u16,
    /// The limit's window.
    pub(super) window: Micros,
}

impl TakenPart {
    /// The part without the hits that were cut off it.
    fn without(mut self, cut: u64) -> Self {
        self.part.hits = self.part.hits.saturating_sub(cut);
        self
    }
}

impl Plan {
    /// The parts that an allowed request took of the limits that `is_part` selects.
    pub(super) fn taken(
        &self,
        snapshot: &Snapshot,
        verdicts: &Verdicts,
        is_part: impl Fn(&Step) -> bool,
    ) -> Vec<TakenPart> {
        let answers = self
            .answers(snapshot, verdicts)
            .filter(|(step, _, answered)| {
                verdicts.allowed
                    && answered.counted
                    && answered.fits()
                    && step.hits > 0
                    && is_part(step)
            });
        let part = |(step, source, answered): (&Step, LimitSource, Answered)| {
            part(snapshot, step, source).map(|taken| taken.without(answered.cut))
        };
        answers.filter_map(part).collect()
    }

    /// The parts that the request takes of the limits that `is_part` selects, if it is allowed.
    pub(super) fn parts<'p>(
        &'p self,
        snapshot: &'p Snapshot,
        is_part: impl Fn(&Step) -> bool + 'p,
    ) -> impl Iterator<Item = TakenPart> + 'p {
        let steps = self.steps.iter().zip(&self.sources);
        steps
            .filter(move |(step, _)| is_part(step))
            .filter_map(|(step, source)| part(snapshot, step, *source))
    }

    /// The receipt for the hits that the request, allowed by the `verdicts` received at `heard`, took of
    /// its rates, and gives back if it does not go on after all.
    pub(super) fn receipt(
        &self,
        snapshot: &Snapshot,
        verdicts: &Verdicts,
        heard: Timestamp,
    ) -> Receipt {
        let answers = self
            .answers(snapshot, verdicts)
            .filter(|(step, _, answered)| {
                let is_rate = !step.limit.algorithm().holds_permits();
                let is_taken = answered.counted && answered.fits() && step.hits > 0;
                // What is charged to a leased counter stays: nodes may have admitted hits by it meanwhile.
                let is_kept = step.charge != Charge::IfAllowed || !step.lease.is_zero();
                is_rate && is_taken && !is_kept
            });
        let taken = answers.filter_map(|(step, source, answered)| {
            let part = part(snapshot, step, source)?.without(answered.cut).part;
            let is_turn = step.limit.algorithm().has_turns();
            let span = step.limit.span(part.hits);
            let ends_after = Micros::new(answered.delay.get() + span.get());
            Some(ReceiptPart {
                part,
                sync: step.sync,
                ends_after: is_turn.then_some(ends_after),
            })
        });
        Receipt {
            at: verdicts.at,
            heard,
            taken: taken.collect(),
        }
    }
}

/// The part that `step` takes of its limit; None for a limit that came with the request, since it
/// would be unknown at settlement.
fn part(snapshot: &Snapshot, step: &Step, source: LimitSource) -> Option<TakenPart> {
    let LimitSource::Rule(index) = source else {
        return None;
    };
    Some(TakenPart {
        part: HoldPart {
            rule: snapshot.compiled(index).token,
            key: step.key,
            hits: step.hits.unsigned_abs(),
            is_fixed: false,
        },
        descriptor: step.descriptor,
        window: step.limit.window(),
    })
}
