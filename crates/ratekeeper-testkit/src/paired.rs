//! Compares two speeds on a machine whose own speed drifts.
//!
//! Absolute times on shared processors drift by a quarter from minute to minute; the ratio of two
//! short runs, one right after the other, does not. So runs alternate, and the result is the median
//! of their ratios with its 95 % confidence interval.

use std::convert::Infallible;
use std::fmt;
use std::sync::Barrier;

/// The interval may be this share of the ratio wide on each side.
const WIDTH: f64 = 0.03;

/// The number of pairs to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// The minimum, at least 1.
    pub pairs_min: usize,
    /// The maximum, however wide the interval still is.
    pub pairs_max: usize,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            pairs_min: 15,
            pairs_max: 61,
        }
    }
}

/// The comparison of two measurements.
#[derive(Clone, Copy, Debug)]
pub struct Paired {
    /// Median of ours, in the unit that the runs return.
    pub ours: f64,
    /// Median of theirs.
    pub theirs: f64,
    /// Median of ours / theirs over pairs.
    pub ratio: f64,
    /// 95 % confidence interval of the ratio's median.
    pub interval: (f64, f64),
    /// Pairs that were run.
    pub pairs: usize,
}

impl Paired {
    /// Evaluates pairs of runs, each ours and theirs; at least one.
    ///
    /// # Panics
    /// If `runs` is empty.
    #[must_use]
    pub fn of(runs: &[(f64, f64)]) -> Self {
        let (ratio, interval) = median_within(runs, |ours, theirs| ours / theirs);
        Self {
            ours: median(runs.iter().map(|(ours, _)| *ours)),
            theirs: median(runs.iter().map(|(_, theirs)| *theirs)),
            ratio,
            interval,
            pairs: runs.len(),
        }
    }

    /// Returns true if the ratio is known within 3 %.
    #[must_use]
    pub fn is_narrow(&self) -> bool {
        let (low, high) = self.interval;
        high - self.ratio <= WIDTH * self.ratio && self.ratio - low <= WIDTH * self.ratio
    }
}

/// Runs both alternately, each pair in the reverse order of the last, until the ratio is known
/// within 3 % or the maximum number of pairs is reached. Each run returns its own measurement.
pub fn paired(mut ours: impl FnMut() -> f64, mut theirs: impl FnMut() -> f64) -> Paired {
    let patience = Patience::default();
    let Ok(result) = try_paired::<Infallible>(patience, || Ok(ours()), || Ok(theirs()));
    result
}

/// As [`paired`], for runs that can fail, and with its own number of pairs.
///
/// # Errors
/// The first failure of a run.
pub fn try_paired<E>(
    patience: Patience,
    mut ours: impl FnMut() -> Result<f64, E>,
    mut theirs: impl FnMut() -> Result<f64, E>,
) -> Result<Paired, E> {
    // The first run of each warms caches and is not counted.
    ours()?;
    theirs()?;
    let mut runs: Vec<(f64, f64)> = Vec::new();
    loop {
        runs.push(if runs.len().is_multiple_of(2) {
            (ours()?, theirs()?)
        } else {
            let theirs = theirs()?;
            (ours()?, theirs)
        });
        if runs.len() < patience.pairs_min {
            continue;
        }
        let result = Paired::of(&runs);
        if result.is_narrow() || runs.len() >= patience.pairs_max {
            return Ok(result);
        }
    }
}

/// The median of ours - theirs over pairs, with its 95 % confidence interval.
///
/// # Panics
/// If `runs` is empty.
#[must_use]
pub fn difference(runs: &[(f64, f64)]) -> (f64, (f64, f64)) {
    median_within(runs, |ours, theirs| ours - theirs)
}

fn median_within(runs: &[(f64, f64)], of: impl Fn(f64, f64) -> f64) -> (f64, (f64, f64)) {
    let values = sorted(runs.iter().map(|(ours, theirs)| of(*ours, *theirs)));
    let count = values.len();
    let spread = (1.96 * (count as f64).sqrt() / 2.0).ceil() as usize;
    // Order statistics around the middle: binomial, by its normal approximation.
    let low = (count / 2).saturating_sub(spread);
    let high = (count / 2 + spread).min(count - 1);
    (values[count / 2], (values[low], values[high]))
}

/// The median of some values, the upper of two; not a number if there are none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    quantile(values, 0.5)
}

/// The value that such a share of the values is below; not a number if there are none.
pub fn quantile(values: impl IntoIterator<Item = f64>, share: f64) -> f64 {
    let values = sorted(values);
    let place = (values.len() as f64 * share) as usize;
    let last = values.len().saturating_sub(1);
    values.get(place.min(last)).copied().unwrap_or(f64::NAN)
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The mean of what a run measures on so many threads, which all begin at once; it is told the number of its thread.
///
/// # Panics
/// If a run does.
pub fn on_threads(threads: usize, run: impl Fn(usize) -> f64 + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let each = |thread| {
        barrier.wait();
        run(thread)
    };
    std::thread::scope(|scope| {
        let each = &each;
        let runs: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || each(thread)))
            .collect();
        let times = runs.into_iter().map(|run| run.join().expect("a run"));
        times.sum::<f64>() / threads as f64
    })
}

impl fmt::Display for Paired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            ours,
            theirs,
            ratio,
            interval: (low, high),
            pairs,
        } = self;
        write!(
            f,
            "{ours:8.1} {theirs:8.1}   {ratio:5.3} [{low:.3}, {high:.3}] n={pairs}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_survives_a_drifting_machine() {
        let mut drift = 1.0;
        let mut speed = move |base: f64| {
            drift *= 1.01;
            base * drift
        };
        let speed = std::cell::RefCell::new(&mut speed);
        let result = paired(|| speed.borrow_mut()(50.0), || speed.borrow_mut()(100.0));
        assert!((result.ratio - 0.5).abs() < 0.02, "{result}");
        assert!(result.interval.0 <= result.ratio && result.ratio <= result.interval.1);
        assert!(result.pairs >= Patience::default().pairs_min && result.is_narrow());
    }

    #[test]
    fn patience_ends_and_failures_are_told() {
        // A single pair would always be narrow enough.
        let patience = Patience {
            pairs_min: 2,
            pairs_max: 4,
        };
        let mut wild = [1.0, 9.0, 1.0, 5.0, 2.0, 7.0].into_iter().cycle();
        let mut next = || Ok::<_, ()>(wild.next().unwrap_or(1.0));
        let result = try_paired(patience, &mut next, || Ok(1.0)).expect("no run fails");
        assert_eq!(result.pairs, 4);
        assert!(!result.is_narrow(), "{result}");
        assert_eq!(
            try_paired(patience, || Ok(1.0), || Err("no")).err(),
            Some("no")
        );
        assert_eq!(difference(&[(3.0, 1.0), (5.0, 2.0), (9.0, 3.0)]).0, 3.0);
    }
}
