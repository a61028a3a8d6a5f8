//! The distribution of requests over keys.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use fastrand::Rng;

/// The most keys of a run; the requests for all keys are encoded in memory before it begins.
pub const KEYS_MAX: u32 = 10_000_000;

/// A distribution of requests over keys.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Keys {
    /// All requests have the same key.
    Hot,
    /// This many keys, equally likely; 1 to [`KEYS_MAX`].
    Uniform(u32),
    /// The k-th of this many keys is chosen in proportion to k^-exponent.
    Zipf {
        /// The number of keys; 1 to [`KEYS_MAX`].
        keys: u32,
        /// 0 is uniform, 1 the classic law; 0 to 10.
        exponent: f64,
    },
}

/// A text that is not a distribution of keys.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` is not a spread of keys; write hot, uniform:N, zipf:N or zipf:N:EXPONENT, with N from 1 to \
     {KEYS_MAX} and an exponent from 0 to 10 (1 if none is given)"
)]
pub struct KeysError(String);

impl FromStr for Keys {
    type Err = KeysError;

    fn from_str(text: &str) -> Result<Self, KeysError> {
        let wrong = || KeysError(text.to_owned());
        let number = |text: &str| match text.parse() {
            Ok(keys @ 1..=KEYS_MAX) => Ok(keys),
            _ => Err(wrong()),
        };
        let mut parts = text.split(':');
        let keys = match (parts.next(), parts.next(), parts.next()) {
            (Some("hot"), None, None) => Self::Hot,
            (Some("uniform"), Some(keys), None) => Self::Uniform(number(keys)?),
            (Some("zipf"), Some(keys), exponent) => Self::Zipf {
                keys: number(keys)?,
                exponent: match exponent.unwrap_or("1").parse() {
                    Ok(exponent) if (0.0..=10.0).contains(&exponent) => exponent,
                    _ => return Err(wrong()),
                },
            },
            _ => return Err(wrong()),
        };
        match parts.next() {
            None => Ok(keys),
            Some(_) => Err(wrong()),
        }
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hot => f.write_str("hot"),
            Self::Uniform(keys) => write!(f, "uniform:{keys}"),
            Self::Zipf { keys, exponent } => write!(f, "zipf:{keys}:{exponent}"),
        }
    }
}

impl Keys {
    /// The number of different keys.
    #[must_use]
    pub const fn count(self) -> u32 {
        match self {
            Self::Hot => 1,
            Self::Uniform(keys) | Self::Zipf { keys, .. } => keys,
        }
    }
}

/// Draws key numbers.
#[derive(Clone, Debug)]
pub(crate) struct Picker {
    random: Rng,
    keys: u32,
    aliases: Option<Arc<[Alias]>>,
}

/// An entry of the alias table: itself below the threshold, else another key.
#[derive(Clone, Copy, Debug)]
struct Alias {
    threshold: f32,
    other: u32,
}

impl Picker {
    pub(crate) fn new(keys: Keys, seed: u64) -> Self {
        let aliases = match keys {
            Keys::Zipf { keys, exponent } => Some(aliases(keys, exponent)),
            Keys::Hot | Keys::Uniform(_) => None,
        };
        Self {
            random: seeded(seed),
            keys: keys.count(),
            aliases,
        }
    }

    /// The same distribution with another seed.
    pub(crate) fn reseeded(&self, seed: u64) -> Self {
        Self {
            random: seeded(seed),
            ..self.clone()
        }
    }

    /// The number of the next key, below [`Keys::count`].
    pub(crate) fn next(&mut self) -> u32 {
        let place = self.random.u32(..self.keys.max(1));
        let alias = self
            .aliases
            .as_ref()
            .and_then(|aliases| aliases.get(place as usize));
        match alias {
            Some(alias) if self.random.f64() >= f64::from(alias.threshold) => alias.other,
            _ => place,
        }
    }
}

/// The random numbers of a seed.
fn seeded(seed: u64) -> Rng {
    // The first draws of neighbouring seeds correlate, and workers have neighbouring seeds.
    Rng::with_seed(seed).fork()
}

/// Builds the table of Walker's alias method in Vose's form: after one pass over all keys, each
/// draw takes two random numbers, however many keys there are.
fn aliases(keys: u32, exponent: f64) -> Arc<[Alias]> {
    let weights: Vec<f64> = (1..=keys).map(|k| f64::from(k).powf(-exponent)).collect();
    let mean = weights.iter().sum::<f64>() / f64::from(keys);
    let mut shares: Vec<f64> = weights.iter().map(|weight| weight / mean).collect();
    let (mut small, mut large): (Vec<u32>, Vec<u32>) =
        (0..keys).partition(|key| shares[*key as usize] < 1.0);
    let mut aliases: Vec<Alias> = (0..keys)
        .map(|other| Alias {
            threshold: 1.0,
            other,
        })
        .collect();
    while let (Some(poor), Some(rich)) = (small.pop(), large.pop()) {
        let share = shares[poor as usize];
        aliases[poor as usize] = Alias {
            threshold: share as f32,
            other: rich,
        };
        shares[rich as usize] -= 1.0 - share;
        if shares[rich as usize] < 1.0 {
            small.push(rich);
        } else {
            large.push(rich);
        }
    }
    aliases.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(keys: Keys, picks: u32) -> Vec<u32> {
        let mut picker = Picker::new(keys, 7);
        let mut counts = vec![0; keys.count() as usize];
        for _ in 0..picks {
            counts[picker.next() as usize] += 1;
        }
        counts
    }

    #[test]
    fn zipf_has_its_shares() {
        let keys = Keys::Zipf {
            keys: 1000,
            exponent: 1.0,
        };
        let counts = counts(keys, 1_000_000);
        let harmonic: f64 = (1..=1000).map(|k| 1.0 / f64::from(k)).sum();
        for k in [1_u32, 2, 10, 100] {
            let expected = 1e6 / harmonic / f64::from(k);
            let seen = f64::from(counts[k as usize - 1]);
            // A tolerance of five standard deviations.
            assert!(
                (seen - expected).abs() < 5.0 * expected.sqrt(),
                "{k}: {seen} {expected}"
            );
        }
    }

    #[test]
    fn uniform_reaches_every_key_and_hot_is_one() {
        assert!(
            counts(Keys::Uniform(100), 100_000)
                .iter()
                .all(|n| (800..1200).contains(n))
        );
        assert_eq!(counts(Keys::Hot, 10), [10]);
    }

    #[test]
    fn spreads_are_read_and_shown() {
        for text in ["hot", "uniform:100000", "zipf:5:0.9"] {
            assert_eq!(
                text.parse::<Keys>().map(|keys| keys.to_string()),
                Ok(text.into())
            );
        }
        assert_eq!(
            "zipf:10".parse(),
            Ok(Keys::Zipf {
                keys: 10,
                exponent: 1.0
            })
        );
        for text in [
            "",
            "cold",
            "hot:1",
            "uniform",
            "uniform:0",
            "uniform:10000001",
            "uniform:1:1",
            "zipf:1:-1",
            "zipf:1:nan",
            "zipf:1:1:1",
        ] {
            let error = text.parse::<Keys>().expect_err(text).to_string();
            assert!(error.contains("write hot, uniform:N"), "{error}");
        }
    }
}
