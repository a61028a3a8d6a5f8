//! Shares of regions as the script reads them: at their ends, beside leases and posts, and where something else lies in
//! their place. [`lent`](crate::lent) has random histories of what most requests see.

mod leases;

use ratekeeper_core::lease::{LEASE_MAX, LeaseReport, Terms};
use ratekeeper_core::region::loans::{
    LentPiece, LoanRegions, TimedHeld, TimedLoans, WindowHeld, WindowLoans,
};
use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Moment, State, Timestamp, Whole};
use ratekeeper_store::{
    CounterKey, LoanChange, LoanCounter, LoanState, Post, Request, Step, StepOutcome, StoreSlot,
};
use ratekeeper_store_redis::script::{
    Call, Group, Item, KeyName, LeaseCall, LeaseOutcome, Script, decode_lease_calls, decode_loans,
};
use ratekeeper_testkit::redis::{Client, Reply, Server};

use crate::timed_store::{answers, items, load, names, push};

const WINDOW: Micros = Micros::from_secs(60);

const KEY: CounterKey = CounterKey {
    subject: 1,
    identity: 2,
};

/// Three regions, of which this one owns a third.
const NAMES: [&str; 3] = ["ap", "eu", "us"];
const OWNS: u64 = 100;

/// A moment in a window, and the number of that.
const NOW: Timestamp = Timestamp::from_micros(1_700_000_010_000_000);
const NOW_WINDOW: u64 = 1_700_000_010 / 60;

const GENERATION: u64 = 1_600_000_000_000_000;

/// The first call of a node for a lease on a counter that regions share.
pub(crate) fn first_lease(counter: &LoanCounter, target: u64) -> LeaseCall {
    LeaseCall {
        key: counter.key,
        terms: Terms::from_parts(counter.owns, LEASE_MAX),
        calendar: None,
        lent: Some(counter.whole),
        counted: counter.counted,
        report: LeaseReport {
            node: 7,
            number: 1,
            since: 1,
            spent: 0,
            is_final: false,
            target,
        },
    }
}

/// A counter of a region that owns a third of a limit, and its loans.
struct Region {
    client: Client,
    script: &'static Script,
    names: KeyName,
    counter: LoanCounter,
    now: Timestamp,
    _server: Server,
}

impl Region {
    fn new(algorithm: Algorithm) -> Self {
        Self::of(algorithm, 3 * OWNS, OWNS)
    }

    fn of(algorithm: Algorithm, quota: u64, owns: u64) -> Self {
        let server = Server::start();
        let mut client = server.client();
        let script = load(&mut client);
        let whole = Limit::try_new(LimitSpec::new(algorithm, quota, WINDOW));
        let whole = whole.expect("a valid limit");
        let parts = Whole::of(&whole);
        Self {
            client,
            script,
            names: names(),
            counter: LoanCounter {
                key: KEY,
                owns: whole.holding(owns, parts),
                whole: parts,
                counted: None,
                store: StoreSlot::default(),
            },
            now: NOW,
            _server: server,
        }
    }

    fn step(&self, hits: u64) -> Step {
        Step {
            terms: 1,
            whole: self.counter.whole,
            hits: hits.cast_signed(),
            ..Step::new(self.counter.key, self.counter.owns)
        }
    }

    fn send(&mut self, make: impl FnOnce(&mut Call, &KeyName)) -> Reply {
        let mut call = Call::new();
        call.set_generation(GENERATION);
        make(&mut call, &self.names);
        let mut pipeline = Vec::new();
        push(self.script, &call, self.now, &mut pipeline);
        self.client.send(&pipeline);
        self.client.read()
    }

    fn check(&mut self, hits: u64) -> (Group, Reply) {
        let steps = [self.step(hits)];
        let group = Group::new(&Request::new(&steps, Mode::default(), self.now));
        let reply = self.send(|call, names| call.push(&group, names));
        (group, reply)
    }

    /// Asks for hits; true if they fit.
    fn takes(&mut self, hits: u64) -> bool {
        let (group, reply) = self.check(hits);
        answers(&[group], &reply)[0].allowed
    }

    /// Asserts that the share is that, by a counter that is used up by it.
    fn uses_up(&mut self, share: u64) {
        assert!(
            !self.takes(share + 1),
            "more than {share} at {:?}",
            self.now
        );
        assert!(share == 0 || self.takes(share), "{share} at {:?}", self.now);
        assert!(!self.takes(1), "{share} at {:?}", self.now);
    }

    fn post(&mut self, hits: u64) -> Reply {
        let post = Post {
            id: u128::from(hits) << 64 | u128::from(self.now.as_micros()),
            step: self.step(hits),
            age: Micros::ZERO,
            named_by: None,
        };
        let group = Group::of_post(&post);
        self.send(|call, names| call.push(&group, names))
    }

    fn lease(&mut self, target: u64) -> (LeaseCall, Reply) {
        let lease_call = first_lease(&self.counter, target);
        let reply = self.send(|call, names| call.push_lease_call(&lease_call, names));
        (lease_call, reply)
    }

    /// The hits that a node then holds, and for how long.
    fn leased(&mut self, target: u64) -> (u64, Micros) {
        let (lease_call, reply) = self.lease(target);
        let outcomes = decode_lease_calls(&[lease_call], items(&reply)).expect("core agrees");
        match &outcomes[0] {
            LeaseOutcome::Settled { holding, .. } => (holding.amount, holding.usable),
            other => panic!("{other:?}"),
        }
    }

    /// Looks at the loans, or changes them; [`None`] if something else lies there.
    fn loans(&mut self, change: Option<&LoanChange>) -> Option<LoanState> {
        let counter = self.counter;
        let reply = self.send(|call, names| call.push_loans(&counter, change, names));
        decode_loans(items(&reply)).expect("it is an answer")
    }

    /// A change to these loans from those that are there.
    fn change(&mut self, after: Vec<u8>) -> LoanChange {
        let found = self.loans(None).expect("loans, or none");
        LoanChange {
            window: found.window,
            most: 1 << 50,
            // A bucket becomes full.
            tokens: -(1 << 40),
            before: found.loans,
            after: after.into(),
            kept: Micros::from_secs(3_600),
        }
    }

    fn keep(&mut self, after: Vec<u8>) -> bool {
        let change = self.change(after);
        self.loans(Some(&change)).expect("loans").is_written
    }

    /// Puts something else in the place of the counter, or of its loans.
    fn spoil(&mut self, place: impl Fn(&KeyName, &mut Vec<u8>)) {
        let mut name = Vec::new();
        place(&self.names, &mut name);
        let name = String::from_utf8(name).expect("a name of letters");
        self.client.ask(&["SET", &name, "something else"]);
    }

    fn pass(&mut self, span: Micros) {
        self.now = self.now.after(span);
    }
}

fn regions() -> LoanRegions {
    LoanRegions::named(NAMES)
}

/// Loans of which so much is held for so long, and so much lent.
fn held(parts: [(u64, u64); 2], lent: u64) -> TimedLoans {
    let mut loans = TimedLoans::new(OWNS, 3);
    for (peer, (amount, seconds)) in parts.into_iter().enumerate() {
        loans.peers[peer].held = TimedHeld {
            amount,
            until: NOW.after(Micros::from_secs(seconds)),
            tail: 0,
            generation: GENERATION,
        };
    }
    loans.peers[2].lent.amount = lent;
    loans
}

fn bytes(loans: &TimedLoans) -> Vec<u8> {
    loans.encode(GENERATION, &regions()).expect("they fit")
}

#[test]
fn a_window_has_the_share_of_the_entry_that_it_lies_in() {
    let mut loans = WindowLoans::new(OWNS, 3);
    let piece = |first, last, amount| LentPiece {
        first: NOW_WINDOW + first,
        last: NOW_WINDOW + last,
        amount,
    };
    // More than it owns, as after new weights, in two of them.
    loans.peers[0].lent.pieces = vec![piece(3, 4, 70)];
    loans.peers[1].lent.pieces = vec![piece(1, 6, 40)];
    loans.peers[2].held = WindowHeld {
        first: NOW_WINDOW + 2,
        now: 5,
        next: 20,
        last: NOW_WINDOW + 7,
    };
    let mut region = Region::new(Algorithm::FixedWindow);
    let kept = loans.encode(NOW_WINDOW, &regions()).expect("they fit");
    assert!(region.keep(kept));
    assert_eq!(loans.share(NOW_WINDOW + 3), 20, "never below what is held");
    for window in 0..10 {
        region.uses_up(loans.share(NOW_WINDOW + window));
        region.pass(WINDOW);
    }
    // Before them, as when a clock goes back: that of the first.
    let mut early = Region::new(Algorithm::FixedWindow);
    early.pass(WINDOW);
    let kept = loans.encode(NOW_WINDOW + 1, &regions()).expect("they fit");
    assert!(early.keep(kept));
    early.now = NOW;
    early.uses_up(loans.share(NOW_WINDOW + 1));
}

#[test]
fn a_share_for_a_time_is_over_at_its_end() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::SlidingWindow] {
        for (early, share) in [(1, OWNS + 50), (0, OWNS)] {
            let mut region = Region::new(algorithm);
            assert!(region.keep(bytes(&held([(50, 10), (0, 0)], 0))));
            region.pass(Micros::new(10_000_000 - early));
            region.uses_up(share);
        }
        let mut region = Region::new(algorithm);
        assert!(region.keep(bytes(&held([(50, 10), (0, 0)], OWNS + 30))));
        region.uses_up(50);
    }
}

#[test]
fn a_post_finds_a_bucket_as_low_as_a_request_does() {
    let mut region = Region::new(Algorithm::TokenBucket);
    assert!(region.keep(bytes(&held([(50, 1), (0, 0)], 0))));
    assert!(region.takes(OWNS + 50));
    // The loan is over: what it lost with it is not missing as well. Ten of a hundred a minute come in six seconds.
    region.pass(Micros::from_secs(7));
    let reply = region.post(10);
    assert_eq!(items(&reply)[1], Item::Int(10));
    assert!(!region.takes(5));
}

#[test]
fn something_else_in_the_place_of_loans_is_told_and_nothing_is_counted() {
    for algorithm in [
        Algorithm::FixedWindow,
        Algorithm::TokenBucket,
        Algorithm::SlidingWindow,
    ] {
        let mut region = Region::new(algorithm);
        let is_timed = algorithm != Algorithm::FixedWindow;
        region.spoil(|names, out| names.loans(KEY, out));
        assert_eq!(region.loans(None), None);
        let (_, reply) = region.check(1);
        let told = items(&reply);
        assert_eq!(
            (told[1], told[told.len() - 1]),
            (Item::Int(-1), Item::Int(0))
        );
        if is_timed {
            let reply = region.post(1);
            assert_eq!(items(&reply)[1], Item::Int(-1));
        }
        if algorithm != Algorithm::TokenBucket {
            let (lease_call, reply) = region.lease(16);
            let outcomes = decode_lease_calls(&[lease_call], items(&reply));
            assert_eq!(outcomes, Ok(vec![LeaseOutcome::Corrupt]));
        }
        let mut name = Vec::new();
        region.names.counter(KEY, &mut name);
        let name = String::from_utf8(name).expect("a name of letters");
        assert_eq!(region.client.ask(&["EXISTS", &name]), Reply::Int(0));
        // The other way round.
        let mut region = Region::new(algorithm);
        region.spoil(|names, out| names.counter(KEY, out));
        assert_eq!(region.loans(None), None);
    }
}

/// Every small share, among them those at which groups and their widths change.
#[test]
fn a_log_has_the_groups_of_its_share() {
    let mut region = Region::new(Algorithm::SlidingWindow);
    let whole = region.counter.whole;
    for share in 0..40 {
        region.counter.key.identity = share;
        assert!(region.keep(bytes(&held([(0, 0), (0, 0)], OWNS - share))));
        let limit = region.counter.owns.holding(share, whole);
        let mut state = State::new(limit.shape());
        for turn in 0..60 {
            let hits = 1 + turn % 3;
            let (group, reply) = region.check(hits);
            let told = answers(&[group], &reply)[0].outcomes[0];
            let expected = limit.step(&mut state, hits.cast_signed(), &Moment::at(region.now));
            assert_eq!(told, StepOutcome::Counted(expected), "{share} in {turn}");
            region.pass(Micros::from_millis(1_700));
        }
    }
}

/// The product of this share and its limit is more than a double holds: divided by the limit again, it is a hit less.
#[test]
fn a_bucket_without_a_burst_of_its_own_holds_its_share() {
    let (owns, more) = (88_007_444, 68_408_603);
    let mut region = Region::of(Algorithm::TokenBucket, 3 * owns, owns);
    assert!(region.keep(bytes(&held([(more, 100), (0, 0)], 0))));
    region.uses_up(owns + more);
}
