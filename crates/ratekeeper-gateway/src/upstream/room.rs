//! Bounds on the requests that an upstream has at a time, and on those that wait for a place.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Places for the requests of one upstream. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    places: Arc<Semaphore>,
    places_max: usize,
    waiting: Arc<AtomicUsize>,
    waiting_max: usize,
}

/// A request's place, free again when dropped.
pub(crate) type Place = OwnedSemaphorePermit;

impl Room {
    /// Makes a room with at least one place.
    pub(crate) fn new(places_max: usize, waiting_max: usize) -> Self {
        let places_max = places_max.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            places: Arc::new(Semaphore::new(places_max)),
            places_max,
            waiting: Arc::default(),
            waiting_max,
        }
    }

    /// Returns true if it is as large as `other`, so that the requests of one may be counted in the other.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        (self.places_max, self.waiting_max) == (other.places_max, other.waiting_max)
    }

    /// Takes a place at once, or as soon as one is free; None if too many wait, or it takes longer
    /// than `patience`.
    pub(crate) async fn place(&self, patience: Duration) -> Option<Place> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Some(place);
        }
        let _waiting = Waiting::begin(&self.waiting, self.waiting_max)?;
        let place = timeout(patience, Arc::clone(&self.places).acquire_owned());
        // The semaphore is never closed.
        place.await.ok()?.ok()
    }
}

/// A request that waits for its place.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(waiting: &'a AtomicUsize, most: usize) -> Option<Self> {
        let one_more = |count| (count < most).then_some(count + 1);
        // Relaxed: an independent count. `then`, not `then_some`: a value made and dropped would decrement it.
        let counted = waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        counted.is_ok().then(|| Self(waiting))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3_600);

    #[tokio::test]
    async fn places_are_bounded_and_so_are_those_who_wait() {
        let room = Room::new(1, 1);
        let first = room.place(LONG).await.expect("there is one");
        let waits = tokio::spawn({
            let room = room.clone();
            async move { room.place(LONG).await }
        });
        while room.waiting.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        assert!(room.place(LONG).await.is_none(), "enough wait already");
        drop(first);
        let second = waits.await.expect("no panic").expect("it is its turn");
        assert_eq!(room.waiting.load(Ordering::Relaxed), 0);
        assert!(room.place(Duration::ZERO).await.is_none(), "it is not free");
        drop(second);
        assert!(room.place(Duration::ZERO).await.is_some());
    }
}
