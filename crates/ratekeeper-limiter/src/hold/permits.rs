//! Permits: acquire, renew, release.

use ratekeeper_core::Micros;
use ratekeeper_store::{Extra, Permit, PermitAct, Step, StepOutcome, Store, Verdicts};

use super::caller::KEY_TTL;
use super::{CallerHolds, HoldError, Taken};
use crate::purpose::Purpose;
use crate::token::{Claim, Kind};
use crate::{Check, Decision, Limiter, Policies};

/// The answer to an acquire.
#[derive(Debug)]
pub struct Acquired {
    /// The decision: whether the request may go on, and what remains of each limit.
    pub decision: Decision,
    /// The enforced limits that it is held to, each once.
    pub policies: Policies,
    /// The permit; None if the request was denied, or no concurrency limit applies to it, or
    /// the store gave no answer and the failure mode let it pass.
    pub permit: Option<IssuedPermit>,
    /// True if the idempotency key was used before and this repeats that answer.
    pub is_repeat: bool,
}

/// A permit that is held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IssuedPermit {
    /// The token to release or renew it with.
    pub token: String,
    /// The time until it expires, counted from now: the shortest timeout of its limits.
    pub expires_after: Micros,
}

/// The outcome of a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Released {
    /// True if it was held until now; false if it was released before, has reached its deadline, or its
    /// rules are gone.
    pub was_held: bool,
}

pub(super) fn is_concurrency(step: &Step) -> bool {
    step.limit.algorithm().holds_permits()
}

impl<S: Store> CallerHolds<'_, S> {
    /// Decides `check` now, concurrency limits included, and takes a permit of each of those.
    /// Rates and permits are taken together or not at all. Only this caller can release it.
    ///
    /// With a `key`, the same request of the same caller is carried out once: a repeat gets the
    /// same permit, renewed, for five minutes. A permit takes 1 of a limit whatever the hits.
    ///
    /// # Errors
    /// [`HoldError::TooManyLimits`], [`HoldError::Conflict`] or [`HoldError::NoRoom`]; nothing
    /// was taken. [`HoldError::KeySpent`] if the permit of the key is no longer held;
    /// [`HoldError::Store`] if the store did not answer.
    pub async fn acquire(
        &self,
        check: &Check<'_>,
        key: Option<&str>,
    ) -> Result<Acquired, HoldError> {
        let limiter = self.limiter;
        let (now, sealer) = (limiter.clock().now(), limiter.sealer());
        let once = key.map(|key| self.once("acquire", check, key, KEY_TTL, (0, &[])));
        let id = once.map_or_else(|| limiter.new_id(), |once| once.id);
        let extra = Extra {
            permit: Some(Permit {
                id,
                act: PermitAct::Acquire,
            }),
            once,
            ..Extra::default()
        };
        let (decision, taken) = limiter
            .take(check, Purpose::Hold, now, &extra, is_concurrency)
            .await?;
        let Taken {
            parts,
            policies,
            at,
            is_repeat,
        } = taken;
        let shortest = parts.iter().map(|taken| taken.window).min();
        let mut permit = None;
        if let Some(timeout) = shortest.filter(|_| decision.allowed()) {
            let claim = Claim {
                kind: Kind::Permit,
                id,
                taken_at: at,
                until: at.after(timeout),
                hits: 1,
                caller: sealer.caller(self.name),
                parts: parts.into_iter().map(|taken| taken.part).collect(),
            };
            let expires_after = match is_repeat {
                // The permits taken then may have been released since, or gone to somebody else.
                true => limiter.prolong(&claim).await?.ok_or(HoldError::KeySpent)?,
                false => timeout,
            };
            permit = Some(IssuedPermit {
                token: sealer.seal(&claim),
                expires_after,
            });
        }
        Ok(Acquired {
            decision,
            policies,
            permit,
            is_repeat,
        })
    }

    /// Extends the deadline of a permit to its limits' timeouts from now.
    ///
    /// # Errors
    /// [`HoldError::NotHeld`] if it is no longer held in one of its limits, and the errors of a token
    /// that is malformed, another caller's, or a reservation; [`HoldError::Store`].
    pub async fn renew(&self, token: &str) -> Result<IssuedPermit, HoldError> {
        let claim = self.limiter.open(self.name, Kind::Permit, token)?;
        let expires_after = self
            .limiter
            .prolong(&claim)
            .await?
            .ok_or(HoldError::NotHeld)?;
        Ok(IssuedPermit {
            token: token.to_owned(),
            expires_after,
        })
    }

    /// Releases a permit. Releasing it twice does no harm.
    ///
    /// # Errors
    /// The errors of a token that is malformed, another caller's, or a reservation; [`HoldError::Store`].
    pub async fn release(&self, token: &str) -> Result<Released, HoldError> {
        let claim = self.limiter.open(self.name, Kind::Permit, token)?;
        let (verdicts, _) = self.limiter.act(&claim, PermitAct::Release).await?;
        let was_held = verdicts
            .outcomes
            .iter()
            .any(|outcome| matches!(outcome, StepOutcome::Counted(outcome) if outcome.fits()));
        Ok(Released { was_held })
    }
}

impl<S: Store> Limiter<S> {
    /// Extends the deadline of a permit. Returns the time until it ends, counted from now, or None if it
    /// is no longer held in one of its limits.
    async fn prolong(&self, claim: &Claim) -> Result<Option<Micros>, HoldError> {
        let (verdicts, timeout) = self.act(claim, PermitAct::Renew).await?;
        let held = |outcome: &StepOutcome| matches!(outcome, StepOutcome::Counted(outcome) if outcome.fits());
        Ok(timeout.filter(|_| verdicts.outcomes.iter().all(held)))
    }

    /// Applies `act` to every limit that the permit is held in, and returns the shortest timeout of
    /// those, None if none of their rules is left.
    async fn act(
        &self,
        claim: &Claim,
        act: PermitAct,
    ) -> Result<(Verdicts, Option<Micros>), HoldError> {
        let now = self.clock().now();
        let steps = self.load().settlement(&claim.parts, now, |_, _| 0);
        let timeout = steps.iter().map(|step| step.limit.window()).min();
        let extra = Extra {
            permit: Some(Permit { id: claim.id, act }),
            ..Extra::default()
        };
        let verdicts = self.settle_steps(&steps, &extra, now).await?;
        Ok((verdicts, timeout))
    }
}
