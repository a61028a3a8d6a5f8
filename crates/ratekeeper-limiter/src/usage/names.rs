//! The names of tenants that call, recorded once an hour.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_rules::TenantHash;

/// The tenants that are remembered to have been named; a power of two.
const KNOWN: usize = 8_192;

/// The name of a tenant that called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeteredCaller {
    /// The domain.
    pub domain: Arc<str>,
    /// The tenant.
    pub tenant: TenantHash,
    /// Its value; of a secret one only the end. Long ones end in a fingerprint.
    pub shown: Box<str>,
    /// The hour of the call, counted from 1970 in UTC.
    pub hour: u64,
}

/// The tenants that were named in this hour, as far as there is room: each has one place, which another one may take.
#[derive(Debug)]
pub(super) struct NamedTenants(Box<[AtomicU64]>);

impl Default for NamedTenants {
    fn default() -> Self {
        Self((0..KNOWN).map(|_| AtomicU64::new(0)).collect())
    }
}

impl NamedTenants {
    fn place(&self, tenant: TenantHash, hour: u64) -> (&AtomicU64, u64) {
        // A keyed hash: one half is as good as the other.
        let (mark, place) = tenant.halves();
        let place = usize::try_from(place % KNOWN as u64).unwrap_or(0);
        // Never that of an empty place.
        let mark = (mark ^ hour) | 1 << 63;
        (&self.0[place], mark)
    }

    #[inline]
    pub(super) fn has(&self, tenant: TenantHash, hour: u64) -> bool {
        let (place, mark) = self.place(tenant, hour);
        // Relaxed: a mark guards nothing, and a name that is recorded twice does no harm.
        place.load(Ordering::Relaxed) == mark
    }

    pub(super) fn observe(&self, tenant: TenantHash, hour: u64) {
        let (place, mark) = self.place(tenant, hour);
        place.store(mark, Ordering::Relaxed);
    }
}

/// Names that are still to be written.
#[derive(Debug, Default)]
pub(super) struct Names {
    waiting: HashMap<(Arc<str>, TenantHash), (Box<str>, u64)>,
    /// The hour of the last name, and how many there were in it.
    hour: u64,
    count: usize,
}

impl Names {
    /// Records a name, unless `most` were recorded in this hour.
    pub(super) fn observe(
        &mut self,
        hour: u64,
        key: (Arc<str>, TenantHash),
        shown: Box<str>,
        most: usize,
    ) {
        if self.hour != hour {
            (self.hour, self.count) = (hour, 0);
        }
        let has_room = self.count < most && self.waiting.len() < most;
        if has_room && self.waiting.insert(key, (shown, hour)).is_none() {
            self.count += 1;
        }
    }

    pub(super) fn take(&mut self) -> Vec<MeteredCaller> {
        let names = std::mem::take(&mut self.waiting).into_iter();
        let named = |((domain, tenant), (shown, hour))| MeteredCaller {
            domain,
            tenant,
            shown,
            hour,
        };
        names.map(named).collect()
    }

    /// Puts a name back, unless there is a later one, or `most` wait.
    pub(super) fn put_back(&mut self, name: MeteredCaller, most: usize) {
        if self.waiting.len() >= most {
            return;
        }
        let key = (name.domain, name.tenant);
        self.waiting.entry(key).or_insert((name.shown, name.hour));
    }
}
