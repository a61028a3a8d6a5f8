//! Nodes, a network and a store in simulated time, beside a model that remembers every hit.

use std::collections::BTreeMap;

use ratekeeper_core::synced::{Addition, StoredSum, SyncedCounter};
use ratekeeper_core::{Ask, Limit, Micros, Moment, State, StateMut, Timestamp};

use crate::store::{Guard, Sums, add};
use ratekeeper_testkit::random::Random;

/// Faults of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Faults {
    /// Messages are lost, repeated, and late by up to two intervals.
    pub(crate) network: bool,
    /// Nodes restart, and the store loses everything, or what is new.
    pub(crate) restarts: bool,
    /// A protection that is missing.
    pub(crate) without: Option<Guard>,
}

impl Faults {
    pub(crate) const NONE: Self = Self {
        network: false,
        restarts: false,
        without: None,
    };
    pub(crate) const NETWORK: Self = Self {
        network: true,
        ..Self::NONE
    };
    pub(crate) const ALL: Self = Self {
        restarts: true,
        ..Self::NETWORK
    };
}

const NODES: usize = 4;

/// The most microseconds by which a node's clock is behind the store's.
const BEHIND_MAX: u64 = 5_000;

/// Steps of a run.
const STEPS: u64 = 400;

/// Totals by (sub-)window and node.
type Totals = BTreeMap<Timestamp, BTreeMap<u64, i64>>;

#[derive(Debug)]
struct Node {
    /// Unique; another one after a restart.
    name: u64,
    counter: SyncedCounter,
    /// The time by which its clock is behind.
    behind: u64,
    next_sync: u64,
    /// The call without an answer, and the time at which it is given up.
    flying: Option<(u64, u64)>,
    /// The other nodes' totals that the answers have told.
    known: Totals,
}

/// A message, delivered at a time.
#[derive(Clone, Debug)]
enum Message {
    Call {
        node: u64,
        number: u64,
        additions: Vec<Addition>,
    },
    Answer {
        node: u64,
        number: u64,
        answers: Vec<(Addition, StoredSum)>,
        /// The totals of all nodes in the store at that moment.
        totals: Totals,
    },
}

#[derive(Debug)]
pub(crate) struct World {
    limit: Limit,
    interval: Micros,
    faults: Faults,
    random: Random,
    now: u64,
    nodes: Vec<Node>,
    names: u64,
    store: Sums,
    older: Sums,
    mail: Vec<(u64, Message)>,
    /// Every hit that was admitted.
    truth: Totals,
    pub(crate) admitted: u64,
    pub(crate) denied: u64,
}

impl World {
    pub(crate) fn new(limit: Limit, interval: Micros, faults: Faults, random: Random) -> Self {
        let mut world = Self {
            limit,
            interval,
            faults,
            random,
            now: 1_700_000_000_000_000,
            nodes: Vec::new(),
            names: 0,
            store: Sums::new(),
            older: Sums::new(),
            mail: Vec::new(),
            truth: Totals::new(),
            admitted: 0,
            denied: 0,
        };
        world.nodes = (0..NODES).map(|_| world.node()).collect();
        world
    }

    fn node(&mut self) -> Node {
        self.names += 1;
        Node {
            name: self.names,
            counter: SyncedCounter::new(),
            behind: self.random.between(0, BEHIND_MAX),
            next_sync: self.now,
            flying: None,
            known: Totals::new(),
        }
    }

    fn at(&self, node: usize) -> Moment {
        Moment::at(Timestamp::from_micros(self.now - self.nodes[node].behind))
    }

    /// The length of a (sub-)window.
    fn length(&self) -> u64 {
        let parts = u64::from(self.limit.sub_windows().max(1));
        self.limit.window().get().div_ceil(parts)
    }

    fn start(&self, at: &Moment) -> Timestamp {
        let now = at.now.as_micros();
        Timestamp::from_micros(now - now % self.length())
    }

    /// Plays the run; an error says which promise was broken.
    pub(crate) fn play(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            self.pass();
            self.deliver()?;
            let node = self.random.between(0, NODES as u64) as usize;
            if self.faults.restarts {
                self.restart(node);
            }
            for node in 0..NODES {
                self.sync(node);
            }
            self.request(node)?;
        }
        Ok(())
    }

    /// Lets time pass: often little, sometimes up to the edge of a (sub-)window.
    fn pass(&mut self) {
        self.now += match self.random.between(0, 20) {
            0 => self.length() - self.now % self.length(),
            1 => self.random.between(0, self.length()),
            _ => self.random.between(0, 20_000),
        };
    }

    fn restart(&mut self, node: usize) {
        match self.random.between(0, 200) {
            0 => self.nodes[node] = self.node(),
            1 => self.store.clear(),
            2 => self.store = self.older.clone(),
            // The sum alone is evicted.
            3 => {
                if let Some(sum) = self.store.values_mut().last() {
                    sum.value = None;
                }
            }
            // Or the marks.
            4 => {
                if let Some(sum) = self.store.values_mut().last() {
                    sum.marks.clear();
                }
            }
            5..20 => self.older = self.store.clone(),
            _ => {}
        }
    }

    /// Begins the sync of a node, if it is due.
    fn sync(&mut self, node: usize) {
        let (now, at) = (self.now, self.at(node));
        let (limit, interval) = (self.limit, self.interval);
        let it = &mut self.nodes[node];
        if it.flying.is_some_and(|(_, until)| now >= until) {
            it.flying = None;
            it.counter.doubt();
        }
        if it.flying.is_some() || now < it.next_sync {
            return;
        }
        it.next_sync = now + interval.get();
        let additions = it.counter.additions(&limit, interval, &at, &mut 0);
        let number = additions.first().map_or(0, |it| it.number);
        it.flying = Some((number, now + interval.get()));
        let message = Message::Call {
            node: it.name,
            number,
            additions,
        };
        self.post(message);
    }

    fn post(&mut self, message: Message) {
        let copies = match self.faults.network {
            true => self.random.pick(&[0, 1, 1, 1, 1, 2]),
            false => 1,
        };
        for _ in 0..copies {
            let is_late = self.faults.network && self.random.happens(200);
            let delay = match is_late {
                true => self.random.between(0, 2 * self.interval.get()),
                false => self.random.between(0, 1_000),
            };
            self.mail.push((self.now + delay, message.clone()));
        }
    }

    fn deliver(&mut self) -> Result<(), String> {
        while let Some(next) = (0..self.mail.len()).min_by_key(|it| self.mail[*it].0) {
            if self.mail[next].0 > self.now {
                return Ok(());
            }
            match self.mail.swap_remove(next).1 {
                Message::Call {
                    node,
                    number,
                    additions,
                } => {
                    let answers = self.add(node, &additions)?;
                    let message = Message::Answer {
                        node,
                        number,
                        answers: additions.into_iter().zip(answers).collect(),
                        totals: self.stored(),
                    };
                    self.post(message);
                }
                Message::Answer {
                    node,
                    number,
                    answers,
                    totals,
                } => self.hear(node, number, answers, &totals),
            }
        }
        Ok(())
    }

    /// Adds to the store, which must not take back anything that it has added.
    fn add(&mut self, node: u64, additions: &[Addition]) -> Result<Vec<StoredSum>, String> {
        let before = self.stored();
        let answers = add(&mut self.store, node, additions, self.faults.without);
        let after = self.stored();
        for (start, totals) in &before {
            let (had, has) = (totals.get(&node), after[start].get(&node));
            if had > has {
                return Err(format!(
                    "node {node} had added {had:?} at {start:?}, now {has:?}"
                ));
            }
        }
        Ok(answers)
    }

    /// The totals of all nodes in the store.
    fn stored(&self) -> Totals {
        let totals = |sum: &crate::store::Sum| -> BTreeMap<u64, i64> {
            let marks = sum.marks.iter().filter(|_| sum.value.is_some());
            marks.map(|(node, (_, total))| (*node, *total)).collect()
        };
        let all = self.store.iter();
        all.map(|(start, sum)| (*start, totals(sum))).collect()
    }

    fn hear(
        &mut self,
        name: u64,
        number: u64,
        answers: Vec<(Addition, StoredSum)>,
        totals: &Totals,
    ) {
        let Some(node) = self.nodes.iter().position(|it| it.name == name) else {
            return;
        };
        let (limit, at) = (self.limit, self.at(node));
        let it = &mut self.nodes[node];
        if it.flying.is_none_or(|(flying, _)| flying != number) {
            return;
        }
        it.flying = None;
        for (addition, _) in &answers {
            let told = totals.get(&addition.start).cloned().unwrap_or_default();
            it.known.insert(addition.start, told);
        }
        it.counter.apply_answer(&limit, answers, at.now);
    }

    /// Hits that the node must know of in the (sub-)window: its own, and those that it was told of.
    fn known(&self, node: usize, start: Timestamp) -> i64 {
        let it = &self.nodes[node];
        let own = self
            .truth
            .get(&start)
            .and_then(|totals| totals.get(&it.name));
        let told = it.known.get(&start).into_iter().flatten();
        let others = told.filter(|(name, _)| **name != it.name);
        own.copied().unwrap_or(0) + others.map(|(_, total)| total).sum::<i64>()
    }

    /// The answer of a counter that was charged what the node must know of.
    fn model(&self, node: usize, hits: i64, at: &Moment) -> (bool, u64) {
        let mut heap = Vec::new();
        let current = self.start(at).as_micros();
        let ages = u64::from(self.limit.sub_windows());
        if ages == 0 {
            let words = [
                self.known(node, self.start(at)).unsigned_abs(),
                current,
                0,
                0,
            ];
            let outcome = self
                .limit
                .test(State::Words(words).as_ref(), Ask::hits(hits), at);
            return (outcome.fits(), outcome.remaining);
        }
        for age in (0..=ages).rev() {
            let start = Timestamp::from_micros(current - age * self.length());
            let count = self.known(node, start);
            let charged = self
                .limit
                .charge(StateMut::Heap(&mut heap), count, &Moment::at(start));
            assert!(charged.is_ok(), "a heap does not spill");
        }
        let outcome = self
            .limit
            .test(ratekeeper_core::StateRef::Heap(&heap), Ask::hits(hits), at);
        (outcome.fits(), outcome.remaining)
    }

    fn request(&mut self, node: usize) -> Result<(), String> {
        let (limit, at) = (self.limit, self.at(node));
        let hits = i64::try_from(self.random.between(0, 4)).unwrap_or(0);
        let outcome = self.nodes[node].counter.test(&limit, Ask::hits(hits), &at);
        // A node that remembers what the store has lost knows more than it was told last.
        if !self.faults.restarts {
            let model = self.model(node, hits, &at);
            if (outcome.fits(), outcome.remaining) != model {
                return Err(format!(
                    "node {node} at {:?}: {hits} hits, {outcome:?}, the model: {model:?}",
                    at.now
                ));
            }
        }
        if !outcome.fits() {
            self.denied += 1;
            return Ok(());
        }
        self.nodes[node].counter.charge(&limit, hits, &at);
        self.admitted += hits.unsigned_abs();
        let (start, name) = (self.start(&at), self.nodes[node].name);
        *self
            .truth
            .entry(start)
            .or_default()
            .entry(name)
            .or_default() += hits;
        if limit.sub_windows() > 0 {
            return Ok(());
        }
        let all: i64 = self.truth[&start].values().sum();
        let unknown = all - self.known(node, start);
        let quota = i64::try_from(limit.quota()).unwrap_or(i64::MAX);
        match all <= quota + unknown {
            true => Ok(()),
            false => Err(format!(
                "{all} of {quota}, of which {unknown} were not known"
            )),
        }
    }

    /// Lets all nodes sync over a good network, and compares sums and counters with what was admitted.
    pub(crate) fn settle(&mut self) -> Result<(), String> {
        let without = self.faults.without;
        self.mail.clear();
        if self.now % self.length() < BEHIND_MAX {
            // All of them are in the same window then.
            self.now += BEHIND_MAX;
        }
        for _ in 0..2 {
            for node in 0..NODES {
                let (limit, at) = (self.limit, self.at(node));
                let it = &mut self.nodes[node];
                it.counter.doubt();
                let additions = it.counter.additions(&limit, self.interval, &at, &mut 0);
                let answers = add(&mut self.store, it.name, &additions, without);
                let answers = additions.into_iter().zip(answers);
                it.counter.apply_answer(&limit, answers, at.now);
            }
        }
        for node in 0..NODES {
            self.compare(node)?;
        }
        Ok(())
    }

    /// Compares the sums of the node's (sub-)windows that still count.
    fn compare(&self, node: usize) -> Result<(), String> {
        let at = self.at(node);
        let current = self.start(&at).as_micros();
        let (mut own, mut all) = (0, 0);
        for age in 0..=u64::from(self.limit.sub_windows()) {
            let start = Timestamp::from_micros(current - age * self.length());
            let marks = self.store.get(&start).map(|sum| &sum.marks);
            let truth = self.truth.get(&start).cloned().unwrap_or_default();
            // Nodes that are gone have added what they could.
            let is_gone = |name: &u64| self.nodes.iter().all(|it| it.name != *name);
            let added = |(name, total): (&u64, &i64)| match is_gone(name) {
                true => marks
                    .and_then(|marks| marks.get(name))
                    .map_or(0, |mark| mark.1),
                false => *total,
            };
            let expected: i64 = truth.iter().map(added).sum();
            let value = self
                .store
                .get(&start)
                .and_then(|sum| sum.value)
                .unwrap_or(0);
            if value != expected {
                return Err(format!("the store has {value} of {expected} at {start:?}"));
            }
            own += truth.get(&self.nodes[node].name).copied().unwrap_or(0);
            all += expected;
        }
        let known = self.nodes[node].counter.known(&self.limit, &at);
        let (own, all) = (own.unsigned_abs(), all.unsigned_abs());
        let is_right = match self.faults.restarts {
            // Hits of nodes that are gone, which the store has lost, may be remembered.
            true => known.others >= all - own,
            false => known.others == all - own,
        };
        if known.own != own || known.pending != 0 || !is_right {
            return Err(format!(
                "node {node} knows {known:?} of {own} own, {all} in all"
            ));
        }
        Ok(())
    }
}
