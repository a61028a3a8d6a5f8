//! Calls for leases, as work for side connections.
//!
//! No call is repeated: the next one about the counter replaces it. Leases are spent once the server's
//! [replicas](crate::replicas) have them.

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

impl SideWork for Shared {
    type Job = Job;
    type Turn = Job;
    const WAITING_MAX: usize = 8_192;
    const TOGETHER_MAX: usize = 64;

    fn key(job: &Job) -> CounterKey {
        job.lease_call.key
    }

    fn script(&self) -> &Script {
        &self.context.script
    }

    fn begin(&self, job: Job, now: Micros) -> Option<Job> {
        if now < job.until {
            return Some(job);
        }
        self.lost(job);
        None
    }

    fn call(&self, job: &Job) -> Call {
        let mut call = Call::new();
        call.set_generation(self.context.generation.get());
        call.push_lease_call(&job.lease_call, &self.context.names);
        call
    }

    fn replicated_until(job: &Job) -> Option<Micros> {
        (job.lease_call.report.target > 0).then_some(job.until)
    }

    fn answered<'r>(
        &self,
        job: &Job,
        answer: impl Iterator<Item = Item<'r>>,
        is_replicated: bool,
    ) -> Result<(), AnswerError> {
        match &decode_lease_calls(&[job.lease_call], answer)?[..] {
            [LeaseOutcome::Settled { holding, outcome }] => {
                if is_replicated || holding.amount == 0 {
                    self.settled(job, holding, outcome);
                } else {
                    self.unreplicated(job, holding.amount);
                }
            }
            _ => self.lost(*job),
        }
        Ok(())
    }

    /// Another server has it now, or will: that is found by asking again.
    fn refused(&self, job: Job, refusal: Refusal) {
        let is_elsewhere = matches!(refusal, Refusal::Moved | Refusal::Elsewhere);
        if is_elsewhere && boot_time() < job.until {
            self.send(job);
        } else {
            self.lost(job);
        }
    }

    fn lost(&self, job: Job) {
        self.unanswered(&job);
    }

    fn given_up(&self, job: Job) {
        self.unanswered(&job);
    }
}
