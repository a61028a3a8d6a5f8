//! The tenants of one domain, packed so that a look-up waits for memory once.
//!
//! Among a million tenants, almost every look-up misses the caches, and each pointer on the way costs as much again.
//! So a directory of six kilobytes, which stays cached, leads straight to a bucket of one cache line. It holds four
//! tenants of sixteen bytes each: half of the hash, and the numbers of the plan and the limit. Whatever does not fit,
//! such as dates, lies in a record elsewhere. Most tenants have none.
//!
//! # Why half of the hash is enough
//! The other half chooses the part and the bucket; it is kept aside, for listing the tenants. Two tenants of one table
//! are never confused: if a second one arrives with the same half, both get records, which are found by the whole hash.
//! A value that is not listed is taken for a tenant only if its half equals that of a tenant in the buckets searched,
//! about five tenants: one value in 2^61. Such a value cannot be searched for, since the hash is keyed.

use std::sync::Arc;

use hashbrown::HashTable;

use super::Term;
use super::index::{More, Number};
use crate::tenant_key::TenantHash;

/// Tenants by their hash. Clones share what does not change: a change copies one part in 256.
#[derive(Clone, Debug)]
pub(super) struct PackedTable {
    parts: Arc<[Shard; PARTS]>,
}

/// The parts of a table: a power of two.
const PARTS: usize = 256;

/// The tenants of one bucket.
const SLOTS: usize = 4;

/// The slots that may be in use, in percent. A part that needs more is rebuilt with [`LOAD_MIN`].
const LOAD_MAX: usize = 80;

/// The slots of a part just built that are in use, in percent.
const LOAD_MIN: usize = 64;

/// A tenant of a quota store, with plans and limits by number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredTenant<'a> {
    pub(crate) epoch: u32,
    /// True if the store does not have the tenant, and only knows that its usage was reset.
    pub(crate) is_trace: bool,
    /// Its plan, if it is on one for ever.
    pub(super) plan: Option<Number>,
    /// Its only limit, if it has that one for ever.
    pub(super) limit: Option<Number>,
    pub(super) more: Option<&'a Arc<More>>,
}

impl StoredTenant<'_> {
    /// Returns true if it has a plan or limits, now or at another time.
    #[inline]
    const fn has_quotas(&self) -> bool {
        self.plan.is_some() || self.limit.is_some() || self.more.is_some()
    }

    /// The numbers of its plans, each with its time.
    pub(super) fn plans(&self) -> impl Iterator<Item = (Term, Number)> {
        let more = self.more.map(|more| &*more.plans).unwrap_or_default();
        let more = more.iter().map(|plan| (plan.term, plan.name));
        let lasting = self.plan.map(|name| (Term::ALWAYS, name));
        lasting.into_iter().chain(more)
    }

    /// The numbers of its limits, each with its time.
    pub(super) fn limits(&self) -> impl Iterator<Item = (Term, Number)> {
        let more = self.more.map(|more| &*more.limits).unwrap_or_default();
        let more = more.iter().map(|own| (own.term, own.limit));
        let lasting = self.limit.map(|limit| (Term::ALWAYS, limit));
        lasting.into_iter().chain(more)
    }

    #[inline]
    pub(crate) fn has_limits(&self) -> bool {
        self.limit.is_some() || self.more.is_some_and(|more| !more.limits.is_empty())
    }
}

impl Default for PackedTable {
    fn default() -> Self {
        Self {
            parts: Arc::new(std::array::from_fn(|_| Shard::default())),
        }
    }
}

impl PackedTable {
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.rest.tenants).sum()
    }

    #[inline]
    pub(super) fn get(&self, hash: TenantHash) -> Option<StoredTenant<'_>> {
        self.parts[part_of(hash)].get(hash)
    }

    pub(super) fn put(&mut self, hash: TenantHash, tenant: StoredTenant<'_>) {
        self.part_mut(hash).put(hash, tenant);
    }

    pub(super) fn remove(&mut self, hash: TenantHash) {
        if self.parts[part_of(hash)].find(hash).is_some() {
            self.part_mut(hash).remove(hash);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (TenantHash, StoredTenant<'_>)> {
        self.parts.iter().flat_map(Shard::iter)
    }

    fn part_mut(&mut self, hash: TenantHash) -> &mut Shard {
        &mut Arc::make_mut(&mut self.parts)[part_of(hash)]
    }
}

/// The part of a tenant: by the low bits, where buckets go by the high ones.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "only the low bits count")]
const fn part_of(hash: TenantHash) -> usize {
    hash.halves().1 as usize % PARTS
}

/// A part of the tenants.
#[derive(Clone, Debug, Default)]
struct Shard {
    buckets: Arc<[Bucket]>,
    rest: Arc<Rest>,
}

/// The data of a part that most look-ups do not read.
#[derive(Clone, Debug, Default)]
struct Rest {
    /// The half of the hash that is not in the slot, for each slot.
    lows: Vec<u64>,
    /// The tenants that a slot has no room for.
    records: HashTable<Record>,
    tenants: usize,
    /// The slots that are not empty, those of removed tenants included.
    used: usize,
}

/// A line of the cache. It is full before the next one holds tenants of it.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket([Slot; SLOTS]);

/// The place of one tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slot {
    /// The high half of the hash.
    check: u64,
    plan: u32,
    limit: u32,
}

/// A tenant that has more than a plan and a limit for ever.
#[derive(Clone, Debug)]
struct Record {
    hash: TenantHash,
    epoch: u32,
    is_trace: bool,
    plan: Option<Number>,
    limit: Option<Number>,
    more: Option<Arc<More>>,
}

impl Slot {
    /// No tenant, now or before: a search ends in a bucket that has one.
    const EMPTY: Self = Self::marked(0, 0);
    /// The place of a tenant that was removed.
    const REMOVED: Self = Self::marked(0, u32::MAX - 1);
    /// The limit of tenants with a record: no limit has this number.
    const RECORD: u32 = u32::MAX;

    const fn marked(check: u64, limit: u32) -> Self {
        Self {
            check,
            plan: 0,
            limit,
        }
    }

    /// The slot of a tenant that fits into one.
    fn fitting(check: u64, tenant: StoredTenant<'_>) -> Option<Self> {
        let slot = Self {
            check,
            plan: tenant.plan.map_or(0, Number::get),
            limit: tenant.limit.map_or(0, Number::get),
        };
        let is_whole = tenant.epoch == 0 && tenant.more.is_none() && tenant.has_quotas();
        (is_whole && slot.limit < u32::MAX - 1).then_some(slot)
    }

    /// The tenant of a slot without a record.
    #[inline]
    fn tenant(self) -> StoredTenant<'static> {
        StoredTenant {
            epoch: 0,
            is_trace: false,
            plan: Number::new(self.plan),
            limit: Number::new(self.limit),
            more: None,
        }
    }

    /// Returns true if there is a tenant with this half of a hash.
    #[inline]
    fn is_of(self, check: u64) -> bool {
        self.check == check && self.is_taken()
    }

    #[inline]
    fn is_taken(self) -> bool {
        self != Self::EMPTY && self != Self::REMOVED
    }
}

impl Bucket {
    /// The first slot with this half of a hash. Branches would guess wrongly which of the four it is.
    #[inline]
    fn position(&self, check: u64) -> Option<usize> {
        let [a, b, c, d] = self.0.map(|slot| u32::from(slot.check == check));
        let same = a | b << 1 | c << 2 | d << 3;
        if same == 0 {
            return None;
        }
        let at = same.trailing_zeros() as usize;
        // Slots without a tenant have the half zero, as one hash in 2^64 has.
        match self.0[at].is_taken() {
            true => Some(at),
            false => self.0.iter().position(|slot| slot.is_of(check)),
        }
    }

    #[inline]
    fn is_end(&self) -> bool {
        self.0.contains(&Slot::EMPTY)
    }
}

impl Shard {
    #[inline]
    fn get(&self, hash: TenantHash) -> Option<StoredTenant<'_>> {
        let check = hash.halves().0;
        for at in self.search(hash) {
            let bucket = &self.buckets[at];
            if let Some(found) = bucket.position(check) {
                return self.read(bucket.0[found], hash);
            }
            if bucket.is_end() {
                return None;
            }
        }
        None
    }

    #[inline]
    fn read(&self, slot: Slot, hash: TenantHash) -> Option<StoredTenant<'_>> {
        if slot.limit == Slot::RECORD {
            return self.rest.record(hash).map(Record::tenant);
        }
        Some(slot.tenant())
    }

    /// The buckets that may have a tenant, in order. The search ends early at a bucket with an empty slot.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the result is below the number of buckets"
    )]
    fn search(&self, hash: TenantHash) -> impl Iterator<Item = usize> + use<> {
        let buckets = self.buckets.len();
        let first = ((u128::from(hash.halves().1) * buckets as u128) >> 64) as usize;
        (first..buckets).chain(0..first)
    }

    /// The places of slots with a tenant of the same half of the hash: the number of the bucket, and of its slot.
    fn same_half(&self, hash: TenantHash) -> Vec<(usize, usize)> {
        let check = hash.halves().0;
        let mut found = Vec::new();
        for bucket in self.search(hash) {
            let slots = &self.buckets[bucket].0;
            let same = (0..SLOTS).filter(|slot| slots[*slot].is_of(check));
            found.extend(same.map(|slot| (bucket, slot)));
            if self.buckets[bucket].is_end() {
                break;
            }
        }
        found
    }

    /// The place of a tenant.
    fn find(&self, hash: TenantHash) -> Option<(usize, usize)> {
        let mut same = self.same_half(hash).into_iter();
        same.find(|place| self.rest.lows[index_of(*place)] == hash.halves().1)
    }

    fn put(&mut self, hash: TenantHash, tenant: StoredTenant<'_>) {
        let (check, low) = hash.halves();
        let known = self.find(hash);
        if known.is_none() && (self.rest.used + 1) * 100 > self.buckets.len() * SLOTS * LOAD_MAX {
            *self = self.rebuilt();
        }
        let twins = self.same_half(hash);
        let place = known.or_else(|| self.free(hash));
        // A part just built has empty slots, so there is a place.
        let Some(place) = place else { return };
        let mut twins = twins.into_iter().filter(|twin| *twin != place).peekable();
        let is_alone = twins.peek().is_none();
        for twin in twins {
            self.give_record(twin);
        }
        let (buckets, rest) = (
            Arc::make_mut(&mut self.buckets),
            Arc::make_mut(&mut self.rest),
        );
        rest.forget(hash);
        let fitting = Slot::fitting(check, tenant).filter(|_| is_alone);
        let slot = fitting.unwrap_or_else(|| {
            rest.keep(Record::of(hash, tenant));
            Slot::marked(check, Slot::RECORD)
        });
        let earlier = std::mem::replace(&mut buckets[place.0].0[place.1], slot);
        rest.lows[index_of(place)] = low;
        rest.tenants += usize::from(known.is_none());
        rest.used += usize::from(earlier == Slot::EMPTY);
    }

    /// The first place for a new tenant.
    fn free(&self, hash: TenantHash) -> Option<(usize, usize)> {
        self.search(hash).find_map(|bucket| {
            let slots = &self.buckets[bucket].0;
            let slot = slots.iter().position(|slot| !slot.is_taken())?;
            Some((bucket, slot))
        })
    }

    /// Moves a tenant to the records, where its whole hash counts.
    fn give_record(&mut self, place: (usize, usize)) {
        let (buckets, rest) = (
            Arc::make_mut(&mut self.buckets),
            Arc::make_mut(&mut self.rest),
        );
        let slot = &mut buckets[place.0].0[place.1];
        if slot.limit != Slot::RECORD {
            let hash = TenantHash::of_halves((slot.check, rest.lows[index_of(place)]));
            rest.keep(Record::of(hash, slot.tenant()));
            *slot = Slot::marked(slot.check, Slot::RECORD);
        }
    }

    fn remove(&mut self, hash: TenantHash) {
        let Some((bucket, slot)) = self.find(hash) else {
            return;
        };
        Arc::make_mut(&mut self.buckets)[bucket].0[slot] = Slot::REMOVED;
        let rest = Arc::make_mut(&mut self.rest);
        rest.forget(hash);
        rest.tenants -= 1;
    }

    /// The same tenants with room for more, and without the slots of those that were removed.
    fn rebuilt(&self) -> Self {
        let slots = (self.rest.tenants + 1) * 100 / LOAD_MIN + 1;
        let buckets = slots.div_ceil(SLOTS);
        let rest = Rest {
            lows: vec![0; buckets * SLOTS],
            ..Rest::default()
        };
        let mut rebuilt = Self {
            buckets: vec![Bucket([Slot::EMPTY; SLOTS]); buckets].into(),
            rest: Arc::new(rest),
        };
        for (hash, tenant) in self.iter() {
            rebuilt.put(hash, tenant);
        }
        rebuilt
    }

    fn iter(&self) -> impl Iterator<Item = (TenantHash, StoredTenant<'_>)> {
        let slots = self.buckets.iter().flat_map(|bucket| &bucket.0);
        let slots = slots.zip(&self.rest.lows);
        let fitting = slots.filter(|(slot, _)| slot.is_taken() && slot.limit != Slot::RECORD);
        let fitting = fitting.map(|(slot, low)| {
            let hash = TenantHash::of_halves((slot.check, *low));
            (hash, slot.tenant())
        });
        let records = self.rest.records.iter();
        fitting.chain(records.map(|record| (record.hash, record.tenant())))
    }
}

/// The number of a slot among those of all buckets.
const fn index_of((bucket, slot): (usize, usize)) -> usize {
    bucket * SLOTS + slot
}

impl Rest {
    fn record(&self, hash: TenantHash) -> Option<&Record> {
        self.records
            .find(place_of(hash), |record| record.hash == hash)
    }

    fn keep(&mut self, record: Record) {
        let rehash = |record: &Record| place_of(record.hash);
        self.records
            .insert_unique(place_of(record.hash), record, rehash);
    }

    fn forget(&mut self, hash: TenantHash) {
        let found = self
            .records
            .find_entry(place_of(hash), |record| record.hash == hash);
        if let Ok(found) = found {
            found.remove();
        }
    }
}

/// The half of a hash by which records are placed. All tenants of a part have the low bits of the other half in common,
/// and so would begin in the same place.
const fn place_of(hash: TenantHash) -> u64 {
    hash.halves().0
}

impl Record {
    fn of(hash: TenantHash, tenant: StoredTenant<'_>) -> Self {
        Self {
            hash,
            epoch: tenant.epoch,
            is_trace: tenant.is_trace,
            plan: tenant.plan,
            limit: tenant.limit,
            more: tenant.more.cloned(),
        }
    }

    fn tenant(&self) -> StoredTenant<'_> {
        StoredTenant {
            epoch: self.epoch,
            is_trace: self.is_trace,
            plan: self.plan,
            limit: self.limit,
            more: self.more.as_ref(),
        }
    }
}
