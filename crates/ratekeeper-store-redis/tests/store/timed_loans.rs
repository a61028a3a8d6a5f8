//! Loans for a time, of buckets and logs that are used up meanwhile, by the script that users run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::region::loans::{
    LoanRegions, LoanTerms, TimedAnswer, TimedAsk, TimedFacts, TimedLoans, TimedUse,
};
use ratekeeper_core::{Algorithm, MAX_COUNT, Micros, Whole};
use ratekeeper_store::{LoanChange, LoanCounter, LoanState, Step, StoreSlot};
use ratekeeper_store_redis::RedisStore;
use ratekeeper_stores::SharedStore;
use ratekeeper_testkit::redis::Server;

use crate::leases::leased;
use crate::support::{LASTING, decide, limit, patient, step, store, until};

const REGIONS: usize = 3;

/// The hits that each region owns.
const OWNS: u64 = 100;

/// The regions.
const NAMES: [&str; REGIONS] = ["ap", "eu", "us"];

const TERMS: LoanTerms = LoanTerms {
    window: LASTING,
    time: Micros::from_secs(600),
    margin: Micros::from_secs(60),
};

fn three() -> LoanRegions {
    LoanRegions::named(NAMES)
}

struct Region {
    store: RedisStore,
    shared: Arc<dyn SharedStore>,
    counter: LoanCounter,
    step: Step,
    is_bucket: bool,
}

impl Region {
    /// A region whose nodes ask for what `make` makes of a step.
    async fn new(server: &Server, algorithm: Algorithm, make: fn(&Step) -> Step) -> Self {
        let store = store(server, patient());
        let whole = limit(algorithm, REGIONS as u64 * OWNS, LASTING);
        let parts = Whole::of(&whole);
        let step = Step {
            terms: 1,
            whole: parts,
            ..make(&step(&whole.holding(OWNS, parts), 1))
        };
        let region = Self {
            shared: store.shared(),
            store,
            counter: LoanCounter {
                key: step.key,
                owns: step.limit,
                whole: parts,
                counted: None,
                store: StoreSlot::default(),
            },
            step,
            is_bucket: algorithm.has_burst(),
        };
        until("the generation of the region is known", async || {
            region.look().await.0.generation > 0
        })
        .await;
        region
    }

    async fn look(&self) -> (LoanState, TimedLoans) {
        let state = self.shared.loans(self.counter, None).await;
        let state = state.expect("the server answers");
        let loans = match state.loans.is_empty() {
            true => TimedLoans::new(OWNS, REGIONS),
            false => TimedLoans::decode(&state.loans, OWNS, &three()).expect("ours"),
        };
        (state, loans)
    }

    /// Changes the loans until nothing comes in between; `make` returns the tokens that leave, too.
    async fn change<T>(
        &self,
        mut make: impl FnMut(&mut TimedLoans, &LoanState) -> Option<(T, i64)>,
    ) -> Option<T> {
        loop {
            let (state, mut loans) = self.look().await;
            let before = loans.share();
            let (made, tokens) = make(&mut loans, &state)?;
            let share = loans.share();
            let change = LoanChange {
                window: 0,
                most: match self.is_bucket {
                    true => before - tokens.max(0).unsigned_abs(),
                    false if share < before => share,
                    false => MAX_COUNT,
                },
                tokens,
                before: state.loans.clone(),
                after: loans
                    .encode(state.generation, &three())
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

    async fn ask(&self, peer: usize, want: u64) -> TimedAsk {
        let window = (!self.is_bucket).then_some(LASTING);
        let asked = self.change(|loans, state| Some((loans.ask(peer, want, window, state.at), 0)));
        asked.await.expect("an ask can be made")
    }

    async fn lend(&self, peer: usize, ask: &TimedAsk) -> Option<TimedAnswer> {
        let lent = self.change(|loans, state| {
            let used = match self.is_bucket {
                true => TimedUse::Bucket(loans.share() - state.count, self.counter.whole),
                false => TimedUse::Log(state.count),
            };
            let facts = TimedFacts {
                used,
                need: 0,
                floor: 0,
            };
            let reply = loans.lend(peer, ask, &facts).ok()?;
            Some((reply.answer, reply.leaving))
        });
        lent.await
    }

    async fn accept(&self, peer: usize, answer: &TimedAnswer) {
        let accepted = self.change(|loans, state| {
            let now = (state.at, state.generation);
            let is_taken = loans.accept(peer, answer, (Micros::ZERO, &TERMS), now);
            is_taken.then_some(((), -answer.tokens.cast_signed()))
        });
        accepted.await;
    }

    async fn is_admitted(&self) -> bool {
        let decided = decide(&self.store, &[self.step]).await;
        decided.expect("the server answers").allowed
    }

    async fn admitted(&self, times: u64) -> u64 {
        let mut admitted = 0;
        for _ in 0..times {
            admitted += u64::from(self.is_admitted().await);
        }
        admitted
    }
}

/// Borrows what `from` gives, for `to`.
async fn borrow(all: &[Region], to: usize, from: usize, want: u64) {
    let ask = all[to].ask(from, want).await;
    if let Some(answer) = all[from].lend(to, &ask).await {
        all[to].accept(from, &answer).await;
    }
}

async fn regions(algorithm: Algorithm) -> (Server, Vec<Region>) {
    asking(algorithm, |step| *step).await
}

async fn asking(algorithm: Algorithm, make: fn(&Step) -> Step) -> (Server, Vec<Region>) {
    let server = Server::start();
    let mut regions = Vec::new();
    for _ in 0..REGIONS {
        regions.push(Region::new(&server, algorithm, make).await);
    }
    (server, regions)
}

#[tokio::test]
async fn a_bucket_gives_tokens_along_with_its_share() {
    let (_server, all) = regions(Algorithm::TokenBucket).await;
    // Ninety of a hundred are there, and half of the share moves: so does half of them.
    assert_eq!(all[1].admitted(10).await, 10);
    borrow(&all, 0, 1, 100).await;
    assert_eq!(all[0].admitted(2 * OWNS).await, OWNS + 45);
    assert_eq!(all[1].admitted(2 * OWNS).await, 45);
}

#[tokio::test]
async fn a_log_gives_what_it_does_not_count() {
    let (_server, all) = regions(Algorithm::SlidingWindow).await;
    assert_eq!(all[1].admitted(70).await, 70);
    borrow(&all, 0, 1, 100).await;
    // Half of the hundred that are spare are asked for, and thirty are not used.
    assert_eq!(all[0].admitted(2 * OWNS).await, OWNS + 30);
    assert_eq!(all[1].admitted(2 * OWNS).await, 0);
}

#[tokio::test]
async fn a_loan_counts_in_the_generation_that_it_was_taken_in() {
    let (server, all) = regions(Algorithm::SlidingWindow).await;
    borrow(&all, 0, 1, 40).await;
    let (state, loans) = all[0].look().await;
    assert_eq!(loans.share(), OWNS + 40);
    // As if no node had been there to see the clock.
    let mut client = server.client();
    let ratekeeper_testkit::redis::Reply::Array(keys) = client.ask(&["KEYS", "*region-gen"]) else {
        panic!("KEYS is answered by a list");
    };
    for key in keys {
        client.ask(&["DEL", &key.text()]);
    }
    until("a new generation has begun", async || {
        let generation = all[0].look().await.0.generation;
        generation > 0 && generation != state.generation
    })
    .await;
    assert_eq!(all[0].admitted(2 * OWNS).await, OWNS);
}

async fn never_more(algorithm: Algorithm, make: fn(&Step) -> Step) -> Arc<Vec<Region>> {
    let (_server, all) = asking(algorithm, make).await;
    let all = Arc::new(all);
    let admitted = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for task in 0..6_usize {
        let (all, admitted) = (Arc::clone(&all), Arc::clone(&admitted));
        tasks.push(tokio::spawn(async move {
            for turn in 0..150 {
                admitted.fetch_add(all[task % REGIONS].admitted(1).await, Ordering::Relaxed);
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
    for region in all.iter() {
        while region.is_admitted().await {
            admitted.fetch_add(1, Ordering::Relaxed);
        }
    }
    let admitted = admitted.load(Ordering::Relaxed);
    let most = limit(algorithm, REGIONS as u64 * OWNS, LASTING).most_in_any_window();
    // A bucket fills up again only in decades.
    let most = most.map_or(0, |most| {
        if algorithm.has_burst() {
            REGIONS as u64 * OWNS
        } else {
            most
        }
    });
    assert!(admitted <= most, "{admitted}");
    assert!(admitted > REGIONS as u64 * OWNS / 2, "{admitted}");
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn buckets_whose_shares_move_while_they_are_used_up_never_admit_more() {
    never_more(Algorithm::TokenBucket, |step| *step).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn logs_whose_shares_move_while_they_are_used_up_never_admit_more() {
    never_more(Algorithm::SlidingWindow, |step| *step).await;
}

/// Hits that nodes hold in leases count as used, and end before the share.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn logs_whose_shares_move_while_nodes_lease_hits_of_them_never_admit_more() {
    let all = never_more(Algorithm::SlidingWindow, leased).await;
    let gauges = all.iter().filter_map(|region| region.shared.lease_gauges());
    let granted: u64 = gauges.map(|gauges| gauges.granted).sum();
    assert!(granted > 0, "nothing was leased");
}
