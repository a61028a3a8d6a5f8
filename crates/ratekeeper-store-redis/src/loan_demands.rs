//! The demand for counters of which regions lend each other parts, as this node sees it.

use std::collections::HashMap;

use parking_lot::Mutex;
use ratekeeper_store::{CounterKey, LoanCounter, LoanDemand};

/// The counters whose demand is kept between two looks.
const DEMANDS_MAX: usize = 4_096;

/// The hits that were asked for since the last look, by their counters.
#[derive(Debug, Default)]
pub(crate) struct LoanDemands(Mutex<HashMap<CounterKey, LoanDemand>>);

impl LoanDemands {
    /// Records that hits were asked for.
    #[cold]
    pub(crate) fn record(&self, counter: LoanCounter, terms: u64, hits: u64) {
        let mut demands = self.0.lock();
        if let Some(demand) = demands.get_mut(&counter.key) {
            demand.hits = demand.hits.saturating_add(hits);
            (demand.terms, demand.counter) = (terms, counter);
        } else if demands.len() < DEMANDS_MAX {
            let demand = LoanDemand {
                counter,
                terms,
                hits,
            };
            demands.insert(counter.key, demand);
        }
    }

    /// Takes out what was recorded.
    pub(crate) fn take(&self) -> Vec<LoanDemand> {
        std::mem::take(&mut *self.0.lock()).into_values().collect()
    }
}
