//! Regions that share one limit.
//!
//! A region is a site with a store of its own. A limit of L over regions of the weights w is split into the shares
//! L w / W, in whole hits that sum to exactly L. Each region enforces its share by its own store alone, so no more than
//! L pass in all regions together, whatever becomes of the links between them.
//!
//! ```text
//!  limit 601, weights ap 1, eu 2, us 1      ap 150   eu 301   us 150
//!                                           150.25   300.5    150.25, and the rest to the largest fraction
//! ```
//!
//! **Rounding.** Each share is L w / W rounded down, and what is left over goes to the largest fractions, to the first by
//! name among equals (the method of largest remainders). No share is a whole hit away from L w / W.
//!
//! **Bound.** Windows and logs: the sum of the shares is L, so all regions together let pass what one counter of L would,
//! each hit dated by the clock of its region. Groups of equal count let a sixteenth of each share more pass, as of L.
//! Buckets: shares of burst and rate sum to burst and rate.

#[doc(hidden)]
pub mod counted;
mod held;
#[doc(hidden)]
pub mod loans;

pub use held::Whole;

use crate::{Limit, LimitError, LimitSpec, MAX_COUNT, Micros};

/// The most regions that share limits.
pub const REGIONS_MAX: usize = 16;

/// The time for which a region that borrows hits may keep them without asking again, unless the settings say otherwise.
pub const LOAN_TIME: Micros = Micros::from_secs(600);

/// The largest weight of a region.
pub const WEIGHT_MAX: u32 = 1_000_000;

/// The longest name of a region, in bytes.
pub const REGION_NAME_MAX: usize = 32;

/// The regions that share limits, as one of them sees them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Regions {
    version: u32,
    /// In the order of their names, which is the same in all regions.
    all: Vec<Region>,
    own: usize,
    loan_time: Micros,
}

/// A site with a store of its own, and its weight among those that share limits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// 1 to [`REGION_NAME_MAX`] lower-case letters, digits and dashes.
    pub name: Box<str>,
    /// At most [`WEIGHT_MAX`]; a region of weight 0 admits nothing of a shared limit.
    pub weight: u32,
    /// True if it is gone for good, and others own its share.
    pub is_retired: bool,
}

/// The number of a region: a hash of its name, so the same in all regions, whichever others there are. Two names have the same
/// number with a probability of about 2^-53.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RegionId(u64);

/// The reason why regions are refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegionsError {
    /// The version of the weights is 0.
    #[error("`version` starts at 1; raise it whenever a weight changes")]
    Version,
    /// A name that is not 1 to [`REGION_NAME_MAX`] lower-case letters, digits and dashes.
    #[error("`{0}` is not the name of a region; write up to 32 of a-z, 0-9 and -")]
    Name(Box<str>),
    /// A name that two regions have.
    #[error("`{0}` is there twice; give each region a name of its own")]
    Twice(Box<str>),
    /// A weight above [`WEIGHT_MAX`].
    #[error("{0}.weight: {1} is too large; write 0 to 1000000")]
    Weight(Box<str>, u32),
    /// Fewer than two regions.
    #[error("write at least two regions; with one, leave `region` and `regions` out")]
    TooFew,
    /// More than [`REGIONS_MAX`] regions.
    #[error("at most {REGIONS_MAX} regions")]
    TooMany,
    /// No region may admit anything.
    #[error("all weights are 0, so that nothing would pass anywhere; give one region a weight")]
    NoWeight,
    /// The own region is retired.
    #[error(
        "`{0}` is retired, so that others own its share; before it runs again, give it a share as to a new region"
    )]
    Retired(Box<str>),
    /// The own region is to be retired.
    #[error("`{0}` is this region; retire it beside the settings of another one")]
    Own(Box<str>),
    /// A region is retired already.
    #[error("`{0}` is retired already")]
    RetiredAlready(Box<str>),
    /// The own region is none of them.
    #[error("`{own}` is none of them: there are {known}")]
    Unknown {
        /// The own region.
        own: Box<str>,
        /// The names of all regions.
        known: Box<str>,
    },
}

/// The reason why a limit cannot be shared by regions.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unshareable {
    /// A region that has a weight would get none of the quota or the burst.
    #[error("{amount} cannot be split so that each region gets a hit: `{region}` would get none")]
    TooSmall {
        /// The quota, or the burst if that is what is too small.
        amount: u64,
        /// The first region by name that would get nothing.
        region: Box<str>,
    },
    /// A share that is not a valid limit by itself.
    #[error("the share of a region is no valid limit: {0}")]
    Limit(#[from] LimitError),
}

impl RegionId {
    /// The number of the region of that name.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let hash = fnv(name.bytes());
        // So that the bits that are cut off count too.
        Self::from_bits(hash ^ (hash >> 53))
    }

    /// The region of that number, of which the lowest 53 bits count: more no script can hold.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits & MAX_COUNT)
    }

    /// The number: below 2^53.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// FNV-1a, which stays the same from build to build.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Region {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> RegionId {
        RegionId::of(&self.name)
    }
}

impl Regions {
    /// The regions `all` by name and weight, of which `own` is this one. All regions have the same `version` of the
    /// weights, or are on the way from one to the next.
    ///
    /// # Errors
    /// The first rule of [`RegionsError`] that is broken.
    pub fn try_new(
        own: &str,
        version: u32,
        all: impl IntoIterator<Item = (Box<str>, u32)>,
    ) -> Result<Self, RegionsError> {
        if version == 0 {
            return Err(RegionsError::Version);
        }
        let mut regions: Vec<Region> = Vec::new();
        for (name, weight) in all {
            if regions.len() == REGIONS_MAX {
                return Err(RegionsError::TooMany);
            }
            if !is_name(&name) {
                return Err(RegionsError::Name(name));
            }
            if weight > WEIGHT_MAX {
                return Err(RegionsError::Weight(name, weight));
            }
            regions.push(Region {
                name,
                weight,
                is_retired: false,
            });
        }
        regions.sort_by(|one, other| one.name.cmp(&other.name));
        let twice = regions.windows(2).find(|pair| pair[0].name == pair[1].name);
        if let Some(pair) = twice {
            return Err(RegionsError::Twice(pair[0].name.clone()));
        }
        if regions.len() < 2 {
            return Err(RegionsError::TooFew);
        }
        if regions.iter().all(|region| region.weight == 0) {
            return Err(RegionsError::NoWeight);
        }
        let Some(at) = regions.iter().position(|region| *region.name == *own) else {
            let known: Vec<&str> = regions.iter().map(|region| &*region.name).collect();
            return Err(RegionsError::Unknown {
                own: own.into(),
                known: known.join(", ").into(),
            });
        };
        Ok(Self {
            version,
            all: regions,
            own: at,
            loan_time: LOAN_TIME,
        })
    }

    /// The same regions without `name`, which is gone for good: the others own its share, by their weights. None of them owns
    /// less than before.
    ///
    /// # Errors
    /// There is no such region, it is the own one, or no other one has a weight.
    pub fn without(mut self, name: &str) -> Result<Self, RegionsError> {
        let Some(at) = self.all.iter().position(|region| *region.name == *name) else {
            let known: Vec<&str> = self.all.iter().map(|region| &*region.name).collect();
            return Err(RegionsError::Unknown {
                own: name.into(),
                known: known.join(", ").into(),
            });
        };
        if at == self.own {
            return Err(RegionsError::Retired(name.into()));
        }
        self.all[at].is_retired = true;
        let has_weight = |region: &Region| !region.is_retired && region.weight > 0;
        match self.all.iter().any(has_weight) {
            true => Ok(self),
            false => Err(RegionsError::NoWeight),
        }
    }

    /// The regions of the next version, [without](Self::without) `name`.
    ///
    /// # Errors
    /// It is retired already, or cannot be.
    pub fn retire(&self, name: &str) -> Result<Self, RegionsError> {
        if *self.own().name == *name {
            return Err(RegionsError::Own(name.into()));
        }
        let mut retired = self.clone().without(name)?;
        if retired == *self {
            return Err(RegionsError::RetiredAlready(name.into()));
        }
        retired.version = self.version.saturating_add(1);
        Ok(retired)
    }

    /// The same regions, with another time of loans.
    #[must_use]
    pub const fn with_loan_time(mut self, loan_time: Micros) -> Self {
        self.loan_time = loan_time;
        self
    }

    /// The time for which hits are lent.
    #[must_use]
    pub const fn loan_time(&self) -> Micros {
        self.loan_time
    }

    /// The place of this region among [all](Self::all).
    #[must_use]
    pub const fn own_place(&self) -> usize {
        self.own
    }

    /// The version of the weights, from 1.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// A hash of all regions, by name, weight and retirement; never 0. Regions with the same `version` should have the same one.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let bytes = self.all.iter().flat_map(|region| {
            let weight = region.weight.to_le_bytes();
            let rest = [u8::from(region.is_retired), 0xff];
            region.name.bytes().chain(weight).chain(rest)
        });
        fnv(bytes).max(1)
    }

    /// All regions, in the order of their names.
    #[must_use]
    pub fn all(&self) -> &[Region] {
        &self.all
    }

    /// This region.
    #[must_use]
    pub fn own(&self) -> &Region {
        &self.all[self.own]
    }

    /// The shares of `amount`, in the order of [`Self::all`]: whole numbers that sum to `amount`.
    #[must_use]
    pub fn shares(&self, amount: u64) -> Vec<u64> {
        let mut shares = self.split(amount, |region| region.weight);
        let gone = self.all.iter().zip(&mut shares);
        let gone = gone.filter(|(region, _)| region.is_retired);
        let gone: u64 = gone.map(|(_, share)| std::mem::take(share)).sum();
        if gone > 0 {
            let more = self.split(gone, |region| match region.is_retired {
                true => 0,
                false => region.weight,
            });
            for (share, more) in shares.iter_mut().zip(more) {
                *share += more;
            }
        }
        shares
    }

    /// Splits `amount` by weights, of which one at least is not 0.
    fn split(&self, amount: u64, weight: impl Fn(&Region) -> u32) -> Vec<u64> {
        let weights: Vec<u128> = self
            .all
            .iter()
            .map(|region| u128::from(weight(region)))
            .collect();
        let sum: u128 = weights.iter().sum::<u128>().max(1);
        let exact = |weight: u128| u128::from(amount) * weight;
        // A share is at most `amount`, as a weight is at most the sum of all.
        let mut shares: Vec<u64> = weights
            .iter()
            .map(|weight| u64::try_from(exact(*weight) / sum).unwrap_or(amount))
            .collect();
        let left = amount - shares.iter().sum::<u64>();
        let mut fractions: Vec<usize> = (0..shares.len()).collect();
        // The sort is stable: equals stay in the order of their names.
        fractions.sort_by_key(|&at| std::cmp::Reverse(exact(weights[at]) % sum));
        for (_, at) in (0..left).zip(fractions) {
            shares[at] += 1;
        }
        shares
    }

    /// The share of `amount` that this region has.
    #[must_use]
    pub fn share(&self, amount: u64) -> u64 {
        self.shares(amount)[self.own]
    }

    /// Checks that every region with a weight has a part of `amount`, unless that is 0.
    fn check(&self, amount: u64) -> Result<(), Unshareable> {
        let shares = self.all.iter().zip(self.shares(amount));
        let mut without =
            shares.filter(|(region, share)| region.weight > 0 && !region.is_retired && *share == 0);
        match without.next() {
            Some((region, _)) if amount > 0 => Err(Unshareable::TooSmall {
                amount,
                region: region.name.clone(),
            }),
            _ => Ok(()),
        }
    }
}

impl Limit {
    /// The part of this limit that the own region of `regions` enforces: its share of the quota, of the burst and of the
    /// largest debt, and otherwise the same limit. The counter and its state are the same.
    ///
    /// # Errors
    /// A region would get nothing although it has a weight, or its share is no valid limit.
    pub fn shared(&self, regions: &Regions) -> Result<Self, Unshareable> {
        regions.check(self.quota())?;
        if self.algorithm().has_burst() {
            regions.check(self.capacity())?;
        }
        Ok(self.part(regions)?)
    }

    fn part(&self, regions: &Regions) -> Result<Self, LimitError> {
        let spec = self.spec();
        let quota = regions.share(spec.quota);
        let part = |amount: u64| regions.share(amount);
        let shared = Self::try_new(LimitSpec {
            quota,
            // With a quota of 0 a bucket holds nothing, and has no burst to share.
            burst: spec.burst.map(part).filter(|_| quota > 0),
            max_debt: spec.max_debt.map(part),
            ..spec
        })?;
        Ok(match self.delay_max() {
            Micros::MAX => shared,
            most => shared.with_delay_max(most),
        })
    }

    /// The limit as it could have been written.
    fn spec(&self) -> LimitSpec {
        let holds_some = self.quota() > 0;
        LimitSpec {
            algorithm: self.algorithm(),
            quota: self.quota(),
            window: self.window(),
            calendar: self.is_calendar(),
            burst: Some(self.capacity()).filter(|_| self.algorithm().has_burst() && holds_some),
            sub_windows: Some(self.sub_windows()).filter(|count| *count > 0),
            strict: self.is_strict(),
            post_paid: self.is_post_paid(),
            max_debt: self.max_debt(),
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=REGION_NAME_MAX).contains(&name.len()) && name.bytes().all(is_fit)
}

#[cfg(test)]
mod tests;
