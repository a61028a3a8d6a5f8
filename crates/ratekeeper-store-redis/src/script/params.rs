//! A limit, encoded for the script.

use ratekeeper_core::equal_count::EXACT_UP_TO;
use ratekeeper_core::region::loans::LoanKind;
use ratekeeper_core::{Arithmetic, Bounds, Emission, Limit, MAX_COUNT, Whole};

use super::algorithm::ScriptAlgorithm;

/// A limit's algorithm, and its five parameters; each script file says which.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Params {
    pub(super) algorithm: ScriptAlgorithm,
    pub(super) numbers: [u64; 5],
}

/// The width in bits of a distance, by its number in the script.
pub(super) const WIDTHS: [u32; 4] = [22, 16, 11, 8];

fn equal_count_width(bits: u32) -> u64 {
    (0_u64..)
        .zip(WIDTHS)
        .find(|(_, width)| *width == bits)
        .map_or(0, |(number, _)| number)
}

/// Microseconds of a minute: calendars' edges are counted in them.
pub(super) const CALENDAR_UNIT: u64 = 60_000_000;

/// The weight of one unit of time in the state of a calendar window.
pub(super) const CALENDAR_SPAN: u64 = 1 << 27;

/// The latest time of a clock, in microseconds (the year 2112): a later window start is written
/// beside the count instead of combined with it.
const LATEST: u64 = 1 << 52;

/// The weight of one window in the state of a fixed window: the largest that leaves room for every
/// window there will be.
pub(super) const fn span(window: u64) -> u64 {
    MAX_COUNT / (LATEST / window + 1)
}

impl Params {
    pub(super) fn new(limit: &Limit, calendar: Option<Bounds>) -> Self {
        let (quota, window) = (limit.quota(), limit.window().get());
        let (algorithm, numbers) = match (limit.arithmetic(), calendar) {
            (Arithmetic::FixedWindow, None) => {
                let numbers = [quota, window, window, span(window), 0];
                (ScriptAlgorithm::FixedWindow, numbers)
            }
            (Arithmetic::FixedWindow, Some(bounds)) => {
                let edges = [bounds.start, bounds.end, bounds.next_end].map(|t| t.as_micros());
                let numbers = [quota, window, edges[0], edges[1], edges[2]];
                (ScriptAlgorithm::CalendarWindow, numbers)
            }
            (Arithmetic::EqualCount(groups), _) => {
                let tick = groups.tick.get();
                let width = equal_count_width(groups.bits);
                let numbers = [groups.most, window, tick, width, groups.size];
                (ScriptAlgorithm::EqualCount, numbers)
            }
            (Arithmetic::SubWindows(length), _) => {
                let count = u64::from(limit.sub_windows());
                let numbers = [quota, length.get(), count, window, 0];
                (ScriptAlgorithm::SubWindows, numbers)
            }
            (Arithmetic::TokenBucket(rate), _) => {
                let numbers = [rate.burst, rate.interval, scale(rate), rate.burst, 0];
                (ScriptAlgorithm::TokenBucket, numbers)
            }
            (Arithmetic::Indebted(rate, most), _) => {
                let numbers = [rate.burst, rate.interval, scale(rate), most, 0];
                (ScriptAlgorithm::TokenBucket, numbers)
            }
            (Arithmetic::LeakyBucket(rate), _) => (ScriptAlgorithm::LeakyBucket, leaky(rate, 0)),
            (Arithmetic::LeakyWithin(rate, most), _) => {
                let longest = most.get() << rate.bits;
                (ScriptAlgorithm::LeakyWithin, leaky(rate, longest))
            }
            (Arithmetic::SlidingLog, _) => (ScriptAlgorithm::SlidingLog, [quota, window, 0, 0, 0]),
            (Arithmetic::Concurrency, _) => {
                (ScriptAlgorithm::Concurrency, [quota, window, 0, 0, 0])
            }
        };
        Self { algorithm, numbers }
    }

    /// The same for a counter of `limit`, which this region owns of the `whole` one, where regions lend each other parts.
    /// The last number of what they hold for a time is the generation of the region.
    pub(super) fn lent(mut self, limit: &Limit, whole: Whole) -> Self {
        let (owns, window) = (limit.quota(), limit.window().get());
        match LoanKind::of(limit) {
            Some(LoanKind::Windows) => self.numbers[4] = 1,
            Some(LoanKind::Log) => {
                self.algorithm = ScriptAlgorithm::LentCount;
                self.numbers = [owns, window, coarse_tick(limit, whole), 0, 0];
            }
            Some(LoanKind::Bucket) => {
                self.algorithm = ScriptAlgorithm::LentBucket;
                self.numbers = [owns, window, whole.quota, whole.burst, 0];
            }
            None => {}
        }
        self
    }

    /// The same for a counter that regions count together.
    pub(super) const fn counted(mut self) -> Self {
        self.numbers[4] = 2;
        self
    }

    /// The same without what other regions have to do with it.
    pub(super) const fn of_this_region(mut self) -> Self {
        if matches!(self.algorithm, ScriptAlgorithm::FixedWindow) {
            self.numbers[4] = 0;
        }
        self
    }

    /// The same in `generation` of the region.
    pub(super) const fn in_generation(mut self, generation: u64) -> Self {
        if self.algorithm.is_timed() {
            self.numbers[4] = generation;
        }
        self
    }

    /// Appends the parameters as doubles, which hold them exactly.
    #[allow(clippy::cast_precision_loss, reason = "all are below 2^53")]
    pub(super) fn pack(&self, out: &mut Vec<u8>) {
        for number in self.numbers {
            out.extend_from_slice(&(number as f64).to_le_bytes());
        }
    }
}

/// The tick of a sliding window whose groups are of several hits, which are those of most shares.
fn coarse_tick(limit: &Limit, whole: Whole) -> u64 {
    if let Arithmetic::EqualCount(groups) = limit.holding(EXACT_UP_TO + 1, whole).arithmetic() {
        groups.tick.get()
    } else {
        0
    }
}

const fn scale(rate: Emission) -> u64 {
    1 << rate.bits
}

const fn leaky(rate: Emission, most: u64) -> [u64; 5] {
    let full = rate.burst * rate.interval;
    [rate.interval, full, scale(rate), most, 0]
}
