//! Counters that regions count together: random histories beside a window in which all hits count, the ends of
//! windows and silences, denials by what others have used, beside leases and posts, and where something else lies in the place of totals.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use ratekeeper_core::region::counted::{Counted, CountedSums, RegionPost, Silent};
use ratekeeper_core::{
    Algorithm, Limit, LimitSpec, Micros, Mode, Outcome, RegionId, Regions, Timestamp, Verdict,
    Whole,
};
use ratekeeper_store::{
    CounterKey, HeardRegions, LoanCounter, LoanState, Post, Request, Step, StepOutcome, StoreSlot,
};
use ratekeeper_store_redis::script::{
    Call, Group, Item, KeyName, LeaseCall, LeaseOutcome, Script, decode_lease_calls, decode_loans,
};
use ratekeeper_testkit::redis::{Client, Reply, Server};

use crate::loans::first_lease;
use crate::timed_store::{answers, items, load, names, push};

const WINDOW: Micros = Micros::from_secs(60);

/// The limit, of which the shares of ap, eu and us are 75, 150 and 75.
const LIMIT: u64 = 300;

const AP: &str = "ap";
const US: &str = "us";

/// The start of a window, its number, and the boot clock then.
const START: Timestamp = Timestamp::from_secs(1_700_000_040);
const NUMBER: u64 = 1_700_000_040 / 60;
const BOOT: Micros = Micros::from_secs(5_000);

const COUNTED: Counted = Counted {
    interval: Micros::from_secs(1),
    silent: Silent::Share,
};

/// A counter of the region eu.
struct Region {
    client: Client,
    script: &'static Script,
    names: KeyName,
    counter: LoanCounter,
    regions: Arc<Regions>,
    heard: Arc<HeardRegions>,
    now: Timestamp,
    server: Server,
}

impl Region {
    fn new() -> Self {
        let regions = regions(&[(AP, 1), ("eu", 2), (US, 1)]);
        let server = Server::start();
        let mut client = server.client();
        let script = load(&mut client);
        let limit = LimitSpec::new(Algorithm::FixedWindow, LIMIT, WINDOW);
        let limit = Limit::try_new(limit).expect("a valid limit");
        let region = Self {
            client,
            script,
            names: names(),
            counter: LoanCounter {
                key: CounterKey {
                    subject: 1,
                    identity: 2,
                },
                owns: limit,
                whole: Whole::of(&limit),
                counted: Some(COUNTED),
                store: StoreSlot::default(),
            },
            heard: Arc::new(HeardRegions::new(Arc::clone(&regions), BOOT)),
            regions,
            now: START,
            server,
        };
        region.hear(AP);
        region.hear(US);
        region
    }

    /// Goes on with other regions, of whom nothing was heard yet.
    fn restart(&mut self, all: &[(&str, u32)]) {
        self.regions = regions(all);
        self.heard = Arc::new(HeardRegions::new(Arc::clone(&self.regions), self.boot()));
    }

    /// The boot clock, which runs as the store's does.
    fn boot(&self) -> Micros {
        Micros::new(BOOT.get() + self.now.since(START).get())
    }

    fn hear(&self, name: &str) {
        let mut all = self.regions.all().iter();
        let place = all.position(|region| *region.name == *name);
        self.heard.hear(place.expect("there is one"), self.boot());
    }

    fn pass(&mut self, span: Micros) {
        self.now = self.now.after(span);
    }

    /// Lets time pass, in which both others are heard.
    fn passes(&mut self, span: Micros) {
        self.passes_beside(&[AP, US], span);
    }

    /// Lets time pass, in which these are heard.
    fn passes_beside(&mut self, others: &[&str], span: Micros) {
        let end = self.now.after(span);
        while self.now < end {
            self.now = end.min(self.now.after(Micros::from_secs(1)));
            others.iter().for_each(|name| self.hear(name));
        }
    }

    fn step(&self, hits: i64) -> Step {
        Step {
            terms: 1,
            whole: self.counter.whole,
            counted: self.counter.counted,
            hits,
            ..Step::new(self.counter.key, self.counter.owns)
        }
    }

    fn send(&mut self, make: impl FnOnce(&mut Call, &KeyName)) -> Reply {
        let mut call = Call::new();
        call.set_heard(Some((Arc::clone(&self.heard), self.boot())));
        make(&mut call, &self.names);
        let mut pipeline = Vec::new();
        push(self.script, &call, self.now, &mut pipeline);
        self.client.send(&pipeline);
        self.client.read()
    }

    fn check(&mut self, steps: &[Step]) -> (Group, Reply) {
        let group = Group::new(&Request::new(steps, Mode::default(), self.now));
        let reply = self.send(|call, names| call.push(&group, names));
        (group, reply)
    }

    /// Asks for hits; true if they fit.
    fn takes(&mut self, hits: u64) -> bool {
        let (group, reply) = self.check(&[self.step(hits.cast_signed())]);
        answers(&[group], &reply)[0].allowed
    }

    /// The answers to steps of so many hits each, in one request.
    fn asks(&mut self, hits: &[i64]) -> Vec<Outcome> {
        let steps: Vec<Step> = hits.iter().map(|hits| self.step(*hits)).collect();
        let (group, reply) = self.check(&steps);
        let told = answers(&[group], &reply).remove(0);
        let counted = told.outcomes.iter().map(|outcome| match outcome {
            StepOutcome::Counted(outcome) => *outcome,
            other => panic!("{other:?}"),
        });
        counted.collect()
    }

    /// The time until the window ends.
    fn left(&self) -> Micros {
        Micros::new(WINDOW.get() - self.now.since(START).get() % WINDOW.get())
    }

    /// Asserts that so much is left, by using it up.
    fn has_left(&mut self, left: u64) {
        assert!(!self.takes(left + 1), "more than {left}");
        assert!(left == 0 || self.takes(left), "{left}");
        assert!(!self.takes(1), "{left}");
    }

    /// Looks at what was posted; [`None`] if something else lies there.
    fn look(&mut self) -> Option<LoanState> {
        let counter = self.counter;
        let reply = self.send(|call, names| call.push_loans(&counter, None, names));
        decode_loans(items(&reply)).expect("it is an answer")
    }

    fn told(&mut self, name: &str, window: u64, total: u64) -> Option<LoanState> {
        let counter = self.counter;
        let post = RegionPost {
            region: RegionId::of(name),
            window,
            total,
        };
        let reply = self.send(|call, names| call.push_total(&counter, post, names));
        decode_loans(items(&reply)).expect("it is an answer")
    }

    fn keeps(&mut self, name: &str, window: u64, total: u64) -> bool {
        let told = self.told(name, window, total);
        told.expect("totals, or none").is_written
    }

    fn lease(&mut self, target: u64) -> (LeaseCall, Reply) {
        let lease_call = first_lease(&self.counter, target);
        let reply = self.send(|call, names| call.push_lease_call(&lease_call, names));
        (lease_call, reply)
    }

    /// The hits that a node then holds.
    fn leased(&mut self, target: u64) -> u64 {
        let (lease_call, reply) = self.lease(target);
        let outcomes = decode_lease_calls(&[lease_call], items(&reply)).expect("core agrees");
        match &outcomes[0] {
            LeaseOutcome::Settled { holding, .. } => holding.amount,
            other => panic!("{other:?}"),
        }
    }

    fn name(&self, place: impl Fn(&KeyName, CounterKey, &mut Vec<u8>)) -> String {
        let mut name = Vec::new();
        place(&self.names, self.counter.key, &mut name);
        String::from_utf8(name).expect("a name of letters")
    }
}

fn regions(all: &[(&str, u32)]) -> Arc<Regions> {
    let all = all.iter().map(|(name, weight)| ((*name).into(), *weight));
    Arc::new(Regions::try_new("eu", 1, all).expect("valid regions"))
}

#[test]
fn hits_of_all_regions_count_in_the_window_that_they_were_posted_for() {
    let mut region = Region::new();
    assert!(region.takes(40));
    assert!(region.keeps(AP, NUMBER, 100));
    assert!(region.keeps(US, NUMBER, 60));
    assert!(region.keeps(US, NUMBER, 50), "late");
    assert!(region.keeps(US, NUMBER + 1, 200), "its clock is ahead");
    region.has_left(100);
    region.passes(Micros::new(WINDOW.get() - 1));
    region.has_left(0);
    region.passes(Micros::new(1));
    region.has_left(100);
}

#[test]
fn totals_of_other_windows_are_not_kept() {
    let mut region = Region::new();
    for window in [0, NUMBER - 1, NUMBER + 2, 1 << 52] {
        assert!(!region.keeps(AP, window, 200), "{window}");
    }
    let found = region.look().expect("nothing else lies there");
    assert_eq!((found.window, &*found.loans), (NUMBER, &[][..]));
    region.has_left(LIMIT);
    assert!(region.keeps(AP, NUMBER + 1, 200), "the next one");
}

/// After a clock went back the window that was counted goes on, and so do its totals.
#[test]
fn the_window_that_is_counted_has_its_totals_while_a_clock_is_back() {
    let mut region = Region::new();
    region.passes(WINDOW);
    assert!(region.takes(10));
    assert!(region.keeps(AP, NUMBER + 1, 200));
    region.now = START;
    let found = region.look().expect("nothing else lies there");
    assert_eq!((found.window, found.count), (NUMBER + 1, 10));
    region.has_left(90);
}

/// Each region keeps what it has posted, and only that, when regions come and go in the middle of a window.
#[test]
fn totals_stay_those_of_their_regions_while_others_come_and_go() {
    let mut region = Region::new();
    assert!(region.takes(20));
    assert!(region.keeps(AP, NUMBER, 100));
    assert!(region.keeps(US, NUMBER, 60));
    // Two come that are before the others in the order of names. A share is 50, and that of eu 100.
    region.restart(&[("aa", 1), ("ab", 1), (AP, 1), ("eu", 2), (US, 1)]);
    for name in ["aa", "ab", AP, US] {
        region.hear(name);
    }
    region.has_left(LIMIT - 20 - 100 - 60);
    let mut region = Region::new();
    assert!(region.keeps(AP, NUMBER, 100));
    assert!(region.keeps(US, NUMBER, 60));
    // One leaves for good, and another comes in its place.
    region.restart(&[("bb", 1), ("eu", 2), (US, 1)]);
    region.hear("bb");
    region.hear(US);
    assert!(region.keeps("bb", NUMBER, 30));
    assert!(region.keeps(US, NUMBER, 70));
    // One that is silent has used its share of 75, or more.
    region.pass(Micros::from_secs(5));
    region.hear("bb");
    region.has_left(LIMIT - 100 - 75 - 75);
    region.hear(US);
    region.passes_beside(&["bb", US], Micros::from_secs(12));
    region.has_left(75 - 30 + 75 - 70);
}

#[test]
fn a_silent_region_counts_with_its_share_or_what_it_posted() {
    let mut region = Region::new();
    assert!(region.keeps(AP, NUMBER, 10));
    assert!(region.keeps(US, NUMBER, 100));
    region.pass(Micros::from_secs(3));
    assert!(region.takes(20));
    // Not heard for longer than three intervals: a share is 75.
    region.pass(Micros::new(1));
    region.has_left(LIMIT - 20 - 75 - 100);
    region.hear(US);
    region.has_left(0);
    // Heard again, and caught up.
    for _ in 0..10 {
        region.hear(AP);
        region.has_left(0);
        region.pass(Micros::from_secs(1));
    }
    region.hear(AP);
    region.has_left(75 - 10);
}

#[test]
fn alone_a_region_that_hears_nothing_has_the_whole_limit() {
    let mut region = Region::new();
    region.counter.counted = Some(Counted {
        silent: Silent::Alone,
        ..COUNTED
    });
    region.pass(WINDOW);
    assert!(region.keeps(AP, NUMBER + 1, 10));
    region.has_left(LIMIT - 10);
}

#[test]
fn more_than_the_limit_is_as_much_as_nothing_left() {
    let mut region = Region::new();
    assert!(region.keeps(AP, NUMBER, LIMIT));
    assert!(region.keeps(US, NUMBER, LIMIT));
    region.has_left(0);
    assert_eq!(region.leased(16), 0);
}

/// The next window would admit it, whoever has used this one.
#[test]
fn hits_of_others_deny_until_the_window_ends() {
    for (elsewhere, hits) in [
        (LIMIT, 1),
        (LIMIT, 20),
        (LIMIT - 10, 20),
        (2 * LIMIT, LIMIT),
    ] {
        let mut region = Region::new();
        region.passes(Micros::from_secs(20));
        assert!(region.keeps(AP, NUMBER, elsewhere.min(LIMIT)));
        assert!(region.keeps(US, NUMBER, elsewhere.saturating_sub(LIMIT)));
        let denied = region.asks(&[hits.cast_signed()])[0];
        let wait = Micros::from_secs(40);
        assert_eq!(
            (denied.verdict, denied.remaining, denied.retry_after),
            (Verdict::Later, LIMIT.saturating_sub(elsewhere), wait),
            "{hits} beside {elsewhere}"
        );
        assert_eq!((denied.reset_after, denied.full_after), (wait, wait));
        region.passes(Micros::new(wait.get() - 1));
        assert!(!region.takes(hits), "{hits} beside {elsewhere}");
        region.passes(Micros::new(1));
        assert!(region.takes(hits), "{hits} beside {elsewhere}");
    }
}

#[test]
fn a_look_tells_when_others_leave_room_again() {
    let mut region = Region::new();
    assert_eq!(region.asks(&[0])[0].reset_after, Micros::ZERO, "unused");
    assert!(region.keeps(AP, NUMBER, LIMIT - 1));
    let look = region.asks(&[0])[0];
    assert_eq!(
        (look.remaining, look.retry_after, look.reset_after),
        (1, Micros::ZERO, WINDOW)
    );
    assert!(region.keeps(AP, NUMBER, LIMIT));
    let look = region.asks(&[0])[0];
    assert_eq!((look.verdict, look.remaining), (Verdict::Fits, 0));
    assert_eq!(
        (look.retry_after, look.reset_after, look.full_after),
        (WINDOW, WINDOW, WINDOW)
    );
}

#[test]
fn only_more_than_the_whole_limit_never_fits() {
    let mut region = Region::new();
    let above = LIMIT.cast_signed() + 1;
    assert_eq!(region.asks(&[above])[0].verdict, Verdict::Never);
    assert!(region.keeps(AP, NUMBER, 290));
    let denied = region.asks(&[above])[0];
    assert_eq!((denied.verdict, denied.remaining), (Verdict::Never, 10));
    assert_eq!(
        (denied.retry_after, denied.reset_after),
        (Micros::ZERO, WINDOW)
    );
}

#[test]
fn steps_of_a_request_share_what_others_have_left() {
    let mut region = Region::new();
    assert!(region.keeps(AP, NUMBER, 290));
    let told = region.asks(&[6, 6, 4]);
    let told: Vec<_> = told.iter().map(|it| (it.verdict, it.remaining)).collect();
    assert_eq!(
        told,
        [(Verdict::Fits, 4), (Verdict::Later, 4), (Verdict::Fits, 0)]
    );
    let told = region.asks(&[5, LIMIT.cast_signed() - 4]);
    let verdicts: Vec<_> = told.iter().map(|it| it.verdict).collect();
    assert_eq!(verdicts, [Verdict::Fits, Verdict::Never]);
    region.has_left(10);
    // What is given back was used here.
    let back = region.asks(&[-100])[0];
    assert_eq!((back.remaining, back.retry_after), (10, Micros::ZERO));
    region.has_left(10);
}

/// Nodes hold some, and others then use up the limit.
#[test]
fn what_nodes_hold_is_denied_until_the_window_ends_where_others_leave_nothing() {
    let mut region = Region::new();
    assert_eq!(region.leased(100), 18, "a sixteenth");
    assert!(region.keeps(AP, NUMBER, LIMIT));
    let denied = region.asks(&[1])[0];
    assert_eq!((denied.verdict, denied.remaining), (Verdict::Later, 0));
    assert_eq!(denied.retry_after, region.left());
    // The lease is over, and charged.
    region.pass(Micros::from_secs(11));
    let denied = region.asks(&[1])[0];
    assert_eq!(
        (denied.verdict, denied.retry_after),
        (Verdict::Later, region.left())
    );
    let look = region.asks(&[0])[0];
    assert_eq!(
        (look.verdict, look.remaining),
        (Verdict::Later, 0),
        "overdrawn"
    );
    assert_eq!(look.retry_after, region.left());
}

#[test]
fn a_node_that_gets_no_lease_is_told_when_others_leave_room_again() {
    let mut region = Region::new();
    assert!(region.keeps(AP, NUMBER, LIMIT));
    let (lease_call, reply) = region.lease(16);
    let outcomes = decode_lease_calls(&[lease_call], items(&reply)).expect("core agrees");
    let LeaseOutcome::Settled { outcome, .. } = &outcomes[0] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(
        (outcome.look.remaining, outcome.look.retry_after),
        (0, WINDOW)
    );
}

#[test]
fn nodes_lease_of_what_others_have_left() {
    let mut region = Region::new();
    assert!(region.keeps(AP, NUMBER, 140));
    // A sixteenth of 160.
    assert_eq!(region.leased(100), 10);
    let found = region.look().expect("nothing else lies there");
    assert_eq!(found.count, 10, "what nodes hold counts as used");
    let told = region.told(US, NUMBER, 0).expect("totals, or none");
    assert_eq!(told.count, 10, "and is told to whoever posts");
    region.has_left(150);
}

#[test]
fn nodes_lease_of_what_silent_regions_leave() {
    let mut region = Region::new();
    region.pass(Micros::from_secs(4));
    // A sixteenth of 150.
    assert_eq!(region.leased(100), 9);
}

#[test]
fn owed_hits_are_charged_whatever_others_have_used() {
    let mut region = Region::new();
    assert!(region.keeps(AP, NUMBER, LIMIT));
    let post = Post {
        id: 1,
        step: region.step(20),
        age: Micros::ZERO,
        named_by: None,
    };
    let group = Group::of_post(&post);
    let reply = region.send(|call, names| call.push(&group, names));
    assert_eq!(items(&reply)[1], Item::Int(20));
    assert_eq!(region.look().map(|found| found.count), Some(20));
}

/// Steps of a counter that regions count together, and of others, in one request.
#[test]
fn a_request_of_several_limits_is_decided_by_all() {
    let mut region = Region::new();
    assert!(region.keeps(AP, NUMBER, 290));
    let other = CounterKey {
        subject: 1,
        identity: 77,
    };
    let plain = Step {
        hits: 6,
        ..Step::new(other, region.counter.owns)
    };
    let lent = Step {
        key: CounterKey {
            subject: 1,
            identity: 78,
        },
        counted: None,
        ..region.step(6)
    };
    for (turn, allowed) in [true, false].into_iter().enumerate() {
        let steps = [plain, region.step(6), lent];
        let (group, reply) = region.check(&steps);
        let told = &answers(&[group], &reply)[0];
        assert_eq!(told.allowed, allowed, "{turn}");
        let left = told.outcomes.iter().map(|outcome| match outcome {
            StepOutcome::Counted(outcome) => outcome.remaining,
            other => panic!("{other:?}"),
        });
        let left: Vec<u64> = left.collect();
        assert_eq!(left[1], 4);
    }
}

#[test]
fn something_else_in_the_place_of_totals_is_told_and_nothing_is_counted() {
    let sums = |names: &KeyName, key, out: &mut Vec<u8>| names.totals(key, out);
    for other in [
        "something else",
        "\u{3}",
        "\u{3}\u{1}",
        "\u{3}\u{0}x",
        "\u{1}\u{0}",
        "\u{2}\u{0}",
    ] {
        let mut region = Region::new();
        let name = region.name(sums);
        region.client.ask(&["SET", &name, other]);
        assert_eq!(region.look(), None, "{other:?}");
        assert_eq!(region.told(AP, NUMBER, 5), None);
        assert_eq!(region.client.ask(&["GET", &name]).text(), other);
        let (_, reply) = region.check(&[region.step(1)]);
        let told = items(&reply);
        assert_eq!(
            (told[1], told[told.len() - 1]),
            (Item::Int(-1), Item::Int(0))
        );
        let (lease_call, reply) = region.lease(16);
        let outcomes = decode_lease_calls(&[lease_call], items(&reply));
        assert_eq!(outcomes, Ok(vec![LeaseOutcome::Corrupt]));
        let counter = region.name(|names, key, out| names.counter(key, out));
        assert_eq!(region.client.ask(&["EXISTS", &counter]), Reply::Int(0));
    }
    let mut region = Region::new();
    let name = region.name(sums);
    region.client.ask(&["LPUSH", &name, "a list"]);
    assert_eq!(region.look(), None);
    // The other way round.
    let mut region = Region::new();
    let name = region.name(|names, key, out| names.counter(key, out));
    region.client.ask(&["SET", &name, "something else"]);
    assert_eq!(region.look(), None);
    assert_eq!(region.told(AP, NUMBER, 5), None);
    assert_eq!(
        region.server.client().ask(&["EXISTS", &region.name(sums)]),
        Reply::Int(0)
    );
}

/// Kept totals end some time: with the next window, and an hour later by a clock that is told.
#[test]
fn totals_are_kept_until_the_next_window_is_over() {
    let mut region = Region::new();
    region.pass(Micros::from_secs(20));
    assert!(region.keeps(AP, NUMBER, 5));
    let name = region.name(|names, key, out| names.totals(key, out));
    let Reply::Int(left) = region.client.ask(&["PTTL", &name]) else {
        panic!("it has no end");
    };
    let most = 1_000 * (3_600 + 100);
    assert!((most - 5_000..=most).contains(&left), "{left}");
}

#[test]
fn a_total_of_no_hits_is_accepted_and_not_written() {
    let mut region = Region::new();
    let name = region.name(|names, key, out| names.totals(key, out));
    assert!(region.keeps(AP, NUMBER, 0));
    assert_eq!(region.client.ask(&["EXISTS", &name]), Reply::Int(0));
    assert!(!region.keeps(AP, NUMBER + 2, 0), "too late a window");
    assert!(region.keeps(AP, NUMBER, 7));
    assert!(region.keeps(AP, NUMBER, 0), "late");
    region.has_left(LIMIT - 7);
}

#[test]
fn as_many_regions_as_there_can_be_are_kept() {
    let mut region = Region::new();
    for number in 0..80 {
        let name = format!("r{number}");
        assert_eq!(region.keeps(&name, NUMBER, 1), number < 64, "{name}");
    }
    assert!(region.keeps("r63", NUMBER, 2), "one that is there already");
    region.has_left(LIMIT - 65);
}

#[derive(Clone, Debug)]
enum Act {
    /// So many hits are asked for.
    Take(i64),
    /// Time passes, in thousandths of a window.
    Pass(u64),
    /// A region posts a total, for a window so far from the one that is counted.
    Told(&'static str, i64, u64),
    /// A region is heard.
    Hear(&'static str),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let hits = prop_oneof![Just(0_i64), Just(1_i64), 1_i64..40, 1_i64..400, -5_i64..=0];
    let name = || prop_oneof![Just(AP), Just(US)];
    let told = (name(), -2_i64..=3, prop_oneof![Just(0_u64), 0_u64..200]);
    let act = prop_oneof![
        6 => hits.prop_map(Act::Take),
        4 => prop_oneof![0_u64..50, 0_u64..1_500].prop_map(Act::Pass),
        3 => told.prop_map(|(name, window, total)| Act::Told(name, window, total)),
        4 => name().prop_map(Act::Hear),
    ];
    proptest::collection::vec(act, 60)
}

/// A fixed window of the whole limit, in which the hits of all regions count.
#[derive(Default)]
struct Model {
    window: u64,
    /// The hits of this region in that window.
    own: u64,
    sums: CountedSums,
}

impl Model {
    fn take(&mut self, hits: i64, region: &Region) -> Outcome {
        let window = region.now.as_micros() / WINDOW.get();
        if self.window != window {
            (self.window, self.own) = (window, 0);
        }
        let owns = &region.counter.owns;
        let silent = region.heard.silent(&COUNTED, owns, region.boot());
        let elsewhere = self.sums.used(window, &silent).min(LIMIT);
        let back = hits.min(0).unsigned_abs();
        self.own = self.own.saturating_sub(back);
        let (asked, used) = (hits.max(0).unsigned_abs(), self.own + elsewhere);
        // What is given back is always taken in.
        let verdict = match hits < 0 || used + asked <= LIMIT {
            true => Verdict::Fits,
            false if asked > LIMIT => Verdict::Never,
            false => Verdict::Later,
        };
        let taken = if verdict == Verdict::Fits { asked } else { 0 };
        self.own += taken;
        let left = LIMIT.saturating_sub(used + taken);
        let end = Micros::new(WINDOW.get() - region.now.as_micros() % WINDOW.get());
        let end_if = |applies| if applies { end } else { Micros::ZERO };
        let is_used = left < LIMIT;
        Outcome {
            verdict,
            remaining: left,
            reset_after: end_if(is_used),
            full_after: end_if(is_used),
            retry_after: end_if(verdict == Verdict::Later || (hits == 0 && left == 0)),
            delay: Micros::ZERO,
            cut: 0,
        }
    }
}

#[test]
fn a_window_of_all_hits_decides_the_same_on_random_histories() {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::with_cases(80), rng);
    let region = std::cell::RefCell::new(Region::new());
    let played = runner.run(&acts(), |acts| {
        let mut region = region.borrow_mut();
        let region = &mut *region;
        region.counter.key.identity += 1;
        // Since ever silent, until they are heard.
        region.restart(&[(AP, 1), ("eu", 2), (US, 1)]);
        let mut model = Model::default();
        for act in &acts {
            match *act {
                Act::Take(hits) => {
                    let (group, reply) = region.check(&[region.step(hits)]);
                    let told = answers(&[group], &reply)[0].outcomes[0];
                    let expected = StepOutcome::Counted(model.take(hits, region));
                    prop_assert_eq!(told, expected);
                }
                Act::Pass(parts) => region.pass(Micros::new(WINDOW.get() / 1_000 * parts)),
                Act::Told(name, windows, total) => {
                    let own = region.now.as_micros() / WINDOW.get();
                    let window = own.saturating_add_signed(windows);
                    let told = region.told(name, window, total).expect("totals, or none");
                    let post = RegionPost {
                        region: RegionId::of(name),
                        window,
                        total,
                    };
                    let before = model.sums.clone();
                    prop_assert_eq!(told.window, own);
                    prop_assert_eq!(CountedSums::decode(&told.loans), Some(before));
                    prop_assert_eq!(told.is_written, model.sums.take(post, own));
                }
                Act::Hear(name) => region.hear(name),
            }
        }
        Ok(())
    });
    played.unwrap_or_else(|failed| panic!("{failed}"));
}
