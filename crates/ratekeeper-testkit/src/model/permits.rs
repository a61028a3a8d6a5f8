//! Permits and their deadlines.

use ratekeeper_core::{LimitSpec, Timestamp};

/// `concurrency`: a list of permits and their deadlines.
#[derive(Clone, Debug)]
pub struct Permits {
    pub(crate) quota: u64,
    timeout: u64,
    held: Vec<Permit>,
}

#[derive(Clone, Copy, Debug)]
struct Permit {
    /// None if the permit cannot be released.
    id: Option<u128>,
    deadline: u64,
}

impl Permits {
    /// A limit with all permits free.
    #[must_use]
    pub fn new(spec: LimitSpec) -> Self {
        Self {
            quota: spec.quota,
            timeout: spec.window.get(),
            held: Vec::new(),
        }
    }

    fn deadline(&self, now: Timestamp) -> u64 {
        now.as_micros() + self.timeout
    }

    fn reap(&mut self, now: Timestamp) {
        self.held.retain(|permit| permit.deadline > now.as_micros());
    }

    /// The permits free at `now`.
    #[must_use]
    pub fn room(&self, now: Timestamp) -> u64 {
        let held = self.held.iter();
        let held = held.filter(|permit| permit.deadline > now.as_micros());
        self.quota.saturating_sub(held.count() as u64)
    }

    pub(crate) fn charge(&mut self, hits: i64, now: Timestamp) {
        self.reap(now);
        for _ in 0..hits.max(0).unsigned_abs().min(self.room(now)) {
            let deadline = self.deadline(now);
            self.held.push(Permit { id: None, deadline });
        }
    }

    /// Takes a permit if one is free, or renews the one already held.
    pub fn acquire(&mut self, id: u128, now: Timestamp) -> bool {
        if self.renew(id, now) {
            return true;
        }
        let free = self.room(now) > 0;
        if free {
            let deadline = self.deadline(now);
            let id = Some(id);
            self.held.push(Permit { id, deadline });
        }
        free
    }

    /// Releases a permit; false if it is not held.
    pub fn release(&mut self, id: u128, now: Timestamp) -> bool {
        self.reap(now);
        let held = self.held.len();
        self.held.retain(|permit| permit.id != Some(id));
        self.held.len() < held
    }

    /// Extends a permit's deadline; false if it is not held.
    pub fn renew(&mut self, id: u128, now: Timestamp) -> bool {
        self.reap(now);
        let deadline = self.deadline(now);
        let permit = self.held.iter_mut().find(|permit| permit.id == Some(id));
        permit
            .map(|permit| permit.deadline = permit.deadline.max(deadline))
            .is_some()
    }
}
