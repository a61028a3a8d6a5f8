//! Loans between regions, each on counters of its own, by the script that users run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::region::loans::{
    LoanRegions, WindowAnswer, WindowAsk, WindowFacts, WindowLoans,
};
use ratekeeper_core::{Algorithm, MAX_COUNT, Micros, Whole};
use ratekeeper_store::{LoanChange, LoanCounter, LoanState, Step, StoreError, StoreSlot};
use ratekeeper_store_redis::RedisStore;
use ratekeeper_stores::SharedStore;
use ratekeeper_testkit::redis::{Client, PRIMARY, Sentinels, Server};

use crate::leases::leased;
use crate::sentinel;
use crate::support::{LASTING, decide, home, limit, patient, step, store, until};

const REGIONS: usize = 3;

/// The hits that each region owns.
const OWNS: u64 = 100;

/// The regions.
const NAMES: [&str; REGIONS] = ["ap", "eu", "us"];

fn three() -> LoanRegions {
    LoanRegions::named(NAMES)
}

struct Region {
    store: RedisStore,
    shared: Arc<dyn SharedStore>,
    counter: LoanCounter,
    step: Step,
}

impl Region {
    fn new(server: &Server) -> Self {
        Self::asking(
            server,
            step(&limit(Algorithm::FixedWindow, OWNS, LASTING), 1),
        )
    }

    /// A region whose nodes ask for that.
    fn asking(server: &Server, step: Step) -> Self {
        Self::on(store(server, patient()), step)
    }

    fn on(store: RedisStore, step: Step) -> Self {
        let step = Step {
            terms: 1,
            whole: Whole {
                quota: REGIONS as u64 * OWNS,
                burst: REGIONS as u64 * OWNS,
            },
            ..step
        };
        Self {
            shared: store.shared(),
            store,
            counter: LoanCounter {
                key: step.key,
                owns: step.limit,
                whole: step.whole,
                counted: None,
                store: StoreSlot::default(),
            },
            step,
        }
    }

    async fn look(&self) -> Result<(LoanState, WindowLoans), StoreError> {
        let state = self.shared.loans(self.counter, None).await?;
        let loans = match state.loans.is_empty() {
            true => WindowLoans::new(OWNS, REGIONS),
            false => WindowLoans::decode(&state.loans, OWNS, &three()).expect("they are ours"),
        };
        Ok((state, loans))
    }

    /// Changes the loans until nothing comes in between.
    async fn change<T>(
        &self,
        mut make: impl FnMut(&mut WindowLoans, &LoanState) -> Option<T>,
    ) -> Option<T> {
        loop {
            let (state, mut loans) = self.look().await.expect("the server answers");
            let before = loans.share(state.window);
            let made = make(&mut loans, &state)?;
            let share = loans.share(state.window);
            let change = LoanChange {
                window: state.window,
                most: if share < before { share } else { MAX_COUNT },
                tokens: 0,
                before: state.loans,
                after: loans
                    .encode(state.window, &three())
                    .expect("they fit")
                    .into(),
                kept: Micros::from_secs(3_600),
            };
            let changed = self.shared.loans(self.counter, Some(change)).await;
            if changed.expect("the server answers").is_written {
                return Some(made);
            }
        }
    }

    async fn ask(&self, peer: usize, want: u64) -> WindowAsk {
        let asked = self.change(|loans, state| Some(loans.ask(peer, state.window, (want, want))));
        asked.await.expect("an ask can be made")
    }

    /// Makes one ask, if the store keeps it.
    async fn try_ask(&self, peer: usize) -> Result<bool, StoreError> {
        let (state, mut loans) = self.look().await?;
        loans.ask(peer, state.window, (1, 1));
        let change = LoanChange {
            window: state.window,
            most: MAX_COUNT,
            tokens: 0,
            before: state.loans,
            after: loans
                .encode(state.window, &three())
                .expect("they fit")
                .into(),
            kept: Micros::from_secs(3_600),
        };
        let changed = self.shared.loans(self.counter, Some(change)).await?;
        Ok(changed.is_written)
    }

    async fn lend(&self, peer: usize, ask: &WindowAsk) -> Option<WindowAnswer> {
        let lent = self.change(|loans, state| {
            let facts = WindowFacts {
                window: state.window,
                count: state.count,
                need_now: 0,
                need_next: 0,
                floor: 0,
                windows: 1,
            };
            loans.lend(peer, ask, &facts).ok()
        });
        lent.await
    }

    async fn accept(&self, peer: usize, answer: &WindowAnswer) {
        let accepted = self.change(|loans, _| loans.accept(peer, answer).then_some(()));
        accepted.await;
    }

    async fn is_admitted(&self) -> bool {
        let decided = decide(&self.store, &[self.step]).await;
        decided.expect("the server answers").allowed
    }
}

/// Borrows all that `from` gives, for `to`.
async fn borrow(all: &[Region], to: usize, from: usize, want: u64) {
    let ask = all[to].ask(from, want).await;
    if let Some(answer) = all[from].lend(to, &ask).await {
        all[to].accept(from, &answer).await;
    }
}

fn regions() -> (Server, Vec<Region>) {
    let server = Server::start();
    let regions = (0..REGIONS).map(|_| Region::new(&server)).collect();
    (server, regions)
}

#[tokio::test]
async fn a_region_admits_what_it_owns_and_holds_less_what_it_lent() {
    let (_server, all) = regions();
    borrow(&all, 0, 1, 40).await;
    let mut admitted = [0; 2];
    for (admitted, region) in admitted.iter_mut().zip(&all) {
        for _ in 0..2 * OWNS {
            *admitted += u64::from(region.is_admitted().await);
        }
    }
    assert_eq!(admitted, [140, 60]);
    // Nothing is left to lend.
    borrow(&all, 0, 1, 40).await;
    assert!(!all[0].is_admitted().await);
    borrow(&all, 0, 2, 1).await;
    assert!(all[0].is_admitted().await);
    assert!(!all[0].is_admitted().await);
}

#[tokio::test]
async fn denials_of_a_share_are_repeated_from_memory_until_it_grows() {
    let (_server, all) = regions();
    for _ in 0..OWNS {
        assert!(all[0].is_admitted().await);
    }
    // A denial is kept for so short a time that the next request may come too late for it.
    let asked = AtomicU64::new(0);
    until("a denial is repeated from memory", async || {
        all[0].shared.loan_demands();
        for _ in 0..8 {
            assert!(!all[0].is_admitted().await);
        }
        let demands = all[0].shared.loan_demands();
        asked.store(
            demands.iter().map(|demand| demand.hits).sum(),
            Ordering::Relaxed,
        );
        all[0].store.denied_from_memory() > 0
    })
    .await;
    assert_eq!(
        asked.into_inner(),
        8,
        "what is lacking is known all the same"
    );
    borrow(&all, 0, 1, 10).await;
    assert!(all[0].is_admitted().await);
}

#[tokio::test]
async fn a_share_in_use_never_becomes_less_than_what_is_counted() {
    let (_server, all) = regions();
    let ask = all[0].ask(1, OWNS).await;
    // Computed before the lender's last hits are counted, and written after them.
    let (state, mut loans) = all[1].look().await.expect("the server answers");
    let facts = WindowFacts {
        window: state.window,
        count: 0,
        need_now: 0,
        need_next: 0,
        floor: 0,
        windows: 1,
    };
    loans.lend(0, &ask, &facts).expect("it is in time");
    for _ in 0..OWNS {
        assert!(all[1].is_admitted().await);
    }
    let late = LoanChange {
        window: state.window,
        most: loans.share(state.window),
        tokens: 0,
        before: state.loans,
        after: loans
            .encode(state.window, &three())
            .expect("they fit")
            .into(),
        kept: Micros::from_secs(3_600),
    };
    let changed = all[1]
        .shared
        .loans(all[1].counter, Some(late.clone()))
        .await;
    assert!(!changed.expect("the server answers").is_written);
    // Neither in another window, nor over loans that were changed meanwhile.
    let elsewhere = LoanChange {
        window: late.window + 1,
        most: MAX_COUNT,
        ..late.clone()
    };
    let changed = all[1].shared.loans(all[1].counter, Some(elsewhere)).await;
    assert!(!changed.expect("the server answers").is_written);
    all[1].ask(2, 1).await;
    let overtaken = LoanChange {
        most: MAX_COUNT,
        ..late
    };
    let changed = all[1].shared.loans(all[1].counter, Some(overtaken)).await;
    assert!(!changed.expect("the server answers").is_written);
}

#[tokio::test]
async fn something_else_in_the_place_of_loans_is_no_share() {
    let (server, all) = regions();
    borrow(&all, 0, 1, 40).await;
    let mut client = server.client();
    let keys = client.ask(&["KEYS", "*:loans"]);
    let ratekeeper_testkit::redis::Reply::Array(keys) = keys else {
        panic!("KEYS is answered by a list");
    };
    for key in keys {
        client.ask(&["SET", &key.text(), "something else"]);
    }
    let looked = all[0].look().await;
    assert_eq!(looked.err(), Some(StoreError::Corrupt));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn shares_that_move_while_they_are_used_up_never_sum_to_more() {
    let (_server, all) = regions();
    let all = Arc::new(all);
    let admitted = use_up(&all).await;
    assert!(admitted > REGIONS as u64 * OWNS / 2, "{admitted}");
}

/// Hits that nodes hold in leases count as used.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn shares_that_move_while_nodes_lease_hits_of_them_never_sum_to_more() {
    let server = Server::start();
    let step = leased(&step(&limit(Algorithm::FixedWindow, OWNS, LASTING), 1));
    let all = (0..REGIONS).map(|_| Region::asking(&server, step));
    let all = Arc::new(all.collect::<Vec<_>>());
    let admitted = use_up(&all).await;
    assert!(admitted > REGIONS as u64 * OWNS / 2, "{admitted}");
    let gauges = all.iter().filter_map(|region| region.shared.lease_gauges());
    let granted: u64 = gauges.map(|gauges| gauges.granted).sum();
    assert!(granted > 0, "nothing was leased");
}

/// Uses up all shares while they move; returns how often a request was admitted.
async fn use_up(all: &Arc<Vec<Region>>) -> u64 {
    let admitted = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for task in 0..6_usize {
        let (all, admitted) = (Arc::clone(all), Arc::clone(&admitted));
        tasks.push(tokio::spawn(async move {
            for turn in 0..150 {
                if all[task % REGIONS].is_admitted().await {
                    admitted.fetch_add(1, Ordering::Relaxed);
                }
                if turn % 8 == task {
                    let to = (task + turn) % REGIONS;
                    borrow(&all, to, (to + 1 + turn % 2) % REGIONS, 7).await;
                }
            }
        }));
    }
    for task in tasks {
        task.await.expect("it does not panic");
    }
    // What is left passes somewhere, and nothing beyond.
    for region in all.iter() {
        while region.is_admitted().await {
            admitted.fetch_add(1, Ordering::Relaxed);
        }
    }
    let admitted = admitted.load(Ordering::Relaxed);
    assert!(admitted <= REGIONS as u64 * OWNS, "{admitted}");
    admitted
}

/// Sentinels name a server that was replaced as a replica, for as long as it is away: it could come back and take over.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lent_while_a_server_that_was_replaced_stays_away() {
    let mut set = Sentinels::start();
    let store = RedisStore::new(sentinel::endpoint(set.ports(), PRIMARY), patient(), home());
    store.greeted().await;
    let limit = limit(Algorithm::FixedWindow, OWNS, LASTING);
    let region = Region::on(store, step(&limit, 1));
    let lends = async || region.try_ask(1).await == Ok(true);
    until("loans are kept by all three servers", lends).await;
    let lost = format!(":{}", set.servers()[0].port());
    set.servers()[0].process().kill();
    until("another server has taken over", async || {
        let is_lost = region.store.shards()[0].shard.ends_with(&lost);
        !is_lost && region.look().await.is_ok()
    })
    .await;
    for _ in 0..20 {
        assert_eq!(region.try_ask(1).await, Err(StoreError::Unavailable));
        assert!(region.is_admitted().await, "requests are decided as before");
    }
    until("operators are told", async || {
        // As nodes do, again and again.
        let _ = region.try_ask(1).await;
        let faults = region.store.faults();
        faults.iter().any(|fault| {
            fault.contains("1 of 2 replicas") && fault.contains("regions lend nothing")
        })
    })
    .await;
    for port in set.ports() {
        Client::connect(*port).ask(&["SENTINEL", "RESET", PRIMARY]);
    }
    until("what is left is enough once it is forgotten", lends).await;
}
