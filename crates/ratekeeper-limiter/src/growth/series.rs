//! The last hour of one series, and its judgement.

/// The ticks of a minute.
const MINUTE: u64 = 6;

/// The ticks that are kept one by one: six minutes.
const TICKS: usize = 36;

/// The minutes that are kept: an hour, before the longest span and the minute in which it begins.
const MINUTES: usize = 66;

/// The minutes of history that a span is held against.
const HISTORY: u64 = 60;

/// The least deviation of square roots: that of requests in groups of four.
const DEVIATION_MIN: f64 = 1.0;

/// The share of its requests that a series has left after as many ticks as it has: half of them after half an hour.
const DECAY: f64 = 0.996_156_5;

/// A span of time that is held against those before it. The numbers were chosen so that a day of real logs has no false
/// report for hundreds of series, and steps are found (see the tests).
struct Span {
    ticks: u64,
    /// The least requests.
    least: u64,
    /// The least deviation from the median, in deviations.
    deviations: f64,
    /// The least multiple of the median.
    times: f64,
    /// The parts, each of which has to have `each` times its share of the median.
    parts: u64,
    each: f64,
}

const SPANS: [Span; 2] = [
    Span {
        ticks: MINUTE,
        least: 40,
        deviations: 5.0,
        times: 2.2,
        parts: 2,
        each: 1.5,
    },
    Span {
        ticks: 5 * MINUTE,
        least: 120,
        deviations: 6.5,
        times: 2.0,
        parts: 5,
        each: 1.3,
    },
];

/// The least multiple of the largest count in the history.
const ABOVE_LARGEST: f64 = 1.25;

/// The requests of the last hour by minute, and of the last minutes by tick.
#[derive(Debug)]
pub(super) struct Series {
    ticks: [u32; TICKS],
    minutes: [u32; MINUTES],
    first: u64,
    last: u64,
    /// Requests of late, decaying.
    recent: f64,
}

/// A series that has grown.
#[derive(Debug)]
pub(super) struct Judged {
    /// The length of the span that tells, in ticks.
    pub(super) ticks: u64,
    pub(super) usual_per_minute: f64,
}

/// A count in calculations.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
pub(super) fn float(count: u64) -> f64 {
    count as f64
}

fn place(number: u64, places: usize) -> usize {
    usize::try_from(number % places as u64).unwrap_or(0)
}

impl Series {
    pub(super) const fn new(tick: u64) -> Self {
        Self {
            ticks: [0; TICKS],
            minutes: [0; MINUTES],
            first: tick,
            last: tick,
            recent: 0.0,
        }
    }

    /// Adds the requests of a tick, which is not before the last one.
    pub(super) fn add(&mut self, tick: u64, count: u64) {
        self.recent = self.recent(tick) + float(count);
        let passed = tick.saturating_sub(self.last).min(TICKS as u64);
        (tick + 1 - passed..=tick).for_each(|tick| self.ticks[place(tick, TICKS)] = 0);
        let minutes = (tick / MINUTE).saturating_sub(self.last / MINUTE);
        let minute = tick / MINUTE;
        (minute + 1 - minutes.min(MINUTES as u64)..=minute)
            .for_each(|minute| self.minutes[place(minute, MINUTES)] = 0);
        self.last = self.last.max(tick);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        for counted in [
            &mut self.ticks[place(tick, TICKS)],
            &mut self.minutes[place(minute, MINUTES)],
        ] {
            *counted = counted.saturating_add(count);
        }
    }

    /// The requests of late: each counts half after half an hour.
    pub(super) fn recent(&self, tick: u64) -> f64 {
        let passed = i32::try_from(tick.saturating_sub(self.last)).unwrap_or(i32::MAX);
        self.recent * DECAY.powi(passed)
    }

    /// The requests of the last minute.
    pub(super) fn last_minute(&self) -> u64 {
        self.sum(self.last, MINUTE)
    }

    /// The requests of so many ticks up to `last`, one of the last [`TICKS`].
    fn sum(&self, last: u64, ticks: u64) -> u64 {
        let ticks = (last + 1).saturating_sub(ticks)..=last;
        ticks
            .map(|it| u64::from(self.ticks[place(it, TICKS)]))
            .sum()
    }

    /// Holds the time up to `tick`, the last one that was added, against the hour before it. `every` is the number of
    /// requests that one counted request stands for.
    pub(super) fn judge(&self, tick: u64, every: u32) -> Option<Judged> {
        SPANS
            .iter()
            .find_map(|span| self.judge_span(span, tick, every))
    }

    fn judge_span(&self, span: &Span, tick: u64, every: u32) -> Option<Judged> {
        let requests = self.sum(tick, span.ticks);
        let start = (tick + 1).saturating_sub(span.ticks);
        if requests < span.least * u64::from(every) || start < self.first + HISTORY * MINUTE {
            return None;
        }
        let minutes = span.ticks / MINUTE;
        // The minutes that were over when the span began.
        let history = (1..=HISTORY / minutes).map(|number| {
            let first = (start / MINUTE).saturating_sub(number * minutes);
            let counts = (first..first + minutes).map(|it| self.minutes[place(it, MINUTES)]);
            counts.map(u64::from).sum::<u64>()
        });
        let mut history: Vec<f64> = history.map(float).collect();
        history.sort_unstable_by(f64::total_cmp);
        let requests = float(requests);
        let usual = median(&history);
        let largest = history.last().copied().unwrap_or_default();
        if usual < 1.0 || requests < span.times * usual || requests < ABOVE_LARGEST * largest {
            return None;
        }
        let share = span.each * usual / float(span.parts);
        let length = span.ticks / span.parts;
        let mut parts = (0..span.parts).map(|part| self.sum(tick - part * length, length));
        if parts.any(|part| float(part) < share) {
            return None;
        }
        let deviations = deviations(requests, &history, every);
        (deviations >= span.deviations).then_some(Judged {
            ticks: span.ticks,
            usual_per_minute: usual / float(minutes),
        })
    }
}

/// The distance of `requests` from the median of `history`, which is sorted, in robust deviations of square roots.
fn deviations(requests: f64, history: &[f64], every: u32) -> f64 {
    let roots: Vec<f64> = history.iter().map(|count| count.sqrt()).collect();
    let middle = median(&roots);
    let mut apart: Vec<f64> = roots.iter().map(|root| (root - middle).abs()).collect();
    apart.sort_unstable_by(f64::total_cmp);
    // Counting one request in several adds the deviation of that choice.
    let sampling = f64::from(every.saturating_sub(1)) / 4.0;
    let least = (DEVIATION_MIN * DEVIATION_MIN + sampling).sqrt();
    (requests.sqrt() - middle) / (1.4826 * median(&apart)).max(least)
}

/// The median of sorted numbers; 0 of none.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match (sorted.get(middle.wrapping_sub(1)), sorted.get(middle)) {
        (Some(lower), Some(upper)) if sorted.len().is_multiple_of(2) => {
            f64::midpoint(*lower, *upper)
        }
        (_, Some(middle)) => *middle,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An hour and a half of so many requests each tick, and the ticks of its end.
    fn steady(each: u64) -> (Series, u64) {
        let end = 9 * HISTORY;
        let mut series = Series::new(0);
        (0..end).for_each(|tick| series.add(tick, each));
        (series, end)
    }

    /// Returns true if a minute of so many requests is unusual.
    fn is_told((mut series, end): (Series, u64), requests: u64, every: u32) -> bool {
        for number in 0..MINUTE {
            let share = requests / MINUTE + u64::from(number < requests % MINUTE);
            series.add(end + number, share);
        }
        series.judge(end + MINUTE - 1, every).is_some()
    }

    #[test]
    fn requests_of_late_count_half_after_half_an_hour() {
        let mut series = Series::new(0);
        series.add(0, 100);
        for (tick, left) in [(0, 100.0), (180, 50.0), (360, 25.0)] {
            assert!((series.recent(tick) - left).abs() < 0.01, "{tick}");
        }
        series.add(180, 50);
        assert!((series.recent(180) - 100.0).abs() < 0.01);
    }

    #[test]
    fn an_hour_of_history_is_enough_and_a_tick_less_is_not() {
        for (before, is_enough) in [(359, false), (360, true)] {
            let mut series = Series::new(12);
            (12..12 + before).for_each(|tick| series.add(tick, 20));
            let told = is_told((series, 12 + before), 1_200, 1);
            assert_eq!(told, is_enough, "{before}");
        }
    }

    #[test]
    fn what_is_unusual_has_enough_requests_and_is_above_the_largest() {
        // 48 a minute are usual.
        for (requests, every, expected) in [
            (200, 1, true),
            (100, 1, false),
            // Each counted one stands for 16: 40 have to be counted.
            (639, 16, false),
            (640, 16, true),
        ] {
            let told = is_told(steady(8), requests, every);
            assert_eq!(told, expected, "{requests} {every}");
        }
        // Of so many, twice as many are not far from the usual.
        assert!(!is_told(steady(200), 2_000, 1));
        // A minute of 400 in the last hour.
        for (requests, expected) in [(450, false), (499, false), (500, true)] {
            let (mut series, end) = steady(8);
            series.minutes[place(end / MINUTE - 30, MINUTES)] = 400;
            assert_eq!(is_told((series, end), requests, 1), expected, "{requests}");
        }
    }

    #[test]
    fn a_burst_of_seconds_is_not_told() {
        for burst in [0..3, 3..6] {
            let (mut series, end) = steady(8);
            (0..MINUTE).for_each(|number| {
                let requests = if burst.contains(&number) { 100 } else { 0 };
                series.add(end + number, requests);
            });
            assert!(series.judge(end + MINUTE - 1, 1).is_none(), "{burst:?}");
        }
    }

    #[test]
    fn deviations_are_of_square_roots_and_of_at_least_groups_of_four() {
        let about = |deviations: f64, expected: f64| (deviations - expected).abs() < 1e-9;
        assert!(about(deviations(400.0, &[100.0; 3], 1), 10.0));
        // Each of 16: variance 1, and 15 quarters.
        let expected = 10.0 / 4.75_f64.sqrt();
        assert!(about(deviations(400.0, &[100.0; 3], 16), expected));
        let history = [0.0, 100.0, 400.0];
        assert!(about(deviations(900.0, &history, 1), 20.0 / 14.826));
    }

    #[test]
    fn the_median_is_in_the_middle() {
        for (sorted, expected) in [
            (&[][..], 0.0),
            (&[3.0], 3.0),
            (&[1.0, 2.0], 1.5),
            (&[1.0, 2.0, 9.0], 2.0),
        ] {
            assert_eq!(median(sorted), expected, "{sorted:?}");
        }
    }
}
