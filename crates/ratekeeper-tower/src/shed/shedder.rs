//! Takes a request through all shedders.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Response};
use parking_lot::Mutex;
use ratekeeper_core::Timestamp;
use ratekeeper_http::answer::{BodyForm, Form, HeaderLines, Refusal};
use ratekeeper_rules::{AdaptiveShed, FleetShed, ShedMode, ShedRules, WorkerShed};
use ratekeeper_shed::{
    AdaptiveBounds, CLASSES_MAX, Class, ClassCount, Effect, FLEET_CELLS, FleetCell, FleetTerms,
    FleetUsage, Gate, Round, Share, Threshold, WorkerShedder, WorkerTerms,
};

use super::counts::Tallies;
use super::processors::Processors;
use super::{ClassState, FleetState, Passage, ShedContext, ShedCounts, SiteState};

/// Seconds after which a client that was shed should come back.
const RETRY_SECS: u64 = 1;

/// The shedder that refused a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shed {
    /// The client's deadline had passed before its turn came.
    Deadline,
    /// The fleet-usage shedder.
    Fleet,
    /// The worker-utilisation shedder.
    Workers,
    /// The adaptive concurrency limit.
    Adaptive,
    /// The queue for a place at the upstream.
    Queue,
}

impl Shed {
    /// All shedders, in the order in which a request meets them.
    pub const ALL: [Self; 5] = [
        Self::Deadline,
        Self::Fleet,
        Self::Workers,
        Self::Adaptive,
        Self::Queue,
    ];

    /// The name in answers, logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Fleet => "fleet",
            Self::Workers => "workers",
            Self::Adaptive => "adaptive",
            Self::Queue => "queue",
        }
    }

    const fn message(self) -> &'static str {
        match self {
            Self::Deadline => "the client's deadline had passed before its turn came",
            Self::Fleet => "the rest of the fleet is reserved for critical requests",
            Self::Workers => "overloaded: less important requests are refused for now",
            Self::Adaptive => "overloaded: the service has as many requests as it can work on",
            Self::Queue => "overloaded: no place was free at the service in time",
        }
    }

    /// The answer to a request with these headers: 503 with `Retry-After`, or the gRPC status `UNAVAILABLE`.
    #[must_use]
    pub fn response(self, headers: &HeaderMap, usual: BodyForm) -> Response<Bytes> {
        let refusal = Refusal::Shed {
            layer: self.name(),
            message: self.message(),
            retry_after: RETRY_SECS,
        };
        let form = Form::wanted(headers, usual);
        let mut response = refusal.response(&form, HeaderLines::new());
        // For loggers, and for the layer that gives back what the request took from its rate limits.
        response.extensions_mut().insert(Arc::new(refusal));
        response
    }
}

/// One service behind a shedder: an upstream, or this process. Shared by all threads.
#[derive(Debug)]
pub struct Site {
    pub(super) gate: Gate,
    workers: WorkerShedder,
    /// The bounds of the gate, packed: the rules may change them.
    bounds: AtomicU64,
    /// The processors that its requests are worked on with, if it is in this process.
    processors: Option<Processors>,
}

/// The bounds without an adaptive shedder: then the limit only tells workers what the service can take.
const UNBOUNDED: AdaptiveBounds = AdaptiveBounds {
    min: 1,
    max: 1_000_000,
};

impl Default for Site {
    fn default() -> Self {
        Self {
            gate: Gate::new(UNBOUNDED),
            workers: WorkerShedder::default(),
            bounds: AtomicU64::new(packed(UNBOUNDED)),
            processors: None,
        }
    }
}

const fn packed(bounds: AdaptiveBounds) -> u64 {
    (bounds.min as u64) << 32 | bounds.max as u64
}

impl Site {
    /// A service in this process, which is also as busy as its processors are.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self {
            processors: Some(Processors::new()),
            ..Self::default()
        }
    }

    /// The utilisation since the last call: that of the adaptive limit, or of the processors if that is higher.
    fn take_utilisation(&self, effect: Effect) -> f64 {
        let processors = self.processors.as_ref();
        let used = processors.map_or(0.0, Processors::take_utilisation);
        self.gate.take_utilisation(effect).max(used)
    }

    /// The state of its controllers, as `shedder` sees them. Without requests for a second nothing is to be shed.
    #[must_use]
    pub fn state(&self, shedder: &Shedder) -> SiteState {
        let (unloaded, average) = self.gate.round_trips();
        let workers = self.workers.state(shedder.now());
        let (utilisation, share_shed) =
            workers.map_or((0.0, 0.0), |it| (it.utilisation, it.share_shed));
        SiteState {
            limit: self.gate.limit(),
            in_flight: self.gate.in_flight(),
            unloaded: unloaded.into(),
            average: average.into(),
            utilisation,
            share_shed,
        }
    }

    /// The treatment of each class, the least important first.
    pub fn classes(&self, shedder: &Shedder) -> impl Iterator<Item = ClassState> {
        let count = ClassCount::new(shedder.rules.lock().priorities.len());
        let workers = self.workers.state(shedder.now());
        let threshold = workers.map_or(Threshold::NOTHING, |it| it.threshold);
        (0..)
            .map(Class::new)
            .take(count.get())
            .map(move |class| ClassState {
                limit: self.gate.limit_of(class, count, Share::Within),
                part_shed: threshold.part_of(class),
            })
    }

    /// Sets the bounds of the adaptive limit as the rules say that `shedder` saw last.
    pub fn follow_rules_of(&self, shedder: &Shedder) {
        let rules = shedder.rules.lock().adaptive;
        self.follow(rules);
    }

    fn follow(&self, rules: Option<AdaptiveShed>) {
        let wanted = rules.map_or(UNBOUNDED, |rules| AdaptiveBounds {
            min: rules.min,
            max: rules.max,
        });
        // Relaxed: two threads may both set the same bounds.
        if self.bounds.swap(packed(wanted), Ordering::Relaxed) != packed(wanted) {
            self.gate.set_bounds(wanted);
        }
    }
}

/// Sheds requests by the rules that each of them brings along. One for all sites of a process.
#[derive(Debug)]
pub struct Shedder {
    begun: Instant,
    pub(super) fleet: FleetUsage,
    enforced: Tallies,
    shadow: Tallies,
    /// The rules that were seen last, and their address, to compare without a lock.
    rules: Mutex<Arc<ShedRules>>,
    rules_at: AtomicUsize,
    /// The names of the classes by the cells that their requests in flight count in.
    cells: Mutex<Vec<String>>,
    /// Rules without shedders.
    none: Arc<ShedRules>,
}

impl Default for Shedder {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            fleet: FleetUsage::default(),
            enforced: Tallies::default(),
            shadow: Tallies::default(),
            rules: Mutex::new(Arc::default()),
            rules_at: AtomicUsize::new(0),
            cells: Mutex::default(),
            none: Arc::default(),
        }
    }
}

impl Shedder {
    /// Takes a request to `site` through all shedders in use: its deadline, the fleet, the workers, the adaptive limit.
    ///
    /// # Errors
    /// The shedder that refuses it.
    pub fn admit(
        self: &Arc<Self>,
        site: &Arc<Site>,
        context: &ShedContext,
    ) -> Result<Passage, Shed> {
        self.observe_rules(&context.rules);
        let begun = Instant::now();
        let rules = &*context.rules;
        if context.deadline.is_some_and(|deadline| begun >= deadline) {
            let mode = match rules.is_enforced() {
                true => ShedMode::On,
                false => ShedMode::Shadow,
            };
            self.shed(Shed::Deadline, mode, context.class)?;
        }
        if let Some(fleet) = rules.fleet {
            self.ask_fleet(fleet, context)?;
        }
        let mut passage = Passage::new(self, context);
        if is_on(rules.workers.map(|it| it.mode)) || is_on(rules.adaptive.map(|it| it.mode)) {
            self.ask_site(site, context, begun, &mut passage)?;
        }
        Ok(passage)
    }

    fn ask_fleet(&self, fleet: FleetShed, context: &ShedContext) -> Result<(), Shed> {
        let terms = FleetTerms {
            capacity: fleet.capacity,
            reserve_percent: fleet.reserve_percent,
        };
        match fleet.mode == ShedMode::Off
            || self.fleet.admits(context.class, context.classes(), terms)
        {
            true => Ok(()),
            false => self.shed(Shed::Fleet, fleet.mode, context.class),
        }
    }

    fn ask_site(
        &self,
        site: &Arc<Site>,
        context: &ShedContext,
        begun: Instant,
        passage: &mut Passage,
    ) -> Result<(), Shed> {
        let rules = &*context.rules;
        site.follow(rules.adaptive);
        let (class, classes) = (context.class, context.classes());
        let share = match rules.workers.filter(|it| it.mode != ShedMode::Off) {
            Some(workers) => self.ask_workers(site, workers, context)?,
            None => Share::Within,
        };
        // In shadow mode it must not make the gate refuse what that lets in without it.
        let share = match rules.workers.map(|it| it.mode) {
            Some(ShedMode::On) => share,
            _ => Share::Within,
        };
        let mode = rules.adaptive.map_or(ShedMode::Off, |it| it.mode);
        let place = match mode {
            ShedMode::On => match site.gate.enter(class, classes, share) {
                Some(place) => place,
                None => return self.shed(Shed::Adaptive, mode, class),
            },
            // The gate measures all the same: workers need the utilisation.
            ShedMode::Off | ShedMode::Shadow => {
                let (place, has_room) = site.gate.pass(class, classes, share);
                if mode == ShedMode::Shadow && !has_room {
                    self.shadow.record(Shed::Adaptive, class.index());
                }
                place
            }
        };
        passage.take(site, place, begun);
        Ok(())
    }

    fn ask_workers(
        &self,
        site: &Site,
        workers: WorkerShed,
        context: &ShedContext,
    ) -> Result<Share, Shed> {
        let now = self.now();
        if site.workers.is_due(now) {
            let terms = WorkerTerms {
                good_percent: workers.good_percent,
                bad_percent: workers.bad_percent,
            };
            let adaptive = context.rules.adaptive.map(|it| it.mode);
            let utilisation = site.take_utilisation(match adaptive {
                Some(ShedMode::On) => Effect::Enforced,
                _ => effect_of(workers.mode),
            });
            let effect = effect_of(workers.mode);
            site.workers.on_sample(now, terms, utilisation, effect);
        }
        let (class, classes) = (context.class, context.classes());
        let judged = site.workers.judge(round(), class, classes, context.tenant);
        if judged.is_shed {
            self.shed(Shed::Workers, workers.mode, class)?;
        }
        Ok(judged.share)
    }

    /// Counts a request that `by` wants to shed; an error unless it is in shadow mode.
    fn shed(&self, by: Shed, mode: ShedMode, class: Class) -> Result<(), Shed> {
        match mode {
            ShedMode::On => {
                self.enforced.record(by, class.index());
                Err(by)
            }
            ShedMode::Off | ShedMode::Shadow => {
                self.shadow.record(by, class.index());
                Ok(())
            }
        }
    }

    /// Counts a request of `class` that `by` has shed.
    pub(super) fn record(&self, by: Shed, class: Class) {
        self.enforced.record(by, class.index());
    }

    /// Records the rules in force; None if they have no shedders.
    pub(crate) fn follow(&self, rules: Option<&Arc<ShedRules>>) {
        self.observe_rules(rules.unwrap_or(&self.none));
    }

    fn observe_rules(&self, rules: &Arc<ShedRules>) {
        let at = Arc::as_ptr(rules) as usize;
        // Relaxed: the address only tells whether to take the lock.
        if self.rules_at.load(Ordering::Relaxed) == at {
            return;
        }
        let mut last = self.rules.lock();
        if last.priorities != rules.priorities {
            // Counts go by name: a class keeps them in its new place.
            let place = |name| rules.priorities.iter().position(|it| it == name);
            let places: Vec<_> = last.priorities.iter().map(place).collect();
            self.enforced.move_classes(&places);
            self.shadow.move_classes(&places);
            self.give_cells(&last.priorities, &rules.priorities);
        }
        *last = Arc::clone(rules);
        self.rules_at.store(at, Ordering::Relaxed);
    }

    /// Gives the classes with these names cells for their requests in flight: those that they had before, or ones that
    /// nothing counts in. At first each has the cell of its place among those `before`.
    fn give_cells<N: AsRef<str>>(&self, before: &[N], priorities: &[N]) {
        let mut names = self.cells.lock();
        if names.is_empty() {
            names.extend(before.iter().map(|name| name.as_ref().to_owned()));
        }
        let mut given = Vec::with_capacity(priorities.len());
        for name in priorities.iter().map(AsRef::as_ref) {
            let known = names.iter().position(|it| it == name);
            let is_free = |cell: &usize| {
                let is_used = priorities.iter().any(|it| it.as_ref() == names[*cell]);
                !is_used && self.fleet.in_cell(FleetCell::new(*cell)) == 0
            };
            let number = known
                .or_else(|| (0..names.len()).find(is_free))
                .unwrap_or_else(|| names.len().min(FLEET_CELLS - 1));
            match names.get_mut(number) {
                Some(taken) => name.clone_into(taken),
                None => names.push(name.to_owned()),
            }
            given.push(FleetCell::new(number));
        }
        self.fleet.set_cells(&given);
    }

    /// The time since this was made: controllers need no other.
    pub(super) fn now(&self) -> Timestamp {
        let micros = self.begun.elapsed().as_micros();
        Timestamp::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// Returns true if the rules in force have a fleet-usage shedder, if only in shadow mode.
    #[must_use]
    pub fn uses_fleet(&self) -> bool {
        is_on(self.rules.lock().fleet.map(|it| it.mode))
    }

    /// Records a report of the rest of the fleet: its requests that are not critical. None if there was none: the last
    /// one stays in force.
    pub fn on_fleet_report(&self, others: Option<u32>) {
        self.fleet.on_report(others);
    }

    /// The usage of the fleet, as far as it is known.
    #[must_use]
    pub fn fleet_usage(&self) -> FleetState {
        let rules = self.rules.lock();
        FleetState {
            own: self.fleet.own(ClassCount::new(rules.priorities.len())),
            others: self.fleet.others(),
            is_stale: self.fleet.is_stale() && is_on(rules.fleet.map(|it| it.mode)),
        }
    }

    /// The counts.
    #[must_use]
    pub fn counts(&self) -> ShedCounts {
        // Held, so that no counts are on their way to another class.
        let rules = self.rules.lock();
        ShedCounts {
            rules: Arc::clone(&rules),
            shed: self.enforced.read(),
            shadow: self.shadow.read(),
            in_flight: std::array::from_fn::<_, CLASSES_MAX, _>(|it| self.fleet.in_flight_of(it)),
        }
    }
}

/// The hour of the day, which is the same for all gateways and outlives a start. A clock before 1970 stands still.
fn round() -> Round {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let micros = since.unwrap_or_default().as_micros();
    Round::at(Timestamp::from_micros(
        u64::try_from(micros).unwrap_or(u64::MAX),
    ))
}

fn effect_of(mode: ShedMode) -> Effect {
    match mode {
        ShedMode::On => Effect::Enforced,
        ShedMode::Off | ShedMode::Shadow => Effect::Shadow,
    }
}

fn is_on(mode: Option<ShedMode>) -> bool {
    mode.is_some_and(|mode| mode != ShedMode::Off)
}

#[cfg(test)]
mod tests;
