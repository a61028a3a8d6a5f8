//! Bounds on the requests that an upstream has at a time, and on those that wait for a place.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ratekeeper_tower::controllers::{PatientQueue, Popped, QueueTerms};
use ratekeeper_tower::{Micros, Timestamp};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Places for the requests of one upstream. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Room(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    places_max: usize,
    waiting_max: usize,
    begun: Instant,
    waiting: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// Those that wait, and some that no longer do. Empty while there is a free place.
    queue: PatientQueue<oneshot::Sender<Place>>,
}

/// A request's place, free again when dropped.
#[derive(Debug)]
pub(crate) struct Place(Option<Arc<Shared>>);

/// The order in which places are given to those that wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitOrder {
    /// In turn: who came first.
    InTurn,
    /// Controlled delay: who came last while the queue stands, and nobody waits long.
    ControlledDelay,
}

impl WaitOrder {
    fn terms(self) -> QueueTerms {
        let usual = QueueTerms {
            // Those that wait are counted apart.
            len_max: usize::MAX,
            ..QueueTerms::default()
        };
        match self {
            Self::ControlledDelay => usual,
            Self::InTurn => QueueTerms {
                interval: Micros::MAX,
                target: Micros::MAX,
                ..usual
            },
        }
    }

    /// The longest time that one waits.
    fn patience(self, patience: Duration) -> Duration {
        match self {
            Self::InTurn => patience,
            Self::ControlledDelay => patience.min(self.terms().interval.into()),
        }
    }
}

impl Room {
    /// Makes a room with at least one place.
    pub(crate) fn new(places_max: usize, waiting_max: usize) -> Self {
        let places_max = places_max.max(1);
        let queue = PatientQueue::new(WaitOrder::InTurn.terms(), Timestamp::EPOCH);
        Self(Arc::new(Shared {
            places_max,
            waiting_max,
            begun: Instant::now(),
            waiting: AtomicUsize::new(0),
            state: Mutex::new(State {
                free: places_max,
                queue,
            }),
        }))
    }

    /// Returns true if it is as large as `other`, so that the requests of one may be counted in the other.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        (self.0.places_max, self.0.waiting_max) == (other.0.places_max, other.0.waiting_max)
    }

    /// Takes a place at once, or as soon as one is free; None if too many wait, or it takes longer
    /// than `patience`, or than `order` lets anyone wait.
    pub(crate) async fn place(&self, patience: Duration, order: WaitOrder) -> Option<Place> {
        let (turn, _waiting) = {
            let mut state = self.0.state.lock();
            if state.free > 0 {
                state.free -= 1;
                return Some(Place(Some(Arc::clone(&self.0))));
            }
            let waiting = Waiting::begin(&self.0.waiting, self.0.waiting_max)?;
            (self.0.enqueue(&mut state, order)?, waiting)
        };
        let turn = timeout(order.patience(patience), turn);
        // An error: it was dropped from the queue.
        turn.await.ok()?.ok()
    }
}

impl Shared {
    fn now(&self) -> Timestamp {
        let micros = self.begun.elapsed().as_micros();
        Timestamp::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    fn enqueue(&self, state: &mut State, order: WaitOrder) -> Option<oneshot::Receiver<Place>> {
        // Those that have given up stay in the queue until there are as many of them as may wait.
        if state.queue.len() > self.waiting_max.saturating_mul(2) {
            state.queue.retain(|turn| !turn.is_closed());
        }
        let (turn, receiver) = oneshot::channel();
        state.queue.set_terms(order.terms());
        state.queue.push(self.now(), turn).ok()?;
        Some(receiver)
    }

    /// Gives a place to the next one that waits.
    fn pass_on(self: &Arc<Self>) {
        let mut state = self.state.lock();
        while let Some(popped) = state.queue.pop(self.now()) {
            // One that is dropped learns so by the end of its channel.
            let Popped::Turn(turn) = popped else {
                continue;
            };
            match turn.send(Place(Some(Arc::clone(self)))) {
                Ok(()) => return,
                // It has given up. The place must not pass itself on: the lock is held here.
                Err(mut place) => place.0 = None,
            }
        }
        state.free += 1;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(room) = self.0.take() {
            room.pass_on();
        }
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

    /// Waits for a place in a task of its own, from the moment that this returns.
    async fn waiter(room: &Room, order: WaitOrder) -> tokio::task::JoinHandle<Option<Place>> {
        let before = room.0.waiting.load(Ordering::Relaxed);
        let own = room.clone();
        let task = tokio::spawn(async move { own.place(LONG, order).await });
        while room.0.waiting.load(Ordering::Relaxed) == before {
            tokio::task::yield_now().await;
        }
        task
    }

    #[tokio::test]
    async fn places_are_bounded_and_so_are_those_who_wait() {
        let room = Room::new(1, 1);
        let order = WaitOrder::InTurn;
        let first = room.place(LONG, order).await.expect("there is one");
        let waits = waiter(&room, order).await;
        assert!(
            room.place(LONG, order).await.is_none(),
            "enough wait already"
        );
        drop(first);
        let second = waits.await.expect("no panic").expect("it is its turn");
        assert_eq!(room.0.waiting.load(Ordering::Relaxed), 0);
        let place = room.place(Duration::ZERO, order).await;
        assert!(place.is_none(), "it is not free");
        drop(second);
        assert!(room.place(Duration::ZERO, order).await.is_some());
    }

    #[tokio::test]
    async fn those_who_give_up_take_no_place_with_them() {
        let room = Room::new(1, 2);
        let order = WaitOrder::InTurn;
        let first = room.place(LONG, order).await.expect("there is one");
        for _ in 0..20 {
            assert!(room.place(Duration::ZERO, order).await.is_none());
        }
        let waits = waiter(&room, order).await;
        waits.abort();
        assert!(waits.await.is_err());
        let left = room.0.state.lock().queue.len();
        assert!(left <= 6, "{left} are kept");
        drop(first);
        assert!(room.place(Duration::ZERO, order).await.is_some());
    }

    #[tokio::test]
    async fn those_in_turn_are_served_in_order() {
        let room = Room::new(1, 9);
        let first = room.place(LONG, WaitOrder::InTurn).await;
        let second = waiter(&room, WaitOrder::InTurn).await;
        let third = waiter(&room, WaitOrder::InTurn).await;
        drop(first);
        let second = second.await.expect("no panic").expect("its turn");
        assert!(!third.is_finished());
        drop(second);
        assert!(third.await.expect("no panic").is_some());
    }

    #[tokio::test]
    async fn nobody_waits_long_in_a_controlled_queue() {
        let room = Room::new(1, 9);
        let first = room.place(LONG, WaitOrder::ControlledDelay).await;
        // The queue does not get empty: after an interval it is overloaded.
        let begun = Instant::now();
        let place = room.place(LONG, WaitOrder::ControlledDelay).await;
        assert!(place.is_none());
        assert!(begun.elapsed() >= Duration::from_millis(100));
        drop(first);
        assert!(room.place(LONG, WaitOrder::ControlledDelay).await.is_some());
    }
}
