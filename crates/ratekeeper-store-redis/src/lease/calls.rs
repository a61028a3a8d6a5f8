//! Calls for leases, as work for side connections.
//!
//! No call is repeated: the next one about the counter replaces it. Leases are spent once the server's
//! [replicas](crate::replicas) have them.

use std::time::Duration;

use ratekeeper_core::Micros;
use ratekeeper_store::{CounterKey, boot_time};

use super::shared::Shared;
use crate::script::{AnswerError, Call, Item, LeaseCall, LeaseOutcome, Script, decode_lease_calls};
use crate::side_sender::SideWork;
use crate::wire::Refusal;

/// A call on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(super) lease_call: LeaseCall,
    /// The limit's fingerprint.
    pub(super) limit: u64,
    /// The time before it was sent, by the boot clock.
    pub(super) sent: Micros,
    /// The time after which it is of no use.
    pub(super) until: Micros,
}

/// The calls about leases that are one call to the server: what it costs beside them is paid once. More would keep it from
/// other work for long.
const JOINED_MAX: usize = 16;

/// The time that a call waits for others, and the shortest lease that has so much time: it is renewed that much earlier.
const GATHERED: (Duration, Micros) = (Duration::from_millis(1), Micros::from_millis(50));

impl SideWork for Shared {
    type Job = Job;
    type Turn = Vec<Job>;
    const WAITING_MAX: usize = 8_192;
    const TOGETHER_MAX: usize = 64;

    fn key(job: &Job) -> CounterKey {
        job.lease_call.key
    }

    fn script(&self) -> &Script {
        &self.context.script
    }

    fn patience(job: &Job) -> Duration {
        let (patience, shortest) = GATHERED;
        match job.lease_call.terms.ttl() < shortest {
            true => Duration::ZERO,
            false => patience,
        }
    }

    fn begin(&self, job: Job, now: Micros) -> Option<Vec<Job>> {
        if now < job.until {
            return Some(vec![job]);
        }
        self.unanswered(&job);
        None
    }

    fn join(jobs: &mut Vec<Job>, mut others: Vec<Job>) -> Option<Vec<Job>> {
        if jobs.len() >= JOINED_MAX {
            return Some(others);
        }
        jobs.append(&mut others);
        None
    }

    fn call(&self, jobs: &Vec<Job>) -> Call {
        let mut call = Call::new();
        self.context.set_region(&mut call);
        for job in jobs {
            call.push_lease_call(&job.lease_call, &self.context.names);
        }
        call
    }

    fn replicated_until(jobs: &Vec<Job>) -> Option<Micros> {
        let held = jobs.iter().filter(|job| job.lease_call.report.target > 0);
        held.map(|job| job.until).max()
    }

    fn answered<'r>(
        &self,
        jobs: &Vec<Job>,
        answer: impl Iterator<Item = Item<'r>>,
        is_replicated: bool,
    ) -> Result<(), AnswerError> {
        let calls: Vec<LeaseCall> = jobs.iter().map(|job| job.lease_call).collect();
        let outcomes = decode_lease_calls(&calls, answer)?;
        for (job, outcome) in jobs.iter().zip(&outcomes) {
            match outcome {
                LeaseOutcome::Settled { holding, outcome }
                    if is_replicated || holding.amount == 0 =>
                {
                    self.settled(job, holding, outcome);
                }
                LeaseOutcome::Settled { holding, .. } => self.unreplicated(job, holding.amount),
                LeaseOutcome::Old | LeaseOutcome::Corrupt => self.unanswered(job),
            }
        }
        Ok(())
    }

    /// Another server has them now, or will: that is found by asking again.
    fn refused(&self, jobs: Vec<Job>, refusal: Refusal) {
        let is_elsewhere = matches!(refusal, Refusal::Moved | Refusal::Elsewhere);
        for job in jobs {
            if is_elsewhere && boot_time() < job.until {
                self.send(job);
            } else {
                self.unanswered(&job);
            }
        }
    }

    fn lost(&self, jobs: Vec<Job>) {
        jobs.iter().for_each(|job| self.unanswered(job));
    }

    fn given_up(&self, job: Job) {
        self.unanswered(&job);
    }
}
