//! A store's clock that goes forward while leases are held: by that clock they are spent too late.

use super::store::LeaseStore;
use super::world::{Broken, World};

impl<S: LeaseStore> World<S> {
    /// Moves the store's clock forward, and notes what leases hold at that moment.
    pub(super) fn step_forward(&mut self) {
        self.store_offset += self.plan.step_forward;
        for lease in self.leases.values_mut().filter(|it| it.left.is_none()) {
            lease.is_outrun = true;
            self.outrun += lease.granted - lease.spent + lease.taken;
        }
    }

    /// Counts hits apart whose lease the store's clock has outrun. Returns true if they are of such a lease.
    pub(super) fn spend_outrun(&mut self, id: Option<u128>, hits: u64) -> bool {
        let lease = id.and_then(|id| self.leases.get_mut(&id));
        let Some(lease) = lease.filter(|it| it.is_outrun) else {
            return false;
        };
        lease.spent += hits;
        self.outrun_spent += hits;
        true
    }

    /// Of what leases held, no hit was spent twice. The rest is held to the limits as ever.
    pub(super) fn check_outrun(&self) -> Result<(), Broken> {
        match self.outrun_spent > self.outrun {
            true => Err(format!(
                "{} of {} spent that were held when the clock went forward",
                self.outrun_spent, self.outrun
            )),
            false => Ok(()),
        }
    }
}
