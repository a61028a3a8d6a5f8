//! Bounds on the requests that an upstream has at a time, on those that wait for a slot, and on the share of both that one
//! client address has.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ratekeeper_http::client_network;
use ratekeeper_tower::controllers::{PatientQueue, Popped, QueueTerms};
use ratekeeper_tower::{Micros, Timestamp};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Slots for the requests of one upstream. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct RequestSlots(Arc<Shared>);

/// The bounds of [`RequestSlots`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotLimits {
    /// The slots, at least one.
    pub(crate) slots: usize,
    /// The most requests that wait for a slot.
    pub(crate) waiting: usize,
    /// The most slots that one client address has or waits for, at least one; `usize::MAX` for no share.
    pub(crate) per_address: usize,
}

#[derive(Debug)]
struct Shared {
    limits: SlotLimits,
    begun: Instant,
    waiting: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// Those that wait, and some that no longer do. Empty while there is a free slot.
    queue: PatientQueue<oneshot::Sender<RequestSlot>>,
    /// The slots that each client address has or waits for.
    clients: HashMap<IpAddr, usize>,
}

/// A request's slot, free again when dropped.
#[derive(Debug)]
pub(crate) struct RequestSlot {
    /// None once it was given to another request.
    slots: Option<Arc<Shared>>,
    /// The client address that it counts for.
    client: Option<IpAddr>,
    /// True if it was waited for.
    pub(crate) has_waited: bool,
}

/// The order in which slots are given to those that wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitOrder {
    /// In turn: who came first.
    InTurn,
    /// Controlled delay: who came last while the queue stands, and no request waits long.
    ControlledDelay,
}

/// The reason for which there is no slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoSlot {
    /// The client address has its share, though there may be free ones.
    Share,
    /// Too many wait, or none was free in time.
    Queue,
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

impl RequestSlots {
    /// Makes slots, each bound at least one slot.
    pub(crate) fn new(limits: SlotLimits) -> Self {
        let limits = SlotLimits {
            slots: limits.slots.max(1),
            per_address: limits.per_address.max(1),
            ..limits
        };
        let queue = PatientQueue::new(WaitOrder::InTurn.terms(), Timestamp::EPOCH);
        Self(Arc::new(Shared {
            limits,
            begun: Instant::now(),
            waiting: AtomicUsize::new(0),
            state: Mutex::new(State {
                free: limits.slots,
                queue,
                clients: HashMap::new(),
            }),
        }))
    }

    /// Returns true if it is as large as `other`, so that the requests of one may be counted in the other.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        self.0.limits == other.0.limits
    }

    /// Takes a slot for a request of `client` at once, or as soon as one is free.
    ///
    /// # Errors
    /// `client` has its share, too many wait, or it takes longer than `patience`, or than `order` lets anyone wait.
    pub(crate) async fn acquire(
        &self,
        client: Option<IpAddr>,
        patience: Duration,
        order: WaitOrder,
    ) -> Result<RequestSlot, NoSlot> {
        let has_share = self.0.limits.per_address < usize::MAX;
        let client = client.filter(|_| has_share).map(client_network);
        let (turn, mut waiting) = {
            let mut state = self.0.state.lock();
            state.add(client, self.0.limits.per_address)?;
            if state.free > 0 {
                state.free -= 1;
                return Ok(RequestSlot {
                    slots: Some(Arc::clone(&self.0)),
                    client,
                    has_waited: false,
                });
            }
            let Some(turn) = self.0.enqueue(&mut state, order) else {
                state.remove(client);
                return Err(NoSlot::Queue);
            };
            let slots = &self.0;
            (turn, Waiting { slots, client })
        };
        let turn = timeout(order.patience(patience), turn);
        // An error: it was dropped from the queue.
        let turn = turn.await.ok().and_then(Result::ok);
        let mut slot = turn.ok_or(NoSlot::Queue)?;
        slot.client = waiting.client.take();
        Ok(slot)
    }
}

impl State {
    /// Counts one more slot for `client`.
    ///
    /// # Errors
    /// It has `most`.
    fn add(&mut self, client: Option<IpAddr>, most: usize) -> Result<(), NoSlot> {
        let Some(client) = client else {
            return Ok(());
        };
        let count = self.clients.entry(client).or_default();
        if *count >= most {
            return Err(NoSlot::Share);
        }
        *count += 1;
        Ok(())
    }

    fn remove(&mut self, client: Option<IpAddr>) {
        if let Some(Entry::Occupied(mut count)) = client.map(|client| self.clients.entry(client)) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl Shared {
    fn now(&self) -> Timestamp {
        let micros = self.begun.elapsed().as_micros();
        Timestamp::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// Queues one more, and counts it among those that wait; None if enough do.
    fn enqueue(
        &self,
        state: &mut State,
        order: WaitOrder,
    ) -> Option<oneshot::Receiver<RequestSlot>> {
        // Those that have given up stay in the queue until there are as many of them as may wait.
        if state.queue.len() > self.limits.waiting.saturating_mul(2) {
            state.queue.retain(|turn| !turn.is_closed());
        }
        // Relaxed: it is only increased under the lock.
        if self.waiting.load(Ordering::Relaxed) >= self.limits.waiting {
            return None;
        }
        let (turn, receiver) = oneshot::channel();
        state.queue.set_terms(order.terms());
        state.queue.push(self.now(), turn).ok()?;
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Some(receiver)
    }

    /// Gives the slot of `client` to the next one that waits.
    fn pass_on(self: &Arc<Self>, client: Option<IpAddr>) {
        let mut state = self.state.lock();
        state.remove(client);
        while let Some(popped) = state.queue.pop(self.now()) {
            // One that is dropped learns so by the end of its channel.
            let Popped::Turn(turn) = popped else {
                continue;
            };
            // It was counted for the one that waits when that came.
            let slot = RequestSlot {
                slots: Some(Arc::clone(self)),
                client: None,
                has_waited: true,
            };
            match turn.send(slot) {
                Ok(()) => return,
                // It has given up. The slot must not pass itself on: the lock is held here.
                Err(mut slot) => slot.slots = None,
            }
        }
        state.free += 1;
    }
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        if let Some(slots) = self.slots.take() {
            slots.pass_on(self.client);
        }
    }
}

/// A request that waits for its slot.
struct Waiting<'a> {
    slots: &'a Shared,
    /// The client that the slot is counted for, until there is one.
    client: Option<IpAddr>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.slots.waiting.fetch_sub(1, Ordering::Relaxed);
        if self.client.is_some() {
            self.slots.state.lock().remove(self.client);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use tokio::task::JoinHandle;

    use super::*;

    const LONG: Duration = Duration::from_secs(3_600);

    /// Slots without shares by address.
    fn slots(slots: usize, waiting: usize) -> RequestSlots {
        RequestSlots::new(SlotLimits {
            slots,
            waiting,
            per_address: usize::MAX,
        })
    }

    /// Waits for a slot in a task of its own, from the moment that this returns.
    async fn waiter(
        slots: &RequestSlots,
        order: WaitOrder,
    ) -> JoinHandle<Result<RequestSlot, NoSlot>> {
        wait(slots, None, order).await
    }

    async fn waiter_of(
        slots: &RequestSlots,
        client: Option<IpAddr>,
    ) -> JoinHandle<Result<RequestSlot, NoSlot>> {
        wait(slots, client, WaitOrder::InTurn).await
    }

    async fn wait(
        slots: &RequestSlots,
        client: Option<IpAddr>,
        order: WaitOrder,
    ) -> JoinHandle<Result<RequestSlot, NoSlot>> {
        let before = slots.0.waiting.load(Ordering::Relaxed);
        let own = slots.clone();
        let task = tokio::spawn(async move { own.acquire(client, LONG, order).await });
        while slots.0.waiting.load(Ordering::Relaxed) == before {
            tokio::task::yield_now().await;
        }
        task
    }

    #[tokio::test]
    async fn places_are_bounded_and_so_are_those_who_wait() {
        let slots = slots(1, 1);
        let order = WaitOrder::InTurn;
        let first = slots
            .acquire(None, LONG, order)
            .await
            .expect("there is one");
        let waits = waiter(&slots, order).await;
        assert!(
            slots.acquire(None, LONG, order).await.is_err(),
            "enough wait already"
        );
        drop(first);
        let second = waits.await.expect("no panic").expect("it is its turn");
        assert_eq!(slots.0.waiting.load(Ordering::Relaxed), 0);
        let slot = slots.acquire(None, Duration::ZERO, order).await;
        assert!(slot.is_err(), "it is not free");
        drop(second);
        assert!(slots.acquire(None, Duration::ZERO, order).await.is_ok());
    }

    #[tokio::test]
    async fn those_who_give_up_take_no_place_with_them() {
        let slots = slots(1, 2);
        let order = WaitOrder::InTurn;
        let first = slots
            .acquire(None, LONG, order)
            .await
            .expect("there is one");
        for _ in 0..20 {
            assert!(slots.acquire(None, Duration::ZERO, order).await.is_err());
        }
        let waits = waiter(&slots, order).await;
        waits.abort();
        assert!(waits.await.is_err());
        let left = slots.0.state.lock().queue.len();
        assert!(left <= 6, "{left} are kept");
        drop(first);
        assert!(slots.acquire(None, Duration::ZERO, order).await.is_ok());
    }

    #[tokio::test]
    async fn those_in_turn_are_served_in_order() {
        let slots = slots(1, 9);
        let first = slots.acquire(None, LONG, WaitOrder::InTurn).await;
        let second = waiter(&slots, WaitOrder::InTurn).await;
        let third = waiter(&slots, WaitOrder::InTurn).await;
        drop(first);
        let second = second.await.expect("no panic").expect("its turn");
        assert!(!third.is_finished());
        drop(second);
        assert!(third.await.expect("no panic").is_ok());
    }

    #[tokio::test]
    async fn no_request_waits_long_in_a_controlled_queue() {
        let slots = slots(1, 9);
        let first = slots.acquire(None, LONG, WaitOrder::ControlledDelay).await;
        // The queue does not get empty: after an interval it is overloaded.
        let begun = Instant::now();
        let slot = slots.acquire(None, LONG, WaitOrder::ControlledDelay).await;
        assert!(slot.is_err());
        assert!(begun.elapsed() >= Duration::from_millis(100));
        drop(first);
        assert!(
            slots
                .acquire(None, LONG, WaitOrder::ControlledDelay)
                .await
                .is_ok()
        );
    }

    #[tokio::test]
    async fn one_address_has_no_more_than_its_share_waiting_or_not() {
        let slots = RequestSlots::new(SlotLimits {
            slots: 4,
            waiting: 9,
            per_address: 2,
        });
        let order = WaitOrder::InTurn;
        let host = |host: u128| {
            let network: Ipv6Addr = "2001:db8:7::".parse().expect("an address");
            Some(IpAddr::from(Ipv6Addr::from_bits(network.to_bits() | host)))
        };
        let other = |number: u8| Some(IpAddr::from([203, 0, 113, number]));
        let own = slots.acquire(host(1), LONG, order).await.expect("a slot");
        let waits_later = slots.acquire(host(2), LONG, order).await.expect("a slot");
        assert_eq!(
            slots.acquire(host(3), LONG, order).await.err(),
            Some(NoSlot::Share),
            "one /64"
        );
        let mut others = Vec::new();
        for number in 0..2 {
            others.extend(slots.acquire(other(number), LONG, order).await);
        }
        assert_eq!(others.len(), 2, "the rest is for others");
        drop(waits_later);
        // Mapped addresses are those of IPv4.
        let mapped = Some("::ffff:203.0.113.0".parse().expect("an address"));
        others.extend(slots.acquire(mapped, LONG, order).await);
        assert!(slots.acquire(other(0), LONG, order).await.is_err());
        // One that waits counts as one that has a slot, and no longer once it gives up.
        assert!(slots.acquire(host(4), Duration::ZERO, order).await.is_err());
        let waits = waiter_of(&slots, host(4)).await;
        assert!(slots.acquire(host(5), LONG, order).await.is_err());
        drop(own);
        let slot = waits.await.expect("no panic").expect("it is its turn");
        let again = waiter_of(&slots, host(6)).await;
        assert!(slots.acquire(host(5), LONG, order).await.is_err());
        again.abort();
        assert!(again.await.is_err());
        drop((slot, others));
        assert!(slots.0.state.lock().clients.is_empty());
        assert_eq!(slots.0.state.lock().free, 4);
    }
}
