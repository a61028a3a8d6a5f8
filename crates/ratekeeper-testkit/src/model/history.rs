//! Random histories of one counter that favour edges, where limiters tend to fail.
//!
//! A history is generated as moves relative to the last answer ("one microsecond before
//! retry_after", "one more than remaining") and becomes times and hits when it is played, so that
//! it stays on the edges while it shrinks.

use proptest::prelude::*;
use ratekeeper_core::{Algorithm, Limit, LimitSpec, MAX_COUNT, Micros, Outcome, Timestamp};

/// The time before a step.
#[derive(Clone, Copy, Debug)]
pub enum Gap {
    /// None: the same microsecond as before.
    Still,
    /// A few microseconds.
    Ticks(u64),
    /// Thousandths of the window.
    Part(u64),
    /// Whole windows and an offset: a long idle time.
    Windows(u64, i64),
    /// To the next edge of a window aligned to the epoch, with an offset in microseconds.
    Edge(i64),
    /// To the next edge of a sub-window, with an offset.
    SubEdge(i64),
    /// To the `retry_after` of the last answer, with an offset.
    Retry(i64),
    /// To the `reset_after` of the last answer, with an offset.
    Reset(i64),
    /// To the `full_after` of the last answer, with an offset.
    Full(i64),
}

impl Gap {
    /// Returns the time after this gap: never before `now`.
    #[must_use]
    pub fn after(self, now: Timestamp, limit: &Limit, last: Option<&Outcome>) -> Timestamp {
        let window = limit.window().get();
        let edge = |length: u64, beside: i64| {
            let next = (now.as_micros() / length + 1) * length;
            next.saturating_add_signed(beside)
        };
        let relative = |span: Option<Micros>, beside: i64| {
            let span = span.filter(|span| *span < Micros::MAX).unwrap_or_default();
            (now.as_micros() + span.get()).saturating_add_signed(beside)
        };
        let sub = window.div_ceil(u64::from(limit.sub_windows().max(1)));
        let micros = match self {
            Self::Still => now.as_micros(),
            Self::Ticks(ticks) => now.as_micros() + ticks,
            Self::Part(thousandths) => {
                let part = u128::from(window) * u128::from(thousandths) / 1_000;
                now.as_micros() + u64::try_from(part).unwrap_or(0)
            }
            Self::Windows(windows, beside) => {
                let idle = window.saturating_mul(windows).min(MAX_COUNT);
                (now.as_micros() + idle).saturating_add_signed(beside)
            }
            Self::Edge(beside) => edge(window, beside),
            Self::SubEdge(beside) => edge(sub, beside),
            Self::Retry(beside) => relative(last.map(|last| last.retry_after), beside),
            Self::Reset(beside) => relative(last.map(|last| last.reset_after), beside),
            Self::Full(beside) => relative(last.map(|last| last.full_after), beside),
        };
        Timestamp::from_micros(micros).max(now)
    }

    /// Returns the time the same gap before `now`.
    #[must_use]
    pub fn before(self, now: Timestamp, limit: &Limit, last: Option<&Outcome>) -> Timestamp {
        let gap = self.after(now, limit, last).since(now);
        Timestamp::from_micros(now.as_micros().saturating_sub(gap.get()))
    }
}

/// The hits of a step.
#[derive(Clone, Copy, Debug)]
pub enum Hits {
    /// A fixed number.
    Few(i64),
    /// Thousandths of the capacity.
    Part(i64),
    /// The capacity plus an offset.
    All(i64),
    /// The hits left by the last answer plus an offset.
    Rest(i64),
}

impl Hits {
    /// The number of hits.
    #[must_use]
    pub fn number(self, limit: &Limit, last: Option<&Outcome>) -> i64 {
        let capacity = i64::try_from(limit.capacity()).unwrap_or(i64::MAX);
        match self {
            Self::Few(hits) => hits,
            Self::Part(thousandths) => {
                let part = i128::from(capacity) * i128::from(thousandths) / 1_000;
                i64::try_from(part).unwrap_or(0)
            }
            Self::All(more) => capacity + more,
            Self::Rest(more) => {
                let rest = last.map_or(limit.capacity(), |last| last.remaining);
                i64::try_from(rest).unwrap_or(i64::MAX) + more
            }
        }
    }
}

/// One step of a history.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// The time before the step.
    pub gap: Gap,
    /// The hits.
    pub hits: Hits,
}

/// A limit, and the moves on one of its counters.
#[derive(Clone, Debug)]
pub struct History {
    /// A limit that `Limit::try_new` accepts.
    pub spec: LimitSpec,
    /// The start time.
    pub start: Timestamp,
    /// The moves.
    pub moves: Vec<Move>,
}

impl History {
    /// The limit.
    ///
    /// # Panics
    /// If the spec was changed to an invalid one.
    #[must_use]
    #[allow(clippy::expect_used, reason = "the strategy draws only valid limits")]
    pub fn limit(&self) -> Limit {
        Limit::try_new(self.spec).expect("the strategy draws only valid limits")
    }

    /// Plays the moves: `step` gets the time and the hits, and returns the answer. Ends a few
    /// windows before the end of time (in the year 2255), so that every answer lies before it.
    pub fn play(&self, mut step: impl FnMut(Timestamp, i64) -> Outcome) {
        let limit = self.limit();
        // A bucket may take several windows to fill, and to pay its debt before.
        let missing = limit.capacity() + limit.max_debt().unwrap_or_default();
        let windows = missing / limit.quota().max(1) + 4;
        let longest = limit.window().get().saturating_mul(windows);
        let end = Timestamp::from_micros(MAX_COUNT.saturating_sub(longest));
        let mut now = self.start;
        let mut last = None;
        for Move { gap, hits } in &self.moves {
            now = gap.after(now, &limit, last.as_ref());
            if now > end {
                return;
            }
            let hits = hits.number(&limit, last.as_ref());
            last = Some(step(now, hits));
        }
    }
}

/// Histories of `algorithm` with up to 40 steps, time moving forward, hits of any sign.
pub fn histories(algorithm: Algorithm) -> impl Strategy<Value = History> {
    (
        specs(algorithm),
        starts(),
        prop::collection::vec(moves(), 1..40),
    )
        .prop_map(|(spec, start, moves)| History { spec, start, moves })
}

/// Limits of `algorithm` of any size that `Limit::try_new` accepts.
pub fn specs(algorithm: Algorithm) -> impl Strategy<Value = LimitSpec> {
    let parts = (quotas(), windows(), bursts(), prop::option::of(1..=64_u32));
    parts.prop_filter_map("a limit", move |(quota, window, burst, sub_windows)| {
        let sliding = algorithm == Algorithm::SlidingWindow;
        // Permits are kept in a list, in the model as in core.
        let quota = match algorithm {
            Algorithm::Concurrency => quota % 100,
            _ => quota,
        };
        let spec = LimitSpec {
            burst: burst.filter(|_| algorithm.has_burst()),
            sub_windows: sub_windows.filter(|_| sliding),
            ..LimitSpec::new(algorithm, quota, window)
        };
        Limit::try_new(spec).is_ok().then_some(spec)
    })
}

/// Quotas: mostly small ones, and the extremes.
pub fn quotas() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 1..=12_u64,
        2 => Just(0),
        3 => 13..=10_000_u64,
        1 => Just(300_000),
        1 => Just(u64::from(u32::MAX)),
        1 => Just(MAX_COUNT),
    ]
}

fn bursts() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![
        3 => Just(None),
        3 => (1..=20_u64).prop_map(Some),
        1 => quotas().prop_map(|burst| Some(burst.max(1))),
    ]
}

/// Windows from a millisecond to a year, round and odd.
pub fn windows() -> impl Strategy<Value = Micros> {
    const SECONDS: [u64; 8] = [1, 7, 10, 60, 3_600, 86_400, 30 * 86_400, 365 * 86_400];
    const MILLIS: [u64; 4] = [1, 10, 100, 333];
    prop_oneof![
        6 => prop::sample::select(&SECONDS[..]).prop_map(Micros::from_secs),
        2 => prop::sample::select(&MILLIS[..]).prop_map(Micros::from_millis),
        2 => (1_000..100_000_000_u64).prop_map(Micros::new),
    ]
}

/// Start times: at the epoch, today, and just before a round second.
pub fn starts() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        1 => (0..3_u64).prop_map(Timestamp::from_micros),
        3 => (0..31_536_000_000_000_u64)
            .prop_map(|micros| Timestamp::from_micros(1_700_000_000_000_000 + micros)),
        2 => (0..3_u64).prop_map(|micros| Timestamp::from_micros(1_799_999_999_999_999 + micros)),
    ]
}

/// Gaps between steps.
pub fn gaps() -> impl Strategy<Value = Gap> {
    let beside = -1..=1_i64;
    prop_oneof![
        4 => Just(Gap::Still),
        2 => (1..=3_u64).prop_map(Gap::Ticks),
        4 => (0..=1_100_u64).prop_map(Gap::Part),
        1 => (1..=70_u64, beside.clone()).prop_map(|(windows, beside)| Gap::Windows(windows, beside)),
        2 => beside.clone().prop_map(Gap::Edge),
        3 => beside.clone().prop_map(Gap::SubEdge),
        4 => beside.clone().prop_map(Gap::Retry),
        2 => beside.clone().prop_map(Gap::Reset),
        2 => beside.prop_map(Gap::Full),
    ]
}

/// Hits of one step: takes, peeks and refunds.
pub fn hits() -> impl Strategy<Value = Hits> {
    prop_oneof![
        8 => takes(),
        1 => Just(Hits::Few(0)),
        1 => (-3..=-1_i64).prop_map(Hits::Few),
        1 => (-1_000..=-1_i64).prop_map(Hits::Part),
    ]
}

/// Hits of a step that only takes.
pub fn takes() -> impl Strategy<Value = Hits> {
    prop_oneof![
        4 => Just(Hits::Few(1)),
        2 => (2..=5_i64).prop_map(Hits::Few),
        3 => (1..=1_000_i64).prop_map(Hits::Part),
        2 => (0..=1_i64).prop_map(Hits::All),
        3 => (0..=1_i64).prop_map(Hits::Rest),
        1 => Just(Hits::Few(MAX_COUNT as i64)),
    ]
}

fn moves() -> impl Strategy<Value = Move> {
    (gaps(), hits()).prop_map(|(gap, hits)| Move { gap, hits })
}
