//! The script's states, decoded.

use ratekeeper_core::concurrency::Held;
use ratekeeper_core::formats::MARKED;
use ratekeeper_core::lease::{Escrow, MARK};
use ratekeeper_core::{Heap, Shape, State, Words, equal_count};
use smallvec::SmallVec;

use super::algorithm::ScriptAlgorithm;
use super::group::GroupStep;
use super::item::Item;
use super::params::{CALENDAR_SPAN, CALENDAR_UNIT, WIDTHS, span};

/// A counter without permits.
const NO_PERMIT: Held = Held {
    count: 0,
    this_one: false,
};

/// The state of a counter, in the form that core's steps take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Kept {
    Words(Words),
    Heap(Heap),
    Held(Held),
}

/// A counter: its state, and the leases that are open on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Counter {
    pub(super) kept: Kept,
    pub(super) escrow: Escrow,
    /// The hits that this region may use in the window, if regions lend each other parts of the limit.
    pub(super) share: Option<u64>,
}

impl Counter {
    /// Reads the counter that the script returned, with its leases; [`None`] if it is no such counter.
    pub(super) fn read(part: &GroupStep, has_permit: bool, item: Item<'_>) -> Option<Self> {
        let (escrow, item) = match item {
            Item::Bytes(raw)
                if raw.first() == Some(&MARK) && part.params.algorithm.is_leasable() =>
            {
                let (escrow, state) = Escrow::decode(raw).ok()?;
                (escrow, Item::Bytes(state))
            }
            item => (Escrow::default(), item),
        };
        let kept = Kept::read(part, has_permit, item)?;
        Some(Self {
            kept,
            escrow,
            share: None,
        })
    }
}

impl Kept {
    /// Reads the state that the script returned; [`None`] if it is no such state.
    fn read(part: &GroupStep, has_permit: bool, item: Item<'_>) -> Option<Self> {
        if part.params.algorithm == ScriptAlgorithm::Concurrency {
            let Item::Int(number) = item else {
                return None;
            };
            let number = u64::try_from(number).ok()?;
            return Some(Self::Held(match has_permit {
                true => Held {
                    count: number / 2,
                    this_one: number % 2 == 1,
                },
                false => Held {
                    count: number,
                    this_one: false,
                },
            }));
        }
        match item {
            // A state of which all was given back, and one under leases that never had a hit.
            Item::Null | Item::Bytes([]) => Some(Self::fresh(part)),
            Item::Bytes(raw) => Self::from_bytes(part, raw),
            Item::Int(_) => None,
        }
    }

    fn fresh(part: &GroupStep) -> Self {
        use ScriptAlgorithm as A;
        match part.params.algorithm {
            A::SubWindows | A::SlidingLog => Self::Heap(Heap::new()),
            A::EqualCount | A::LentCount if part.limit.shape() == Shape::Heap => {
                Self::Heap(Heap::new())
            }
            A::FixedWindow | A::CalendarWindow => Self::Words([0; 4]),
            A::EqualCount | A::LentCount => Self::Words([0; 4]),
            A::TokenBucket | A::LentBucket => Self::Words([0; 4]),
            A::LeakyBucket | A::LeakyWithin => Self::Words([0; 4]),
            A::Concurrency => Self::Held(NO_PERMIT),
        }
    }

    /// Decodes `raw` as the script does; [`None`] if it is no state of this format.
    fn from_bytes(part: &GroupStep, raw: &[u8]) -> Option<Self> {
        use ScriptAlgorithm as A;
        match part.params.algorithm {
            A::FixedWindow => {
                let window = part.limit.window().get();
                fixed(raw, span(window), window).map(Self::Words)
            }
            A::CalendarWindow => fixed(raw, CALENDAR_SPAN, CALENDAR_UNIT).map(Self::Words),
            A::SubWindows => ring(raw, u64::from(part.limit.sub_windows())).map(Self::Heap),
            A::TokenBucket | A::LentBucket => token_bucket(raw).map(Self::Words),
            A::LeakyBucket | A::LeakyWithin => leaky_bucket(raw).map(Self::Words),
            A::SlidingLog => log(raw).map(Self::Heap),
            A::EqualCount | A::LentCount => equal_count(raw).map(|state| match state {
                State::Words(words) => Self::Words(words),
                State::Heap(heap) => Self::Heap(heap),
            }),
            A::Concurrency => None,
        }
    }
}

/// `start / unit * span + count`, or the count and the start.
fn fixed(raw: &[u8], span: u64, unit: u64) -> Option<Words> {
    if let Some(word) = number(raw) {
        return Some([word % span, word / span * unit, 0, 0]);
    }
    pair(raw).map(|(count, start)| [count, start, 0, 0])
}

/// One number, or two with a space between them; the second of one alone is 0.
fn pair(raw: &[u8]) -> Option<(u64, u64)> {
    match raw.iter().position(|byte| *byte == b' ') {
        Some(space) => Some((number(&raw[..space])?, number(&raw[space + 1..])?)),
        None => Some((number(raw)?, 0)),
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// `at * 1000 + deficit`, or both big-endian with the time between them up to which the bucket was refilled.
fn token_bucket(raw: &[u8]) -> Option<Words> {
    if *raw.first()? < b'0' {
        let (deficit, since, at) = (raw.get(..7)?, raw.get(7..14)?, raw.get(14..21)?);
        let fraction = fraction(&raw[21..])?;
        return Some([big(deficit), big(since), fraction, big(at)]);
    }
    let (at, deficit) = raw.split_at_checked(raw.len().checked_sub(3)?)?;
    let at = number(at)?;
    Some([number(deficit)?, at, 0, at])
}

/// The next free turn and the time of the last charge, with the fraction of the turn behind them.
fn leaky_bucket(raw: &[u8]) -> Option<Words> {
    raw.first().filter(|first| **first < MARKED)?;
    let (turn, at) = (raw.get(..7)?, raw.get(7..14)?);
    Some([big(turn), fraction(&raw[14..])?, big(at), 0])
}

/// The fraction of an instant, left out where it is 0.
fn fraction(rest: &[u8]) -> Option<u64> {
    match rest.len() {
        0 => Some(0),
        4 => Some(big(rest)),
        _ => None,
    }
}

/// Counts from the newest to the oldest, as the ring of core.
fn ring(raw: &[u8], sub_windows: u64) -> Option<Heap> {
    let (head, counts) = raw.split_at_checked(7)?;
    let width = usize::from(head[0]);
    let is_whole = matches!(width, 1 | 2 | 4 | 7) && counts.len().is_multiple_of(width);
    if !is_whole || counts.is_empty() {
        return None;
    }
    let index = little(&head[1..]);
    let lanes = sub_windows + 1;
    let mut ring = vec![0; usize::try_from(lanes).unwrap_or(0) + 1];
    ring[0] = index;
    for (age, count) in (0..lanes).zip(counts.chunks_exact(width)) {
        let lane = (index + lanes - age) % lanes;
        if let Some(place) = ring.get_mut(usize::try_from(lane).unwrap_or(0) + 1) {
            *place = little(count);
        }
    }
    Some(ring)
}

/// A form, the start of the newest group, its hits and its size, and the distances.
fn equal_count(raw: &[u8]) -> Option<State> {
    let (head, rest) = raw.split_at_checked(7)?;
    let (width, (newest, group), distances) = match head[0] {
        width @ 0..=3 => (width, (1, 1), rest),
        4 => (
            2,
            (little(rest.get(..2)?), little(rest.get(2..4)?)),
            &rest[4..],
        ),
        5 => (
            2,
            (little(rest.get(..7)?), little(rest.get(7..14)?)),
            &rest[14..],
        ),
        _ => return None,
    };
    Some(
        equal_count::Parts {
            base: little(&head[1..]),
            newest,
            group,
            bits: WIDTHS[usize::from(width)],
            distances: match width {
                0 => whole(distances, 3)?.map(little).collect(),
                1 => whole(distances, 2)?.map(little).collect(),
                2 => escaped(distances)?,
                _ => distances.iter().map(|byte| u64::from(*byte)).collect(),
            },
        }
        .pack(),
    )
}

/// Parts of so many bytes; [`None`] if the last one is cut.
fn whole(bytes: &[u8], size: usize) -> Option<std::slice::ChunksExact<'_, u8>> {
    let chunks = bytes.chunks_exact(size);
    chunks.remainder().is_empty().then_some(chunks)
}

/// Distances: one byte below 240, else two that hold the excess over 240, in multiples of 256 and the remainder.
fn escaped(mut bytes: &[u8]) -> Option<SmallVec<[u64; 22]>> {
    let mut distances = SmallVec::new();
    loop {
        match bytes {
            [high @ 240..=u8::MAX, low, rest @ ..] => {
                distances.push((u64::from(*high) - 240) * 256 + 240 + u64::from(*low));
                bytes = rest;
            }
            [byte @ 0..240, rest @ ..] => {
                distances.push(u64::from(*byte));
                bytes = rest;
            }
            [] => return Some(distances),
            [_] => return None,
        }
    }
}

/// The sum, then moments and their hits.
fn log(raw: &[u8]) -> Option<Heap> {
    let (sum, entries) = raw.split_at_checked(2)?;
    let entries = whole(entries, 9).filter(|_| sum[0] < MARKED)?;
    if entries.len() == 0 {
        return Some(Heap::new());
    }
    let pairs = entries.flat_map(|entry| [little(&entry[..7]), little(&entry[7..])]);
    Some([big(sum), 2].into_iter().chain(pairs).collect())
}

/// An integer of up to 8 bytes, little-endian.
fn little(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, with_byte)
}

/// An integer of up to 8 bytes, big-endian.
fn big(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, with_byte)
}

fn with_byte(number: u64, byte: &u8) -> u64 {
    number << 8 | u64::from(*byte)
}
