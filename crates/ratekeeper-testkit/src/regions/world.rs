//! Regions, their traffic, and the links between them.

use std::collections::{BTreeMap, BTreeSet};

use ratekeeper_core::Micros;
use ratekeeper_core::region::loans::WantedLoan;

use super::clock::Clock;
use super::events::{Event, Events, Message};
use super::plan::{Fault, Kind, RegionGuard, RegionPlan, SECOND};
use super::region::Region;
use crate::random::Random;

/// The time between two looks of a region's nodes at what is due.
const TICK: u64 = SECOND / 10;

#[derive(Debug)]
pub(super) struct World {
    pub(super) plan: RegionPlan,
    random: Random,
    pub(super) regions: Vec<Region>,
    events: Events,
    /// Ordered pairs whose messages are lost.
    cut: BTreeSet<(usize, usize)>,
    /// The times of admissions with their hits, and the hits in each fixed window.
    pub(super) admitted: Vec<(u64, u64)>,
    pub(super) by_window: BTreeMap<u64, u64>,
    /// Hits that were asked for in each window.
    asked: BTreeMap<u64, u64>,
    /// Hits that failovers forgot.
    pub(super) forgotten: u64,
    /// The reports of regions that have learned of new weights: windows from which on others may own more.
    reports: Vec<Option<u64>>,
    pub(super) messages: u64,
    pub(super) has_lent: bool,
    /// The first promise about shares that was broken.
    pub(super) broken: Option<String>,
}

impl World {
    pub(super) fn new(plan: RegionPlan, random: Random) -> Self {
        let shares = plan.shares.iter().enumerate();
        let regions = shares.map(|(at, share)| {
            let (drift, boot_drift) = plan.drifts[at];
            let clock = Clock {
                offset: plan.offsets[at],
                drift,
                boot_drift,
            };
            Region::new(&plan, *share, clock)
        });
        let plan_regions = plan.regions();
        Self {
            regions: regions.collect(),
            plan,
            random,
            events: Events::default(),
            cut: BTreeSet::new(),
            admitted: Vec::new(),
            by_window: BTreeMap::new(),
            asked: BTreeMap::new(),
            forgotten: 0,
            reports: vec![None; plan_regions],
            messages: 0,
            has_lent: false,
            broken: None,
        }
    }

    /// The hits that one counter for all regions would have let pass: requests of one hit, in fixed windows.
    pub(super) fn possible(&self) -> u64 {
        let asked = self.asked.values();
        asked.map(|hits| *hits.min(&self.plan.limit)).sum()
    }

    pub(super) fn run(&mut self) {
        for region in 0..self.regions.len() {
            let (wake, tick) = (self.random.below(SECOND / 100), self.random.below(TICK));
            self.events.put(wake, Event::Wake(region));
            self.events.put(tick, Event::Tick(region));
        }
        for (number, (at, _)) in self.plan.faults.iter().enumerate() {
            self.events.put(*at, Event::Fault(number));
        }
        while let Some((time, event)) = self.events.next() {
            if time >= self.plan.span || self.broken.is_some() {
                break;
            }
            match event {
                Event::Request(region) => {
                    self.request(region, time);
                    self.next_request(region, time);
                }
                Event::Wake(region) => self.next_request(region, time),
                Event::Tick(region) => self.tick(region, time),
                Event::Message(from, to, message) => self.deliver((from, to), message, time),
                Event::Fault(number) => self.fail(number, time),
                Event::Grow(region, from) => self.grow(region, from, time),
            }
        }
    }

    fn next_request(&mut self, region: usize, time: u64) {
        let mut pieces = self.plan.traffic.iter();
        let rate = pieces
            .find(|(end, _)| time < *end)
            .map_or(0, |(_, rates)| rates[region]);
        let (gap, event) = match rate {
            0 => (SECOND / 4, Event::Wake(region)),
            rate => (
                self.random.gap(500 * SECOND * (1 + self.plan.hits) / rate),
                Event::Request(region),
            ),
        };
        self.events.put(time + gap, event);
    }

    fn request(&mut self, at: usize, time: u64) {
        let region = &mut self.regions[at];
        let hits = self.random.within(1, self.plan.hits);
        region.seen += hits;
        if !region.answers() {
            return;
        }
        *self
            .asked
            .entry(region.clock.now(time).as_micros() / self.plan.window)
            .or_default() += hits;
        if region.decide(&self.plan, hits, time) {
            self.admitted.push((time, hits));
            if self.plan.kind == Kind::Windows {
                *self
                    .by_window
                    .entry(region.kept.counter.window())
                    .or_default() += hits;
            }
        }
    }

    fn tick(&mut self, at: usize, time: u64) {
        self.events.put(time + TICK, Event::Tick(at));
        let region = &mut self.regions[at];
        region.measure(&self.plan, time);
        if !region.answers() {
            return;
        }
        region.sync(&self.plan, time);
        for borrower in region.regain(&self.plan, time) {
            self.check_regained(at, borrower, time);
        }
        self.check_shares("regain", time);
        self.report(at, time);
        let region = &mut self.regions[at];
        if self.plan.lends && time >= region.look_at {
            region.look_at = time + self.plan.asking_times().interval.get();
            self.ask_as_wanted(at, time);
        }
    }

    fn ask_as_wanted(&mut self, at: usize, time: u64) {
        for wanted in self.regions[at].wanted(&self.plan, at, time) {
            if wanted.release > 0 {
                self.regions[at].release(&self.plan, (wanted.peer, wanted.release), time);
            }
            self.ask(at, &wanted, time);
        }
    }

    fn ask(&mut self, at: usize, wanted: &WantedLoan, time: u64) {
        let region = &mut self.regions[at];
        let boot = region.clock.boot(time);
        let peer = wanted.peer;
        let asked = match self.plan.kind {
            Kind::Windows => region
                .ask_windows(&self.plan, peer, (wanted.now, wanted.next))
                .map(|ask| (ask.number, Message::AskWindows(ask, wanted.recall))),
            Kind::Log | Kind::Bucket => region
                .ask_timed(&self.plan, (peer, wanted.next), time)
                .map(|ask| (ask.number, Message::AskTimed(ask, wanted.recall))),
        };
        if let Some((number, message)) = asked {
            region.asking.sent(peer, number, boot);
            self.send((at, peer), message, time);
        }
    }

    fn send(&mut self, (from, to): (usize, usize), message: Message, time: u64) {
        self.messages += 1;
        let copies = 1 + usize::from(self.random.happens(self.plan.doubled));
        for _ in 0..copies {
            if self.random.happens(self.plan.lost) {
                continue;
            }
            let way = self.plan.delays[from][to];
            let mut delay = way + self.random.gap((way / 10).max(1));
            if self.plan.lost > 0 && self.random.happens(self.plan.late) {
                delay += self.random.below(3 * self.plan.window);
            }
            self.events
                .put(time + delay, Event::Message(from, to, message));
        }
    }

    fn deliver(&mut self, (from, to): (usize, usize), message: Message, time: u64) {
        if self.cut.contains(&(from, to)) || !self.regions[to].answers() {
            return;
        }
        self.regions[to].sync(&self.plan, time);
        match message {
            Message::AskWindows(ask, recall) => {
                let needs = self.regions[to].needs(&self.plan, time);
                let answer = self.regions[to].lend_windows(&self.plan, (from, &ask), (needs, time));
                if let Some(answer) = answer {
                    self.has_lent |= answer.held.now + answer.held.next > 0;
                    self.send((to, from), Message::AnswerWindows(answer), time);
                }
                self.lent((from, to), recall, time);
            }
            Message::AskTimed(ask, recall) => {
                let needs = self.regions[to].needs(&self.plan, time);
                let answer = self.regions[to].lend_timed(&self.plan, (from, &ask), (needs, time));
                if let Some(answer) = answer {
                    self.has_lent |= answer.amount > 0;
                    self.send((to, from), Message::AnswerTimed(answer), time);
                }
                self.lent((from, to), recall, time);
            }
            Message::AnswerWindows(answer) => {
                if self.sent_at(to, from, answer.number, time).is_some() {
                    let gained = self.regions[to].accept_windows(&self.plan, from, &answer);
                    self.answered(to, from, (answer.spare, gained), time);
                }
            }
            Message::AnswerTimed(answer) => {
                if let Some(elapsed) = self.sent_at(to, from, answer.number, time) {
                    let gained =
                        self.regions[to].accept_timed(&self.plan, (from, &answer), elapsed, time);
                    self.answered(to, from, (answer.spare, gained), time);
                }
            }
        }
    }

    /// After an ask of `from`: what it recalls is given back at the next look.
    fn lent(&mut self, (from, to): (usize, usize), recall: u64, time: u64) {
        self.check_shares("lend", time);
        let region = &mut self.regions[to];
        if recall > 0 && region.holds(from) {
            region.asking.recall(from, recall);
        }
    }

    /// The time since the ask of that number was sent, if its answer is still waited for.
    fn sent_at(&self, at: usize, peer: usize, number: u64, time: u64) -> Option<Micros> {
        let region = &self.regions[at];
        let boot = region.clock.boot(time);
        if !self.plan.has(RegionGuard::LatestAnswer) {
            return Some(Micros::ZERO);
        }
        let sent = region.asking.sent_at(peer, number)?;
        Some(Micros::new(boot.get().saturating_sub(sent.get())))
    }

    fn answered(&mut self, at: usize, peer: usize, (spare, gained): (u64, bool), time: u64) {
        let region = &mut self.regions[at];
        let boot = region.clock.boot(time);
        region.asking.answered(peer, (spare, gained), boot);
        self.check_shares("accept", time);
    }

    fn learn(&mut self, at: usize, time: u64) {
        let Some(owns) = self.plan.new_shares.as_ref().map(|shares| shares[at]) else {
            return;
        };
        self.regions[at].learn(&self.plan, owns, time);
        if !self.plan.has(RegionGuard::ShrunkFirst) {
            self.grow(at, self.regions[at].kept.counter.window(), time);
        }
    }

    /// Records the report of a region; once all have reported, the shares of those that own more grow, one by one.
    fn report(&mut self, at: usize, time: u64) {
        if self.reports[at].is_some() {
            return;
        }
        self.reports[at] = self.regions[at].report(&self.plan, time);
        if self.reports[at].is_none() || self.reports.iter().any(Option::is_none) {
            return;
        }
        let from = self.reports.iter().flatten().max().copied().unwrap_or(0);
        for region in 0..self.regions.len() {
            let delay = self.random.below(SECOND);
            self.events.put(time + delay, Event::Grow(region, from));
        }
    }

    fn grow(&mut self, at: usize, from: u64, time: u64) {
        let owns = self.plan.new_shares.as_ref().map_or(0, |shares| shares[at]);
        if owns > self.regions[at].owns {
            self.regions[at].grow(&self.plan, (from, owns), time);
        }
        self.check_shares("grow", time);
    }

    fn fail(&mut self, number: usize, time: u64) {
        let fault = self.plan.faults[number].1.clone();
        match fault {
            Fault::Cut(pairs) => self.cut.extend(pairs),
            Fault::Heal(pairs) => pairs.iter().for_each(|pair| {
                self.cut.remove(pair);
            }),
            Fault::Die(at) => self.regions[at].is_alive = false,
            Fault::Return(at) => {
                self.regions[at].is_alive = true;
                self.regions[at].restart(&self.plan, true, time);
            }
            Fault::Replicate(at) => {
                let region = &mut self.regions[at];
                region.replica = Some(region.kept.clone());
                region.unreplicated = 0;
            }
            Fault::FailOver(at) => {
                self.forgotten += self.regions[at].fail_over();
                self.regions[at].is_up = false;
            }
            Fault::Up(at) => self.regions[at].is_up = true,
            Fault::Restart(at) => self.regions[at].restart(&self.plan, false, time),
            Fault::ColdStart(at) => self.regions[at].restart(&self.plan, true, time),
            Fault::Learn(at) => self.learn(at, time),
            Fault::Step(at, by) => self.regions[at].step(&self.plan, by),
            Fault::StepUnseen(at, by) => {
                self.regions[at].clock.offset += by;
                self.regions[at].restart(&self.plan, true, time);
            }
        }
    }
}
