//! The rates at which callers ask, and their times.

use std::f64::consts::TAU;

/// The requests of all regions over a scenario. Amounts are parts of the limit, in each window.
#[derive(Clone, Copy, Debug)]
pub(super) enum Traffic {
    /// Always the same of each region.
    Still([f64; 3]),
    /// So much in all. Its peak goes round the regions once, from one to the next.
    Round(f64),
    /// So much of each region, and from 0.4 to 0.6 of the time this much more of the second.
    Flash(f64, f64),
}

impl Traffic {
    /// The parts of the limit that regions ask for in a window, when `passed` of the time is over, from 0 to 1.
    pub(super) fn at(self, passed: f64) -> [f64; 3] {
        match self {
            Self::Still(parts) => parts,
            Self::Round(all) => [0.0, 1.0, 2.0].map(|place| {
                let phase = TAU * (passed - place / 3.0);
                all / 3.0 * (1.0 + 0.9 * phase.cos())
            }),
            Self::Flash(each, more) => {
                let crowd = match (0.4..0.6).contains(&passed) {
                    true => more,
                    false => 0.0,
                };
                [each, each + crowd, each]
            }
        }
    }

    /// The most that one region asks for at any time.
    pub(super) fn most(self) -> f64 {
        match self {
            Self::Still(parts) => parts.into_iter().fold(0.0, f64::max),
            Self::Round(all) => all * 1.9 / 3.0,
            Self::Flash(each, more) => each + more,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_as_much_as_it_says() {
        for passed in 0..100 {
            let passed = f64::from(passed) / 100.0;
            let round = Traffic::Round(0.8);
            let all: f64 = round.at(passed).iter().sum();
            assert!((all - 0.8).abs() < 1e-9, "{all} at {passed}");
            assert!(round.at(passed).iter().all(|part| *part <= round.most()));
        }
        assert_eq!(Traffic::Flash(0.1, 0.7).at(0.5), [0.1, 0.1 + 0.7, 0.1]);
        assert_eq!(Traffic::Flash(0.1, 0.7).at(0.6), [0.1; 3]);
    }
}
