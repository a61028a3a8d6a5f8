//! Groups encoded for the script.

use std::sync::Arc;

use ratekeeper_core::{MAX_COUNT, Micros, Timestamp};
use ratekeeper_store::{Charge, Extra, HeardRegions, PermitAct, Until};

use super::algorithm::ScriptAlgorithm;
use super::group::{Group, GroupStep, Run};
use super::key::KeyName;

/// A group of one plain step.
const LONE: u8 = 1;

/// Any other group.
const STEPS: u8 = 2;

/// The keys and the argument of one call of the script. It can be reused: pushing groups allocates
/// nothing once it has grown.
#[derive(Clone, Default, Debug)]
pub struct Call {
    keys: Vec<u8>,
    /// The end of each key.
    ends: Vec<usize>,
    plan: Vec<u8>,
    /// The generation that the region is in, if it is known.
    generation: u64,
    /// The times at which other regions were heard, if this node is in one, and its time by the same clock.
    heard: Option<(Arc<HeardRegions>, Micros)>,
}

impl Call {
    /// Makes a call without groups.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all groups.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.ends.clear();
        self.plan.clear();
    }

    /// Says which generation the region is in, for all groups that are added from now on. What a region holds of others for a
    /// time counts in the generation in which it was taken; 0 is none.
    pub const fn set_generation(&mut self, generation: u64) {
        self.generation = generation;
    }

    /// Says when other regions were heard, for all groups that are added from now on: of limits that regions count together,
    /// those that are silent are taken to have used their shares. The time is that of the node's boot clock.
    pub fn set_heard(&mut self, heard: Option<(Arc<HeardRegions>, Micros)>) {
        self.heard = heard;
    }

    /// Adds a group, decided after those already here. In a cluster all counters of a call must lie in one slot.
    pub fn push(&mut self, group: &Group, names: &KeyName) {
        if let Some(posted) = &group.posted {
            return self.push_post(group, **posted, names);
        }
        for part in &group.parts {
            names.counter(part.key, &mut self.keys);
            self.ends.push(self.keys.len());
        }
        for part in group.parts.iter().filter(|part| part.is_lent()) {
            part.beside(names, &mut self.keys);
            self.ends.push(self.keys.len());
        }
        let once = group.extra.as_ref().and_then(|extra| extra.once);
        if let (Some(once), Some(key)) = (once, group.first_key()) {
            names.once(key.subject, once.id, &mut self.keys);
            self.ends.push(self.keys.len());
        }
        let forgets = group.extra.as_ref().and_then(|extra| extra.forgets);
        if let (Some(id), Some(key)) = (forgets, group.first_key()) {
            names.once(key.subject, id, &mut self.keys);
            self.ends.push(self.keys.len());
        }
        match group.lone() {
            Some(part) => self.pack_lone(part, &group.runs),
            None => self.pack_steps(group),
        }
    }

    /// The keys, in order: what follows their number in `EVALSHA`.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.ends.len()).map(|index| {
            let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.keys[start..self.ends[index]]
        })
    }

    /// The first argument after the keys. [`Clock::FromCaller`](super::Clock::FromCaller) takes the time as
    /// the second: microseconds since the epoch, in decimal.
    #[must_use]
    pub fn plan(&self) -> &[u8] {
        &self.plan
    }

    /// The generation of the region.
    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Appends a key that `write` writes.
    pub(super) fn key(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.keys);
        self.ends.push(self.keys.len());
    }

    /// Appends bytes to the plan.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.plan.extend_from_slice(bytes);
    }

    /// Appends numbers to the plan, cut to 2^53 - 1.
    #[allow(clippy::cast_precision_loss, reason = "below 2^53")]
    pub(super) fn numbers<const N: usize>(&mut self, numbers: [u64; N]) {
        for number in numbers {
            self.bytes(&(number.min(MAX_COUNT) as f64).to_le_bytes());
        }
    }

    fn pack_lone(&mut self, part: &GroupStep, runs: &[Run]) {
        self.plan
            .extend_from_slice(&[LONE, part.params.algorithm.code()]);
        self.short(runs.len());
        part.params.pack(&mut self.plan);
        self.runs(runs);
    }

    fn pack_steps(&mut self, group: &Group) {
        let mode = u8::from(group.mode.shadow)
            | u8::from(group.mode.idle_quota) << 1
            | u8::from(group.mode.denied) << 2;
        let extra = group.extra.as_deref().copied().unwrap_or_default();
        let extras = u8::from(extra.permit.is_some())
            | u8::from(extra.once.is_some()) << 1
            | u8::from(extra.taken_at.is_some()) << 2
            | u8::from(extra.forgets.is_some()) << 3;
        let plain = u8::from(group.is_plain);
        self.plan.extend_from_slice(&[STEPS, mode, plain, extras]);
        self.short(group.parts.len());
        self.short(group.runs.len());
        self.extra(&extra);
        let mut descriptor = None;
        for part in &group.parts {
            let is_first = descriptor != Some(part.descriptor);
            descriptor = Some(part.descriptor);
            let flags = u8::from(part.charge == Charge::Always)
                | u8::from(part.shadow) << 1
                | u8::from(part.quota_mode) << 2
                | u8::from(is_first) << 3
                | u8::from(part.limit.is_post_paid()) << 4
                | u8::from(part.limit.is_reserving()) << 5;
            self.plan
                .extend_from_slice(&[part.params.algorithm.code(), flags]);
            let params = part.params.in_generation(self.generation);
            params.pack(&mut self.plan);
            self.silent(part);
        }
        self.runs(&group.runs);
    }

    /// Appends the regions that are silent, if `part` is of a limit that regions count together.
    pub(super) fn silent(&mut self, part: &GroupStep) {
        let Some(counted) = part.counted else {
            return;
        };
        let heard = self.heard.as_ref();
        let mut silent = heard.map_or_else(Vec::new, |(heard, now)| {
            heard.silent(&counted, &part.limit, *now)
        });
        // There are 15 others at most.
        silent.truncate(usize::from(u8::MAX));
        self.bytes(&[u8::try_from(silent.len()).unwrap_or(u8::MAX)]);
        for it in silent {
            self.numbers([it.region.get(), it.share]);
        }
    }

    fn extra(&mut self, extra: &Extra) {
        if let Some(permit) = extra.permit {
            self.plan.extend_from_slice(&permit.id.to_be_bytes());
            self.plan.push(match permit.act {
                PermitAct::Acquire => 1,
                PermitAct::Renew => 2,
                PermitAct::Release => 3,
            });
        }
        if let Some(once) = extra.once {
            match once.until {
                Until::At(time) => self.time(time),
                Until::After(span) => self.span(span),
            }
            self.plan.extend_from_slice(&once.content.to_le_bytes());
        }
        if let Some(taken_at) = extra.taken_at {
            self.time(taken_at);
        }
    }

    fn runs(&mut self, runs: &[Run]) {
        for run in runs {
            self.plan.extend_from_slice(&run.requests.to_le_bytes());
            for hits in &run.hits {
                self.hits(*hits);
            }
        }
    }

    /// A number of steps or of runs, which groups keep below 2^16.
    fn short(&mut self, number: usize) {
        let number = u16::try_from(number).unwrap_or(u16::MAX);
        self.plan.extend_from_slice(&number.to_le_bytes());
    }

    #[allow(clippy::cast_precision_loss, reason = "below 2^53")]
    fn time(&mut self, time: Timestamp) {
        let micros = time.as_micros() as f64;
        self.plan.extend_from_slice(&micros.to_le_bytes());
    }

    /// A number below 0, which no time is.
    #[allow(clippy::cast_precision_loss, reason = "below 2^53")]
    fn span(&mut self, span: Micros) {
        let micros = -(span.get() as f64);
        self.plan.extend_from_slice(&micros.to_le_bytes());
    }

    /// Hits above 2^53 - 1, which edges refuse, are cut to that.
    #[allow(clippy::cast_precision_loss, reason = "below 2^53")]
    pub(super) fn hits(&mut self, hits: i64) {
        let most = MAX_COUNT.cast_signed();
        let hits = hits.clamp(-most, most) as f64;
        self.plan.extend_from_slice(&hits.to_le_bytes());
    }
}

impl Group {
    /// The group's only part, if the script may take it the short way.
    pub(super) fn lone(&self) -> Option<&GroupStep> {
        let [part] = self.parts.as_slice() else {
            return None;
        };
        // One request alone cannot be refused because of another.
        let is_leaky = part.params.algorithm == ScriptAlgorithm::LeakyWithin
            && self.requests() == 1
            && self.extra.is_none()
            && self.mode == ratekeeper_core::Mode::default()
            && part.charge == Charge::IfAllowed
            && !part.quota_mode
            && self.runs.iter().all(|run| run.hits[0] > 0);
        ((self.is_plain || is_leaky) && !part.is_lent()).then_some(part)
    }
}
