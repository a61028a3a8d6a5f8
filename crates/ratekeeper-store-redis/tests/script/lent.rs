//! Counters of which regions hold parts for a time: the script and core on the same random histories of requests and loans.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use ratekeeper_core::region::loans::{LoanKind, LoanRegions, LoanTerms, TimedAnswer, TimedLoans};
use ratekeeper_core::{
    Algorithm, Limit, LimitSpec, Micros, Mode, Moment, Outcome, State, StateMut, Timestamp, Whole,
};
use ratekeeper_store::{
    CounterKey, LoanChange, LoanCounter, LoanState, Request, Step, StepOutcome, StoreSlot,
};
use ratekeeper_store_redis::script::{Call, Group, KeyName, Script, decode_loans};
use ratekeeper_testkit::redis::{Client, Server};

use crate::timed_store::{answers, items, load, names, push};

/// The regions.
const NAMES: [&str; 3] = ["ap", "eu", "us"];

/// Histories of each algorithm.
const HISTORIES: u32 = 60;

/// A limit of which regions hold parts.
#[derive(Clone, Copy, Debug)]
struct Shared {
    whole: Limit,
    owns: u64,
}

#[derive(Clone, Debug)]
enum Act {
    /// So many hits are asked for.
    Take(u64),
    /// Time passes: thousandths of the window.
    Pass(u64),
    /// The share changes: what is lent to, and held of, a region, for so many thousandths of the time of a loan; and tokens
    /// come, or leave.
    Change {
        peer: usize,
        lent: u64,
        held: u64,
        lasts: u64,
        tokens: i64,
    },
    /// A new generation begins.
    Renew,
}

fn limits(algorithm: Algorithm) -> impl Strategy<Value = Shared> {
    let quota = prop_oneof![24_u64..200, 1_000_u64..2_000_000, 1_u64 << 21..1 << 30];
    let window = prop_oneof![
        Just(100_u64),
        Just(1_000),
        Just(60_000),
        Just(2_592_000_000)
    ];
    (quota, window, 0_u64..=100, 1_u64..400, any::<bool>()).prop_map(
        move |(quota, window, owned, burst, is_plain)| {
            let is_log = algorithm == Algorithm::SlidingWindow;
            let whole = Limit::try_new(LimitSpec {
                burst: (!is_log && !is_plain).then_some(24.max(quota.min(1 << 20) * burst / 100)),
                ..LimitSpec::new(algorithm, quota, Micros::from_millis(window))
            });
            Shared {
                whole: whole.expect("a valid limit"),
                owns: quota * owned / 100,
            }
        },
    )
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let hits = prop_oneof![Just(1_u64), 1_u64..20, 1_u64..3_000_000];
    let pass = prop_oneof![0_u64..20, 0_u64..3_000];
    let change = (
        0..3_usize,
        0_u64..=100,
        0_u64..=100,
        0_u64..=1_000,
        -40_i64..40,
    );
    let act = prop_oneof![
        6 => hits.prop_map(Act::Take),
        4 => pass.prop_map(Act::Pass),
        2 => change.prop_map(|(peer, lent, held, lasts, tokens)| Act::Change { peer, lent, held, lasts, tokens }),
        1 => Just(Act::Renew),
    ];
    proptest::collection::vec(act, 60)
}

/// A counter as core keeps it.
struct Model {
    shared: Shared,
    loans: TimedLoans,
    state: State,
    now: Timestamp,
    generation: u64,
}

impl Model {
    fn limit(&self, share: u64) -> Limit {
        self.shared
            .whole
            .holding(share, Whole::of(&self.shared.whole))
    }

    /// The loans without those that are over, the share, and the state as it then is.
    fn read(&self) -> (TimedLoans, u64, State) {
        let (mut loans, mut state) = (self.loans.clone(), self.state.clone());
        while let Some((peer, end)) = loans.over(self.now, self.generation) {
            let (before, held) = (loans.share(), loans.peers[peer].held);
            loans.drop_held(peer, end);
            let end = match held.generation == self.generation {
                true => held.until,
                false => held.until.min(Timestamp::from_micros(self.generation)),
            };
            if let State::Words(words) = &mut state {
                let after = self.limit(loans.share());
                self.limit(before)
                    .lower(&after, StateMut::Words(words), end);
            }
        }
        let share = loans.share();
        (loans, share, state)
    }

    fn take(&mut self, hits: u64) -> Outcome {
        let (_, share, mut state) = self.read();
        let limit = self.limit(share);
        let outcome = limit.step(&mut state, hits.cast_signed(), &Moment::at(self.now));
        if outcome.fits() {
            self.state = state;
        }
        outcome
    }
}

/// The same counter in Redis.
struct Redis<'a> {
    client: &'a mut Client,
    script: &'a Script,
    names: KeyName,
    counter: LoanCounter,
}

impl Redis<'_> {
    fn ask(
        &mut self,
        model: &Model,
        make: impl FnOnce(&mut Call, &KeyName),
    ) -> ratekeeper_testkit::redis::Reply {
        let mut call = Call::new();
        call.set_generation(model.generation);
        make(&mut call, &self.names);
        let mut pipeline = Vec::new();
        push(self.script, &call, model.now, &mut pipeline);
        self.client.send(&pipeline);
        self.client.read()
    }

    fn take(&mut self, model: &Model, hits: u64) -> Outcome {
        let step = Step {
            terms: 1,
            whole: self.counter.whole,
            hits: hits.cast_signed(),
            ..Step::new(self.counter.key, self.counter.owns)
        };
        let group = Group::new(&Request::new(&[step], Mode::default(), model.now));
        let reply = self.ask(model, |call, names| call.push(&group, names));
        // The answers are computed by core from the state and the share that the script tells, and compared.
        let verdicts = answers(&[group], &reply);
        match verdicts[0].outcomes[0] {
            StepOutcome::Counted(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    fn loans(&mut self, model: &Model, change: Option<&LoanChange>) -> LoanState {
        let counter = self.counter;
        let reply = self.ask(model, |call, names| {
            call.push_loans(&counter, change, names)
        });
        let state = decode_loans(items(&reply)).expect("it is an answer");
        state.expect("the keys hold loans and a counter")
    }
}

/// Makes the loans with a region be those amounts, and moves tokens; in both, if nothing forbids it.
fn change(model: &mut Model, redis: &mut Redis<'_>, act: &Act) {
    let &Act::Change {
        peer,
        lent,
        held,
        lasts,
        tokens,
    } = act
    else {
        return;
    };
    let kind = LoanKind::of(&model.shared.whole).expect("it can be lent");
    let found = redis.loans(model, None);
    let (mut loans, before, mut state) = model.read();
    assert_eq!(
        found.loans.is_empty(),
        model.loans.peers.iter().all(|peer| peer.asked == 0)
    );
    let (owns, quota) = (model.shared.owns, model.shared.whole.quota());
    loans.peers[peer].lent.amount = 0;
    loans.peers[peer].lent.amount = (owns - loans.lent()) * lent / 100;
    let time = 10 * model.shared.whole.window().get();
    let terms = LoanTerms {
        window: model.shared.whole.window(),
        time: Micros::new(time),
        margin: Micros::ZERO,
    };
    let ask = loans.ask(peer, 0, None, model.now);
    let answer = TimedAnswer {
        number: ask.number,
        amount: (quota - owns) / 3 * held / 100,
        tokens: 0,
        spare: 0,
    };
    let elapsed = Micros::new(time / 1_000 * (1_000 - lasts));
    loans.accept(
        peer,
        &answer,
        (elapsed, &terms),
        (model.now, model.generation),
    );
    let after = loans.share();
    // More than a bucket holds neither leaves nor comes.
    let (from, to) = (model.limit(before), model.limit(after));
    let room = to.capacity().saturating_sub(from.capacity()).cast_signed();
    let tokens = match kind {
        LoanKind::Bucket => tokens.max(-room),
        LoanKind::Windows | LoanKind::Log => 0,
    };
    let most = match kind {
        LoanKind::Bucket => from.capacity().saturating_sub(tokens.max(0).unsigned_abs()),
        LoanKind::Windows | LoanKind::Log => after,
    };
    let written = redis.loans(
        model,
        Some(&LoanChange {
            window: 0,
            most,
            tokens,
            before: found.loans.clone(),
            after: loans
                .encode(model.generation, &LoanRegions::named(NAMES))
                .expect("they fit")
                .into(),
            kept: Micros::new(20 * time),
        }),
    );
    assert_eq!(written.count, found.count);
    assert_eq!(written.is_written, found.count <= most);
    if let (State::Words(words), LoanKind::Bucket) = (&state, kind) {
        let level = from.test(
            ratekeeper_core::StateRef::Words(words),
            ratekeeper_core::Ask { taken: 0, hits: 0 },
            &Moment::at(model.now),
        );
        assert_eq!(level.remaining, from.capacity().saturating_sub(found.count));
    }
    if written.is_written {
        if let State::Words(words) = &mut state {
            from.resize(&to, StateMut::Words(words), tokens, model.now);
        }
        (model.loans, model.state) = (loans, state);
    }
}

fn plays(algorithm: Algorithm) {
    let server = Server::start();
    let mut client = server.client();
    let script = load(&mut client);
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::with_cases(HISTORIES), rng);
    let names = names();
    let client = std::cell::RefCell::new(client);
    let numbers = std::cell::Cell::new(0);
    let played = runner.run(&(limits(algorithm), acts()), |(shared, acts)| {
        let whole = Whole::of(&shared.whole);
        let start = Timestamp::from_secs(1_700_000_000);
        let mut model = Model {
            shared,
            loans: TimedLoans::new(shared.owns, NAMES.len()),
            state: State::new(shared.whole.shape()),
            now: start,
            generation: start.as_micros(),
        };
        numbers.set(numbers.get() + 1);
        let mut client = client.borrow_mut();
        let mut redis = Redis {
            client: &mut client,
            script,
            names: names.clone(),
            counter: LoanCounter {
                key: CounterKey {
                    subject: 1,
                    identity: numbers.get(),
                },
                owns: shared.whole.holding(shared.owns, whole),
                whole,
                counted: None,
                store: StoreSlot::default(),
            },
        };
        for act in &acts {
            match act {
                Act::Take(hits) => {
                    let (told, expected) = (redis.take(&model, *hits), model.take(*hits));
                    prop_assert_eq!(told, expected);
                }
                Act::Pass(parts) => {
                    let span = shared.whole.window().get() / 1_000 * parts;
                    model.now = model.now.after(Micros::new(span));
                }
                Act::Change { .. } => change(&mut model, &mut redis, act),
                Act::Renew => model.generation = model.now.as_micros(),
            }
        }
        Ok(())
    });
    played.unwrap_or_else(|failed| panic!("{failed}"));
}

#[test]
fn a_token_bucket_is_under_its_share() {
    plays(Algorithm::TokenBucket);
}

#[test]
fn gcra_is_under_its_share() {
    plays(Algorithm::Gcra);
}

#[test]
fn a_sliding_window_is_under_its_share() {
    plays(Algorithm::SlidingWindow);
}
