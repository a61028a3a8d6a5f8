//! The places of those who watch a node. None is kept by not reading: a newcomer gets the place of a reader that
//! has stopped, else of the one that has watched longest, whose page connects again by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Those who may watch at a time: the admin listener keeps the rest of its connections for commands and scrapers.
const WATCHERS_MAX: usize = 8;

/// The time that a reader may leave an event untaken while others want its place.
const UNTAKEN_MAX: Duration = Duration::from_secs(3);

/// The time for which one who reads keeps the place. The system's buffers take events for a reader that has
/// stopped, for many minutes, so that it cannot be told from one who reads.
const TURN: Duration = Duration::from_secs(30);

/// The places.
#[derive(Clone, Debug, Default)]
pub(super) struct Watchers(Arc<Mutex<Vec<Arc<Watcher>>>>);

/// One who watches.
#[derive(Debug)]
struct Watcher {
    since: Instant,
    /// The time of the last event, until it is taken.
    untaken_since: Mutex<Option<Instant>>,
    replaced: Notify,
}

/// The place of one who watches.
#[derive(Debug)]
pub(crate) struct WatchersPlace {
    watcher: Arc<Watcher>,
    all: Watchers,
}

impl Watchers {
    pub(super) fn are_none(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Takes a place, if need be of another.
    pub(super) fn join(&self, now: Instant) -> Option<WatchersPlace> {
        let mut all = self.0.lock();
        if all.len() >= WATCHERS_MAX {
            let replaced = all.iter().position(|watcher| watcher.has_stopped(now));
            // The first has watched longest.
            let replaced = replaced.or_else(|| {
                let is_over = |watcher: &Arc<Watcher>| now.duration_since(watcher.since) >= TURN;
                all.first().is_some_and(is_over).then_some(0)
            });
            all.remove(replaced?).replaced.notify_one();
        }
        let watcher = Arc::new(Watcher {
            since: now,
            untaken_since: Mutex::new(None),
            replaced: Notify::new(),
        });
        all.push(Arc::clone(&watcher));
        let all = self.clone();
        Some(WatchersPlace { watcher, all })
    }
}

impl Watcher {
    fn has_stopped(&self, now: Instant) -> bool {
        let since = *self.untaken_since.lock();
        since.is_some_and(|since| now.duration_since(since) >= UNTAKEN_MAX)
    }
}

impl WatchersPlace {
    /// An event was handed over.
    pub(crate) fn mark_handed(&self) {
        *self.watcher.untaken_since.lock() = Some(Instant::now());
    }

    /// The last event was taken: the next one is wanted.
    pub(crate) fn mark_taken(&self) {
        *self.watcher.untaken_since.lock() = None;
    }

    /// Waits until another has the place.
    pub(crate) async fn replaced(&self) {
        self.watcher.replaced.notified().await;
    }
}

impl Drop for WatchersPlace {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        all.retain(|watcher| !Arc::ptr_eq(watcher, &self.watcher));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_places(watchers: &Watchers, now: Instant) -> Vec<WatchersPlace> {
        let places: Vec<_> = (0..WATCHERS_MAX)
            .filter_map(|_| watchers.join(now))
            .collect();
        assert_eq!(places.len(), WATCHERS_MAX);
        assert!(watchers.join(now).is_none());
        places
    }

    #[test]
    fn a_few_may_watch_and_leave_their_places() {
        let (watchers, now) = (Watchers::default(), Instant::now());
        drop(all_places(&watchers, now));
        assert!(watchers.are_none());
        assert!(watchers.join(now).is_some());
    }

    #[tokio::test]
    async fn one_who_has_stopped_reading_is_replaced_first() {
        let (watchers, now) = (Watchers::default(), Instant::now());
        let places = all_places(&watchers, now);
        places[3].mark_handed();
        places[5].mark_handed();
        places[3].mark_taken();
        let soon = Instant::now() + UNTAKEN_MAX;
        let newcomer = watchers.join(soon);
        assert!(newcomer.is_some());
        places[5].replaced().await;
        assert!(watchers.join(soon).is_none());
        // The place is the newcomer's: the one who had it gives none back.
        drop(places);
        assert!(!watchers.are_none());
        drop(newcomer);
        assert!(watchers.are_none());
    }

    #[tokio::test]
    async fn who_has_watched_longest_is_replaced_after_a_turn() {
        let (watchers, now) = (Watchers::default(), Instant::now());
        let places = all_places(&watchers, now);
        let later = now + TURN;
        let newcomer = watchers.join(later);
        assert!(newcomer.is_some());
        places[0].replaced().await;
    }
}
