//! Whether a layer enforces, watches, or is not there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// What a layer does with requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Nothing: no limit is asked, nothing is counted.
    Off,
    /// It asks and counts as if it enforced, and lets everything pass at once, without a word to clients.
    Shadow,
    /// It enforces.
    #[default]
    On,
}

/// Switches a layer while it runs. Clones are the same switch.
#[derive(Clone, Debug)]
pub struct Switch(Arc<AtomicU8>);

impl Default for Switch {
    fn default() -> Self {
        Self::new(Mode::On)
    }
}

impl Switch {
    /// A switch that is set to `mode`.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        Self(Arc::new(AtomicU8::new(mode as u8)))
    }

    /// Holds for every request that comes from now on.
    pub fn set(&self, mode: Mode) {
        // Relaxed, here and below: it says nothing of anything else.
        self.0.store(mode as u8, Ordering::Relaxed);
    }

    /// What it is set to.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self.0.load(Ordering::Relaxed) {
            0 => Mode::Off,
            1 => Mode::Shadow,
            _ => Mode::On,
        }
    }
}
