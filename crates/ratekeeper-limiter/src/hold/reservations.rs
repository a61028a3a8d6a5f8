//! Reservations, which take hits before their number is known, and refunds.

use arc_swap::Guard;
use ratekeeper_core::{Limit, MAX_COUNT, Micros, Moment, Timestamp};
use ratekeeper_store::{Execution, Extra, Once, Step, Store, StoreError, Until};

use super::caller::KEY_TTL;
use super::{CallerHolds, HoldError, Taken, TakenPart};
use crate::purpose::Purpose;
use crate::request::MAX_HITS;
use crate::token::{Claim, HoldPart, Kind, Sealer};
use crate::{Check, Decision, Limiter};

/// The time for which the idempotency key of a charge is remembered.
const CHARGE_TTL: Micros = Micros::from_secs(86_400);

/// The terms of a reservation.
#[derive(Clone, Copy, Debug)]
pub struct Reserve<'a> {
    /// The most that the request may turn out to cost, charged to every descriptor that is not
    /// `fixed`: 1 to 2^53 - 1.
    pub hits: u64,
    /// True for each descriptor that has hits of its own, which it costs no matter what is committed; missing entries
    /// count as false.
    pub fixed: &'a [bool],
    /// The time within which it must be settled.
    pub ttl: Micros,
    /// The idempotency key: within `ttl`, the same reservation of the same caller is made once.
    pub key: Option<&'a str>,
}

/// The answer to a reserve.
#[derive(Debug)]
pub struct Reserved {
    /// The decision: whether the request may go on, and what remains of each limit.
    pub decision: Decision,
    /// The reservation to settle; None if the request was denied.
    pub reservation: Option<Reservation>,
    /// True if the idempotency key was used before and this repeats that answer.
    pub is_repeat: bool,
}

/// Hits that are taken but not yet settled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reservation {
    /// The token to commit or cancel it with.
    pub token: String,
    /// The time left to settle it, counted from now.
    pub expires_after: Micros,
}

/// The answer to a check that is carried out once.
#[derive(Debug)]
pub struct ChargedOnce {
    /// The decision: that of the first time, if it is a repeat.
    pub decision: Decision,
    /// True if the idempotency key was used before, and nothing was charged now.
    pub is_repeat: bool,
}

/// The outcome of settling a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settled {
    /// The most hits given back to a limit that still counts them, 0 if there is none: of one that had no room for all that was
    /// reserved, only what it took comes back. Of the hits of a `fixed` descriptor, a cancel gives all back and a commit none.
    pub given_back: u64,
    /// The number of limits that they were given back to, which still count the hits taken, or that were charged more.
    pub limits: usize,
    /// The number of limits that nothing was given back to because their rules are gone.
    pub limits_gone: usize,
    /// True if the same settlement was made before, and this one changed nothing.
    pub is_repeat: bool,
}

impl<S: Store> CallerHolds<'_, S> {
    /// Takes `reserve.hits` for `check` now; the caller says later how many it needed.
    ///
    /// Concurrency limits are left out, as in a check. A limit that is paid afterwards and has less left takes what is left,
    /// if it would otherwise [forget](Limit::reserving) what was used before. A reservation that is neither committed nor
    /// cancelled within its ttl stays charged in full: it is unknown whether the work was done.
    ///
    /// # Errors
    /// [`HoldError::TooManyLimits`], [`HoldError::Conflict`] or [`HoldError::NoRoom`]; nothing
    /// was taken.
    pub async fn reserve(
        &self,
        check: &Check<'_>,
        reserve: &Reserve<'_>,
    ) -> Result<Reserved, HoldError> {
        let limiter = self.limiter;
        let Reserve {
            hits, fixed, ttl, ..
        } = reserve;
        let now = limiter.clock().now();
        let once = |key| self.once("reserve", check, key, *ttl, (*hits, fixed));
        let once = reserve.key.map(once);
        let id = once.map_or_else(|| limiter.new_id(), |once| once.id);
        let extra = Extra {
            once,
            ..Extra::default()
        };
        let (decision, taken) = limiter
            .take(check, Purpose::Charge, now, &extra, |_| true)
            .await?;
        let Taken {
            parts,
            at,
            is_repeat,
            ..
        } = taken;
        let mut reservation = None;
        if decision.allowed() {
            let sealer = match parts.is_empty() {
                true => Sealer::public(),
                false => limiter.sealer(),
            };
            let claim = Claim {
                kind: Kind::Reservation,
                // A key may come again once its reservation is over: the time tells them apart.
                id: limiter.settlement_id(id, at.as_micros()),
                taken_at: at,
                until: at.after(*ttl),
                hits: *hits,
                caller: sealer.caller(self.name),
                parts: parts.into_iter().map(|taken| reserve.mark(taken)).collect(),
            };
            let expires_after = match is_repeat {
                true => claim.until.since(limiter.time_of_store(&claim).await),
                false => *ttl,
            };
            reservation = Some(Reservation {
                token: sealer.seal(&claim),
                expires_after,
            });
        }
        Ok(Reserved {
            decision,
            reservation,
            is_repeat,
        })
    }

    /// Settles a reservation: `hits` were needed, the rest of what was reserved is given back. If more were
    /// needed, the limits that are paid afterwards are charged the difference.
    ///
    /// # Errors
    /// [`HoldError::TooMuch`] if fewer were reserved and none of its limits is paid afterwards, [`HoldError::Expired`] after its ttl,
    /// [`HoldError::Conflict`] if it was settled in another way, and the errors of a token that is
    /// malformed, another caller's, or a permit; [`HoldError::Store`], [`HoldError::NoRoom`],
    /// [`HoldError::Forgotten`].
    pub async fn commit(&self, token: &str, hits: u64) -> Result<Settled, HoldError> {
        let claim = self.limiter.open(self.name, Kind::Reservation, token)?;
        let due = |part: &HoldPart, limit: &Limit| match part.is_fixed {
            true => 0,
            false => due(part, limit, hits),
        };
        let rest = match claim.hits.checked_sub(hits) {
            Some(rest) => rest,
            None => {
                let now = self.limiter.clock().now();
                let steps = self.limiter.load().settlement(&claim.parts, now, due);
                if steps.iter().all(|step| step.hits == 0) {
                    return Err(HoldError::TooMuch(claim.hits));
                }
                // No commit gives so much back.
                !(hits.min(MAX_COUNT) - claim.hits)
            }
        };
        self.limiter.settle_once(&claim, rest, due).await
    }

    /// Gives back all that was reserved, as if nothing had been requested.
    ///
    /// # Errors
    /// Those of [`Self::commit`] except [`HoldError::TooMuch`].
    pub async fn cancel(&self, token: &str) -> Result<Settled, HoldError> {
        let claim = self.limiter.open(self.name, Kind::Reservation, token)?;
        self.limiter
            .settle_once(&claim, u64::MAX, |part, _| negative(part.hits))
            .await
    }

    /// Decides `check` as any other, but once in 24 hours for `key`: a repeat is answered as the first
    /// time, and charges nothing. A denied check that charged no limit paid afterwards may be repeated
    /// and is decided again.
    ///
    /// # Errors
    /// [`HoldError::Conflict`], [`HoldError::NoRoom`] or [`HoldError::Forgotten`]; nothing was
    /// charged. [`HoldError::Store`] if the store did not answer: the caller repeats it under the
    /// same key, and no failure mode does.
    pub async fn charge(&self, check: &Check<'_>, key: &str) -> Result<ChargedOnce, HoldError> {
        let limiter = self.limiter;
        let extra = Extra {
            once: Some(self.once("charge", check, key, CHARGE_TTL, (0, &[]))),
            ..Extra::default()
        };
        let now = limiter.clock().now();
        let (decision, taken) = limiter
            .take(check, Purpose::Charge, now, &extra, |_| false)
            .await?;
        if decision.is_degraded() {
            return Err(HoldError::Store(StoreError::Unavailable));
        }
        Ok(ChargedOnce {
            decision,
            is_repeat: taken.is_repeat,
        })
    }

    /// Gives back the hits of the descriptors to the limits as they count now: for costs that did not
    /// arise after all, where nothing was reserved. With a `key`, once in five minutes.
    ///
    /// # Errors
    /// [`HoldError::Conflict`] or [`HoldError::NoRoom`]; nothing was given back.
    pub async fn refund(
        &self,
        check: &Check<'_>,
        key: Option<&str>,
    ) -> Result<Decision, HoldError> {
        let limiter = self.limiter;
        let now = limiter.clock().now();
        let extra = Extra {
            once: key.map(|key| self.once("refund", check, key, KEY_TTL, (0, &[]))),
            ..Extra::default()
        };
        let (decision, _) = limiter
            .take(check, Purpose::Refund, now, &extra, |_| false)
            .await?;
        Ok(decision)
    }
}

impl<S: Store> Limiter<S> {
    /// Charges the hits that `hits` returns for each part, or gives them back if negative, once. `content` identifies
    /// the operation.
    async fn settle_once(
        &self,
        claim: &Claim,
        content: u64,
        hits: impl Fn(&HoldPart, &Limit) -> i64,
    ) -> Result<Settled, HoldError> {
        let now = self.clock().now();
        // A guard that is held while the store answers makes those who load the rules meanwhile slower.
        let snapshot = Guard::into_inner(self.load());
        let steps = snapshot.settlement(&claim.parts, now, hits);
        let extra = Extra {
            once: Some(Once {
                id: claim.id,
                until: Until::At(claim.until),
                content,
            }),
            taken_at: Some(claim.taken_at),
            ..Extra::default()
        };
        let verdicts = self.settle_steps(&steps, &extra, now).await?;
        let is_repeat = match verdicts.execution {
            Execution::Now => {
                snapshot.count_cuts(&claim.parts, &verdicts);
                false
            }
            Execution::Before => true,
            Execution::Conflict => {
                let message = "the reservation was committed or cancelled";
                return Err(HoldError::Conflict(message));
            }
            Execution::NoRoom => return Err(HoldError::NoRoom),
            // The store's clock says so, as it said when the hits were taken.
            Execution::Unknown if verdicts.at >= claim.until => return Err(HoldError::Expired),
            Execution::Unknown => return Err(HoldError::Forgotten),
        };
        let counts = |step: &&Step| {
            let at = Moment {
                now: verdicts.at,
                calendar: step.calendar,
            };
            step.hits > 0 || step.hits < 0 && step.limit.still_counts(claim.taken_at, &at)
        };
        // Of what no limit counts, such as hits that passed while the store was away, nothing is given back.
        let counting = || steps.iter().filter(counts);
        let given_back = counting().map(|step| step.hits.min(0).unsigned_abs()).max();
        Ok(Settled {
            given_back: given_back.unwrap_or(0).min(claim.hits),
            limits: counting().count(),
            limits_gone: claim.parts.len() - steps.len(),
            is_repeat,
        })
    }

    /// The store's time, read by a peek at the parts of `claim`; this node's time if the store does not
    /// tell.
    async fn time_of_store(&self, claim: &Claim) -> Timestamp {
        let now = self.clock().now();
        let looks = self.load().settlement(&claim.parts, now, |_, _| 0);
        if looks.is_empty() {
            return now;
        }
        let verdicts = self.settle_steps(&looks, &Extra::default(), now).await;
        verdicts.map_or(now, |verdicts| verdicts.at)
    }

    fn settlement_id(&self, id: u128, at: u64) -> u128 {
        let texts: [&[u8]; 2] = [&id.to_be_bytes(), &at.to_be_bytes()];
        self.sealer().hash("settle", &texts)
    }
}

/// The hits that `part` is charged, or given back if negative, of which `used` were needed.
fn due(part: &HoldPart, limit: &Limit, used: u64) -> i64 {
    match part.hits.checked_sub(used) {
        Some(rest) => negative(rest),
        None if limit.is_post_paid() => used.min(MAX_COUNT).cast_signed() - part.hits.cast_signed(),
        None => 0,
    }
}

/// Hits to give back.
fn negative(hits: u64) -> i64 {
    -i64::try_from(hits).unwrap_or(MAX_HITS)
}

impl Reserve<'_> {
    /// Returns the part, marked if its descriptor has hits of its own.
    fn mark(&self, taken: TakenPart) -> HoldPart {
        let number = usize::from(taken.descriptor);
        HoldPart {
            is_fixed: self.fixed.get(number).copied().unwrap_or(false),
            ..taken.part
        }
    }
}
