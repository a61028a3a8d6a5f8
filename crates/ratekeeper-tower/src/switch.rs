//! The modes of a layer: enforce, shadow, or off.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The mode of a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LayerMode {
    /// Off: no limit is checked, nothing is counted.
    Off,
    /// Checks and counts as if it enforced, but lets every request pass at once, without headers.
    Shadow,
    /// Enforces.
    #[default]
    On,
}

/// Changes the mode of a layer while it runs. Clones are the same switch.
#[derive(Clone, Debug)]
pub struct Switch(Arc<AtomicU8>);

impl Default for Switch {
    fn default() -> Self {
        Self::new(LayerMode::On)
    }
}

impl Switch {
    /// A switch with this mode.
    #[must_use]
    pub fn new(mode: LayerMode) -> Self {
        Self(Arc::new(AtomicU8::new(mode as u8)))
    }

    /// Sets the mode for every request from now on.
    pub fn set(&self, mode: LayerMode) {
        // Relaxed, here and below: it orders no other access.
        self.0.store(mode as u8, Ordering::Relaxed);
    }

    /// The current mode.
    #[must_use]
    pub fn mode(&self) -> LayerMode {
        match self.0.load(Ordering::Relaxed) {
            0 => LayerMode::Off,
            1 => LayerMode::Shadow,
            _ => LayerMode::On,
        }
    }
}
