//! `sliding_window`: the window is cut into k sub-windows of length s; with f the elapsed part
//! of the current one, current + (k - 1) full + oldest * (1 - f) + n <= limit.
//!
//! ```text
//!   k = 4           now
//!      |oldest|full |full |full |curr.|
//!      |   [----------w-----------]   |
//!       1-f of the oldest still counts
//! ```
//!
//! k = 1 is the two-counter window that Cloudflare measured
//! (<https://blog.cloudflare.com/counting-things-a-lot-of-different-things/>: 0.003 % of 400 M
//! benign requests judged wrongly); more sub-windows are Figma's refinement
//! (<https://www.figma.com/blog/an-alternative-approach-to-rate-limiting/>). The hits of the
//! oldest sub-window are taken to be spread evenly over it: in any window the true count differs
//! from the estimate by at most the hits of one sub-window.
//!
//! s = w / k is rounded up to whole microseconds, by at most 0.1 %. The carried part is one
//! expression of doubles, `oldest * (s - elapsed) / s`, rounded up to a whole hit, so that a
//! script which has only doubles gets the same number.
//!
//! State (words): the low 48 bits of word 0 are the index of the current sub-window since the
//! epoch; the other 208 bits are k + 1 lanes, a ring indexed by sub-window, as wide as they can
//! be (16 bits for k = 12). State (heap), for k > 12 or counts too large for a lane: the index,
//! then the k + 1 counts of the same ring.

use crate::limit::{DEFAULT_SUB_WINDOWS, LimitError, MAX_SUB_WINDOWS};
use crate::step::Finding;
use crate::{
    Ask, Heap, Limit, MAX_COUNT, Micros, Outcome, Spill, StateMut, StateRef, Timestamp, Words,
};

const INDEX_BITS: u32 = 48;
const LANE_BITS: u32 = 256 - INDEX_BITS;

/// How a window is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SubWindows {
    count: u32,
    length: u64,
}

impl SubWindows {
    /// Cuts `window` into `count` parts, or the default number of them.
    pub(crate) fn try_new(window: Micros, count: Option<u32>) -> Result<Self, LimitError> {
        let count = count.unwrap_or(DEFAULT_SUB_WINDOWS);
        if !(1..=MAX_SUB_WINDOWS).contains(&count) {
            return Err(LimitError::SubWindowsOutOfRange);
        }
        if !Self::fine_enough(window, count) {
            let most = (1..count)
                .rev()
                .find(|count| Self::fine_enough(window, *count));
            let most = most.unwrap_or(0);
            return Err(LimitError::SubWindowsTooShort {
                sub_windows: count,
                most,
            });
        }
        Ok(Self {
            count,
            length: window.get().div_ceil(u64::from(count)),
        })
    }

    /// Whether rounding a sub-window up to whole microseconds costs at most 0.1 %, and its
    /// index since the epoch fits 48 bits.
    fn fine_enough(window: Micros, count: u32) -> bool {
        let (window, count) = (window.get(), u64::from(count));
        let length = window.div_ceil(count);
        let lost = length * count - window;
        lost.saturating_mul(1_000) <= window && MAX_COUNT / length < 1 << INDEX_BITS
    }

    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// Whether counters start in [`Words`].
    pub(crate) const fn fits_words(&self) -> bool {
        self.count <= DEFAULT_SUB_WINDOWS
    }

    const fn lanes(&self) -> usize {
        self.count as usize + 1
    }

    const fn lane_bits(&self) -> u32 {
        let bits = LANE_BITS / (self.count + 1);
        if bits > 53 { 53 } else { bits }
    }

    /// The lane of the sub-window `index`.
    #[allow(clippy::cast_possible_truncation, reason = "a remainder below 66")]
    const fn lane(&self, index: u64) -> usize {
        (index % self.lanes() as u64) as usize
    }

    const fn start(&self, index: u64) -> Timestamp {
        Timestamp::from_micros(index.saturating_mul(self.length))
    }

    /// The words of a counter as a heap.
    pub(crate) fn spill(&self, words: &Words) -> Heap {
        let lanes = (0..self.lanes()).map(|lane| get(words, self.lane_bits(), lane));
        std::iter::once(words[0] & INDEX_MASK)
            .chain(lanes)
            .collect()
    }

    pub(crate) fn expires_at(&self, state: StateRef<'_>) -> Timestamp {
        let index = index_of(state);
        self.start(index.saturating_add(u64::from(self.count) + 1))
    }
}

const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

/// Lane number `lane`, `bits` wide.
fn get(words: &Words, bits: u32, lane: usize) -> u64 {
    let (word, shift) = place(bits, lane);
    let mask = (1_u64 << bits) - 1;
    let low = words[word] >> shift;
    let high = match words.get(word + 1) {
        Some(next) if shift + bits > 64 => next << (64 - shift),
        _ => 0,
    };
    (low | high) & mask
}

/// Sets lane number `lane`; `value` is below 2^`bits`.
fn set(words: &mut Words, bits: u32, lane: usize, value: u64) {
    let (word, shift) = place(bits, lane);
    let mask = (1_u64 << bits) - 1;
    words[word] = (words[word] & !(mask << shift)) | (value << shift);
    if shift + bits > 64 {
        let used = 64 - shift;
        words[word + 1] = (words[word + 1] & !(mask >> used)) | (value >> used);
    }
}

#[allow(clippy::cast_possible_truncation, reason = "at most 256 bits")]
const fn place(bits: u32, lane: usize) -> (usize, u32) {
    let bit = INDEX_BITS as usize + lane * bits as usize;
    (bit / 64, (bit % 64) as u32)
}

fn index_of(state: StateRef<'_>) -> u64 {
    match state {
        StateRef::Words(words) => words[0] & INDEX_MASK,
        StateRef::Heap(heap) => heap.first().copied().unwrap_or(0),
    }
}

/// A counter read at some time: the time that counts, and what each sub-window holds.
struct Reading<'a> {
    sub: &'a SubWindows,
    state: StateRef<'a>,
    /// The sub-window in which the state was last charged.
    kept: u64,
    /// The current sub-window, never before `kept`.
    index: u64,
    /// Microseconds into the current sub-window.
    elapsed: u64,
}

impl<'a> Reading<'a> {
    fn new(sub: &'a SubWindows, state: StateRef<'a>, now: Timestamp) -> Self {
        let kept = index_of(state);
        let index = now.as_micros() / sub.length;
        let elapsed = now.as_micros() - index * sub.length;
        if index < kept {
            return Self {
                sub,
                state,
                kept,
                index: kept,
                elapsed: 0,
            };
        }
        Self {
            sub,
            state,
            kept,
            index,
            elapsed,
        }
    }

    /// Hits of sub-window `index`; none in those after the last charge or before the ring.
    fn hits(&self, index: u64) -> u64 {
        if index > self.kept || index + (self.sub.lanes() as u64) <= self.kept {
            return 0;
        }
        let lane = self.sub.lane(index);
        match self.state {
            StateRef::Words(words) => get(words, self.sub.lane_bits(), lane),
            StateRef::Heap(heap) => heap.get(lane + 1).copied().unwrap_or(0),
        }
    }

    /// All hits of the ring.
    fn total(&self) -> u64 {
        match self.state {
            StateRef::Words(words) if self.sub.lane_bits() == 16 => sum_of_shorts(words),
            StateRef::Words(words) => {
                let bits = self.sub.lane_bits();
                (0..self.sub.lanes())
                    .map(|lane| get(words, bits, lane))
                    .sum()
            }
            StateRef::Heap(heap) => heap.iter().skip(1).fold(0, |sum, n| sum.saturating_add(*n)),
        }
    }

    /// Hits of the sub-window that is only partly inside the window while `index` is current.
    fn oldest(&self, index: u64) -> u64 {
        index
            .checked_sub(u64::from(self.sub.count))
            .map_or(0, |index| self.hits(index))
    }

    /// Hits of the sub-windows that are wholly inside the window at the current index.
    fn whole(&self) -> u64 {
        let ring = (self.kept + 1).saturating_sub(self.sub.lanes() as u64);
        let whole = (self.index + 1).saturating_sub(u64::from(self.sub.count));
        let left = (ring..whole.min(self.kept + 1)).map(|index| self.hits(index));
        self.total()
            .saturating_sub(left.fold(0, u64::saturating_add))
    }

    /// Hits of the oldest sub-window that still count.
    fn carried(&self) -> u64 {
        carried(self.oldest(self.index), self.elapsed, self.sub.length)
    }

    /// The first time from now on at which at most `most` hits count.
    fn falls_to(&self, most: u64) -> Timestamp {
        let length = self.sub.length;
        let mut whole = self.whole();
        let mut elapsed = self.elapsed;
        for index in self.index..=self.index + u64::from(self.sub.count) + 1 {
            let room = most.checked_sub(whole);
            let fits = room.and_then(|room| first_fit(self.oldest(index), room, elapsed, length));
            if let Some(elapsed) = fits {
                return Timestamp::from_micros(index * length + elapsed);
            }
            whole = whole.saturating_sub(self.oldest(index + 1));
            elapsed = 0;
        }
        self.sub.start(self.index + u64::from(self.sub.count) + 2)
    }
}

/// Thirteen 16-bit lanes behind the 48-bit index, added four at a time.
fn sum_of_shorts(words: &Words) -> u64 {
    const EVEN: u64 = 0x0000_ffff_0000_ffff;
    let pairs = |word: u64| (word & EVEN) + ((word >> 16) & EVEN);
    let sum = pairs(words[1]) + pairs(words[2]) + pairs(words[3]);
    (words[0] >> INDEX_BITS) + (sum & 0xffff_ffff) + (sum >> 32)
}

/// The part of `oldest` hits that still counts `elapsed` into the current sub-window, rounded
/// up. Where the product leaves the integers of a double, the quotient is nudged up so that
/// rounding never admits more.
#[allow(
    clippy::cast_precision_loss,
    reason = "counts and times are below 2^53"
)]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "0 to 2^53"
)]
fn carried(oldest: u64, elapsed: u64, length: u64) -> u64 {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    const NUDGE: f64 = 1.0 + 1.0 / (1_u64 << 50) as f64;
    if oldest == 0 {
        return 0;
    }
    let product = oldest as f64 * (length - elapsed) as f64;
    let part = product / length as f64;
    let part = if product < EXACT { part } else { part * NUDGE };
    (part.ceil() as u64).min(oldest)
}

/// The first moment of a sub-window, from `elapsed` on, at which at most `room` of the
/// `oldest` hits are carried. None if not within it.
fn first_fit(oldest: u64, room: u64, elapsed: u64, length: u64) -> Option<u64> {
    let fits = |elapsed: u64| carried(oldest, elapsed, length) <= room;
    if fits(elapsed) {
        return Some(elapsed);
    }
    // oldest * (length - e) / length <= room solved for e, then settled on the very
    // microsecond at which the doubles agree.
    let keeps = u128::from(room) * u128::from(length) / u128::from(oldest);
    let estimate = length.saturating_sub(u64::try_from(keeps).unwrap_or(length));
    let (mut low, mut high) = (
        estimate.saturating_sub(2).max(elapsed),
        (estimate + 2).min(length),
    );
    if fits(low) {
        low = elapsed;
    }
    while high < length && !fits(high) {
        low = high;
        high = (high + (high - estimate) * 2).min(length);
    }
    if high == length && !fits(length - 1) {
        return None;
    }
    // Not at `low`, but at `high` (or just before the end): the first one in between.
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    (high < length).then_some(high)
}

pub(crate) fn test(
    limit: &Limit,
    sub: &SubWindows,
    state: StateRef<'_>,
    ask: Ask,
    now: Timestamp,
) -> Outcome {
    let reading = Reading::new(sub, state, now);
    // A refund takes from what lies wholly inside the window; see `take`.
    let whole = reading.whole().saturating_sub(ask.refund());
    let used = whole.saturating_add(reading.carried());
    let room = limit.quota().saturating_sub(used);
    let probe = ask.probe();
    let wait = if probe <= room || probe > limit.quota() {
        Micros::ZERO
    } else {
        reading.falls_to(limit.quota() - probe).since(now)
    };
    let window = reading.index / u64::from(sub.count);
    let reset_after = sub
        .start((window + 1).saturating_mul(u64::from(sub.count)))
        .since(now);
    Finding {
        capacity: limit.quota(),
        room,
        reset_after,
        wait,
    }
    .outcome(ask)
}

pub(crate) fn charge(
    sub: &SubWindows,
    state: StateMut<'_>,
    hits: i64,
    now: Timestamp,
) -> Result<(), Spill> {
    if hits == 0 {
        return Ok(());
    }
    match state {
        StateMut::Words(words) => take(
            sub,
            &mut InWords {
                words,
                bits: sub.lane_bits(),
            },
            hits,
            now,
        ),
        StateMut::Heap(heap) => {
            heap.resize(sub.lanes() + 1, 0);
            take(sub, &mut OnHeap(heap), hits, now)
        }
    }
}

/// The ring of counts, wherever it lies.
trait Ring {
    /// The most a lane holds.
    fn most(&self) -> u64;
    fn index(&self) -> u64;
    fn set_index(&mut self, index: u64);
    fn get(&self, lane: usize) -> u64;
    fn set(&mut self, lane: usize, count: u64);
    fn clear(&mut self);
}

struct InWords<'a> {
    words: &'a mut Words,
    bits: u32,
}

impl Ring for InWords<'_> {
    fn most(&self) -> u64 {
        (1 << self.bits) - 1
    }
    fn index(&self) -> u64 {
        self.words[0] & INDEX_MASK
    }
    fn set_index(&mut self, index: u64) {
        self.words[0] = (self.words[0] & !INDEX_MASK) | index;
    }
    fn get(&self, lane: usize) -> u64 {
        get(self.words, self.bits, lane)
    }
    fn set(&mut self, lane: usize, count: u64) {
        set(self.words, self.bits, lane, count);
    }
    fn clear(&mut self) {
        *self.words = [0; 4];
    }
}

/// The index, then the lanes.
struct OnHeap<'a>(&'a mut Heap);

impl Ring for OnHeap<'_> {
    fn most(&self) -> u64 {
        MAX_COUNT
    }
    fn index(&self) -> u64 {
        self.0[0]
    }
    fn set_index(&mut self, index: u64) {
        self.0[0] = index;
    }
    fn get(&self, lane: usize) -> u64 {
        self.0[lane + 1]
    }
    fn set(&mut self, lane: usize, count: u64) {
        self.0[lane + 1] = count;
    }
    fn clear(&mut self) {
        self.0.fill(0);
    }
}

/// Moves the ring on to `now`, then adds `hits` to the current sub-window or takes them back,
/// newest first, from the sub-windows that lie wholly inside the window.
fn take(sub: &SubWindows, ring: &mut impl Ring, hits: i64, now: Timestamp) -> Result<(), Spill> {
    let kept = ring.index();
    let index = (now.as_micros() / sub.length).max(kept);
    let lane = sub.lane(index);
    let count = if index == kept { ring.get(lane) } else { 0 };
    let charged = count.saturating_add_signed(hits).min(MAX_COUNT);
    if charged > ring.most() {
        return Err(Spill);
    }
    if index - kept >= sub.lanes() as u64 {
        ring.clear();
    } else {
        (kept + 1..index).for_each(|skipped| ring.set(sub.lane(skipped), 0));
    }
    ring.set_index(index);
    ring.set(lane, charged);
    let mut refund = hits.min(0).unsigned_abs().saturating_sub(count);
    let whole = (index + 1).saturating_sub(u64::from(sub.count))..index;
    for older in whole.rev().take_while(|_| hits < 0) {
        let count = ring.get(sub.lane(older));
        ring.set(sub.lane(older), count.saturating_sub(refund));
        refund = refund.saturating_sub(count);
    }
    Ok(())
}
