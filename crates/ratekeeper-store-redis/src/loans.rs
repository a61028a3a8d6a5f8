//! Loans between regions: looks at them and changes of them, the totals that regions post, and the counters that may need
//! either.
//!
//! No request waits for any of this. A change is made by a node that has read what it is computed from, and only if that is
//! still there; see [`ratekeeper_core::region::loans`].

use std::sync::Arc;

use parking_lot::Mutex;
use ratekeeper_core::Micros;
use ratekeeper_core::region::counted::RegionPost;
use ratekeeper_store::{
    CounterKey, LoanChange, LoanCounter, LoanDemand, LoanState, Step, StoreError, boot_time,
};
use tokio::sync::oneshot;

use crate::background::Background;
use crate::config::RedisConfig;
use crate::script::{AnswerError, Call, Item, Script, decode_loans};
use crate::script_context::ScriptContext;
use crate::side_sender::{SideSender, SideWork};
use crate::topology::Topology;
use crate::wire::Refusal;

/// The time within which a call has to be sent, and its change replicated.
const WITHIN: Micros = Micros::from_secs(1);

/// The loans of counters in one store.
#[derive(Debug)]
pub(crate) struct Loans {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    sender: SideSender<Self>,
    context: Arc<ScriptContext>,
}

/// The work on the loans of a counter, or on the totals that regions post of it.
#[derive(Debug)]
pub(crate) enum LoanAct {
    Look,
    Change(LoanChange),
    Total(RegionPost),
}

/// Work on a counter.
#[derive(Debug)]
struct Job {
    counter: LoanCounter,
    act: LoanAct,
    until: Micros,
    /// Taken when it has been answered.
    answer: Mutex<Option<oneshot::Sender<Result<LoanState, StoreError>>>>,
}

impl Loans {
    pub(crate) fn start(
        topology: Arc<Topology>,
        config: Arc<RedisConfig>,
        context: Arc<ScriptContext>,
        home: Background,
    ) -> Self {
        let shared = Arc::new_cyclic(|this| Shared {
            sender: SideSender::new(topology, config, home, this.clone()),
            context,
        });
        Self { shared }
    }

    /// Records that hits were asked for, of which regions lend each other parts.
    pub(crate) fn record(&self, step: &Step) {
        let hits = u64::try_from(step.hits).unwrap_or(0);
        let demands = &self.shared.context.loan_demands;
        demands.record(LoanCounter::of(step), step.terms, hits);
    }

    /// Takes out what was recorded.
    pub(crate) fn demands(&self) -> Vec<LoanDemand> {
        self.shared.context.loan_demands.take()
    }

    /// Does `act` on `counter`.
    pub(crate) async fn call(
        &self,
        counter: LoanCounter,
        act: LoanAct,
    ) -> Result<LoanState, StoreError> {
        let (answer, answered) = oneshot::channel();
        let until = Micros::new(boot_time().get().saturating_add(WITHIN.get()));
        let job = Job {
            counter,
            act,
            until,
            answer: Mutex::new(Some(answer)),
        };
        if !self.shared.sender.send([job]).is_empty() {
            return Err(StoreError::Unavailable);
        }
        answered.await.unwrap_or(Err(StoreError::Lost))
    }
}

impl Job {
    const fn is_change(&self) -> bool {
        matches!(self.act, LoanAct::Change(_))
    }

    fn tell(&self, answer: Result<LoanState, StoreError>) {
        let waiting = self.answer.lock().take();
        if let Some(waiting) = waiting {
            // The receiver may be gone.
            let _ = waiting.send(answer);
        }
    }
}

impl SideWork for Shared {
    type Job = Job;
    type Turn = Job;
    const WAITING_MAX: usize = 4_096;
    const TOGETHER_MAX: usize = 64;

    fn key(job: &Job) -> CounterKey {
        job.counter.key
    }

    fn script(&self) -> &Script {
        &self.context.script
    }

    fn begin(&self, job: Job, now: Micros) -> Option<Job> {
        if now < job.until {
            return Some(job);
        }
        job.tell(Err(StoreError::Unavailable));
        None
    }

    fn call(&self, job: &Job) -> Call {
        let mut call = Call::new();
        self.context.set_region(&mut call);
        let (counter, names) = (&job.counter, &self.context.names);
        match &job.act {
            LoanAct::Look => call.push_loans(counter, None, names),
            LoanAct::Change(change) => call.push_loans(counter, Some(change), names),
            LoanAct::Total(post) => call.push_total(counter, *post, names),
        }
        call
    }

    fn replicated_until(job: &Job) -> Option<Micros> {
        match job.act {
            LoanAct::Change(_) => Some(job.until),
            // A total that is lost is missed at the next look, and asked for again.
            LoanAct::Look | LoanAct::Total(_) => None,
        }
    }

    fn answered<'r>(
        &self,
        job: &Job,
        answer: impl Iterator<Item = Item<'r>>,
        is_replicated: bool,
    ) -> Result<(), AnswerError> {
        let state = decode_loans(answer)?;
        if job.is_change() && state.as_ref().is_some_and(|state| state.is_written) {
            self.context.denied.forget(job.counter.key);
        }
        job.tell(match state {
            // It is kept, and does no harm: what another region does not hear of, it does not use.
            Some(state) if state.is_written && !is_replicated && job.is_change() => {
                Err(StoreError::Unavailable)
            }
            Some(state) => Ok(state),
            None => Err(StoreError::Corrupt),
        });
        Ok(())
    }

    fn refused(&self, job: Job, _: Refusal) {
        job.tell(Err(StoreError::Unavailable));
    }

    fn lost(&self, job: Job) {
        job.tell(Err(StoreError::Lost));
    }

    fn given_up(&self, job: Job) {
        job.tell(Err(StoreError::Unavailable));
    }
}
