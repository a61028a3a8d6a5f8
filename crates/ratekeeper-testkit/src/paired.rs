//! Comparing two speeds on a machine whose own speed wanders.
//!
//! Absolute times on shared processors drift by a quarter from minute to minute; the ratio of two
//! short runs, one right after the other, does not. So runs alternate, and the median of their
//! ratios is reported with the interval that holds it with 95 % confidence.

use std::fmt;

/// Pairs that are run at least.
const PAIRS_MIN: usize = 15;

/// Pairs that are run at most, however wide the interval still is.
const PAIRS_MAX: usize = 61;

/// The interval is narrow enough within this share of the ratio.
const WIDTH: f64 = 0.03;

/// How one thing compares with another.
#[derive(Clone, Copy, Debug)]
pub struct Paired {
    /// Median of ours, in whatever unit both runs return.
    pub ours: f64,
    /// Median of theirs.
    pub theirs: f64,
    /// Median of ours / theirs, pair by pair.
    pub ratio: f64,
    /// Bounds of the ratio's median, 95 % confidence.
    pub interval: (f64, f64),
    /// Pairs that were run.
    pub pairs: usize,
}

/// Runs both in turn, each pair in the other order than the last, until the ratio is known
/// within 3 % or the patience of the most pairs is over. Each run returns its own measure.
pub fn paired(mut ours: impl FnMut() -> f64, mut theirs: impl FnMut() -> f64) -> Paired {
    // The first run of each warms caches and is not counted.
    ours();
    theirs();
    let mut runs: Vec<(f64, f64)> = Vec::new();
    loop {
        runs.push(if runs.len().is_multiple_of(2) {
            (ours(), theirs())
        } else {
            let theirs = theirs();
            (ours(), theirs)
        });
        if runs.len() < PAIRS_MIN {
            continue;
        }
        let result = summary(&runs);
        let (low, high) = result.interval;
        let narrow = high - result.ratio <= WIDTH * result.ratio
            && result.ratio - low <= WIDTH * result.ratio;
        if narrow || runs.len() >= PAIRS_MAX {
            return result;
        }
    }
}

fn summary(runs: &[(f64, f64)]) -> Paired {
    let ratios = sorted(runs.iter().map(|(ours, theirs)| ours / theirs));
    let count = ratios.len();
    #[allow(clippy::cast_precision_loss, reason = "at most 61")]
    let spread = 1.96 * (count as f64).sqrt() / 2.0;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most 61"
    )]
    let spread = spread.ceil() as usize;
    // The order statistics around the middle one: binomial, normal approximation.
    let low = (count / 2).saturating_sub(spread);
    let high = (count / 2 + spread).min(count - 1);
    Paired {
        ours: median(&sorted(runs.iter().map(|(ours, _)| *ours))),
        theirs: median(&sorted(runs.iter().map(|(_, theirs)| *theirs))),
        ratio: median(&ratios),
        interval: (ratios[low], ratios[high]),
        pairs: count,
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
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
        assert!(result.pairs >= PAIRS_MIN);
    }
}
