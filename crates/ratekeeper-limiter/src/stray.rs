//! A sample of the requests that no rule matches, so that a misspelt name can be found.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use ratekeeper_rules::Entry;

/// The most bytes kept of a name.
const NAME_MAX: usize = 64;
/// The most entries kept.
const ENTRIES_MAX: usize = 8;

/// A descriptor that no rule matched. Callers choose its names: they are cut, not checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stray {
    /// The domain of the request.
    pub domain: String,
    /// Keys and values of the first entries.
    pub entries: Vec<(String, String)>,
}

/// A sampler that keeps the first stray after one was asked for.
#[derive(Debug, Default)]
pub struct Strays {
    is_wanted: AtomicBool,
    seen: Mutex<Option<Stray>>,
}

impl Strays {
    /// Asks for the next stray.
    pub fn want(&self) {
        // Relaxed: which of two requests is kept does not matter.
        self.is_wanted.store(true, Ordering::Relaxed);
    }

    /// Takes the stray kept since [`Self::want`], if any.
    pub fn take(&self) -> Option<Stray> {
        self.seen.lock().take()
    }

    /// Keeps a descriptor if one is wanted. Costs one load if none is.
    #[inline]
    pub(crate) fn observe(&self, domain: &str, entries: &[Entry<'_>]) {
        if self.is_wanted.load(Ordering::Relaxed) && self.is_wanted.swap(false, Ordering::Relaxed) {
            self.keep(domain, entries);
        }
    }

    #[cold]
    fn keep(&self, domain: &str, entries: &[Entry<'_>]) {
        let entries = entries.iter().take(ENTRIES_MAX);
        let stray = Stray {
            domain: cut(domain),
            entries: entries
                .map(|entry| (cut(entry.key), cut(entry.value)))
                .collect(),
        };
        *self.seen.lock() = Some(stray);
    }
}

fn cut(name: &str) -> String {
    name[..name.floor_char_boundary(NAME_MAX)].to_owned()
}
