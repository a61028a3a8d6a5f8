//! A row of the table.

use std::fmt::Debug;

use ratekeeper_testkit::process::Process;

/// The fate of one attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// The client got an error, a reset or a closed connection.
    Refused,
    /// It was counted as what it stands for, and denied.
    Limited,
    /// It was let through, and did nothing that a limit forbids.
    Harmless,
    /// It got past a limit.
    Passed,
}

impl Fate {
    /// This, unless it got past a limit.
    pub(crate) const fn unless(self, has_passed: bool) -> Self {
        match has_passed {
            true => Self::Passed,
            false => self,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Limited => "limited",
            Self::Harmless => "harmless",
            Self::Passed => "PASSED",
        }
    }
}

/// The outcome of one family of attacks.
#[derive(Debug, Default)]
pub(crate) struct Row {
    pub(crate) family: String,
    pub(crate) refused: u64,
    pub(crate) limited: u64,
    pub(crate) harmless: u64,
    pub(crate) passed: u64,
    /// The most memory that the attacked process had resident, in KiB.
    pub(crate) peak_kib: usize,
    /// Every attempt that passed, and every bound that broke.
    pub(crate) missed: Vec<String>,
}

/// The table's first two lines.
pub(crate) const HEAD: &str = "\
| attack | tried | refused | limited | harmless | passed | RSS peak |
|---|---:|---:|---:|---:|---:|---:|";

impl Row {
    pub(crate) fn new(family: impl Into<String>) -> Self {
        Self {
            family: family.into(),
            ..Self::default()
        }
    }

    /// Counts an attempt; `what` names one that passed.
    pub(crate) fn count(&mut self, fate: Fate, what: impl Into<String>) {
        match fate {
            Fate::Refused => self.refused += 1,
            Fate::Limited => self.limited += 1,
            Fate::Harmless => self.harmless += 1,
            Fate::Passed => {
                self.passed += 1;
                self.missed.push(what.into());
            }
        }
    }

    /// Counts a bound that broke, unless `holds`.
    pub(crate) fn bound(&mut self, holds: bool, what: impl Into<String>) {
        if !holds {
            self.missed.push(what.into());
        }
    }

    /// Counts a bound that broke, unless `value` is `max` at most.
    pub(crate) fn most<T: PartialOrd + Debug>(&mut self, what: &str, value: T, max: T) {
        if value > max {
            self.missed
                .push(format!("{what}: {value:?}, not {max:?} at most"));
        }
    }

    /// Counts a bound that broke, unless `value` is as `wanted`.
    pub(crate) fn is<T: PartialEq + Debug>(&mut self, what: &str, value: T, wanted: T) {
        if value != wanted {
            self.missed
                .push(format!("{what}: {value:?}, not {wanted:?}"));
        }
    }

    /// Adds what another row has counted.
    pub(crate) fn join(&mut self, other: Self) {
        self.refused += other.refused;
        self.limited += other.limited;
        self.harmless += other.harmless;
        self.passed += other.passed;
        self.peak_kib = self.peak_kib.max(other.peak_kib);
        self.missed.extend(other.missed);
    }

    /// Takes in the memory that `process` has used, and that no mistake of ours has ended a request: its client would see a
    /// closed connection, which passes for a refusal.
    pub(crate) fn measure(&mut self, process: &Process) {
        self.bound(!process.has_panicked(), "the attacked process panicked");
        self.peak_kib = self.peak_kib.max(process.resident_peak_kib());
    }

    /// True if nothing passed and no bound broke.
    pub(crate) fn is_met(&self) -> bool {
        self.passed == 0 && self.missed.is_empty()
    }

    const fn tried(&self) -> u64 {
        self.refused + self.limited + self.harmless + self.passed
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "| {} | {} | {} | {} | {} | {} | {} MiB |",
            self.family,
            self.tried(),
            self.refused,
            self.limited,
            self.harmless,
            self.passed,
            self.peak_kib.div_ceil(1024),
        )?;
        self.missed
            .iter()
            .try_for_each(|missed| write!(f, "\n  FAILED {missed}"))
    }
}
