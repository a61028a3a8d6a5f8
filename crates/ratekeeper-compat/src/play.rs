//! One task per domain, which sends the same requests to both services, one after the other.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use fastrand::Rng;
use ratekeeper_proto::WireEntry;

use crate::answer::{Reply, Status};
use crate::compare::{Outcome, compare};
use crate::differences::Difference;
use crate::request::Call;
use crate::rules::Domain;
use crate::target::Pair;
use crate::unit::Unit;
use crate::world::World;

/// The time into a second after which it has begun for every clock.
const AFTER: Duration = Duration::from_millis(2);

/// The results of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Compared answers.
    pub(crate) answers: u64,
    /// Denials among them.
    pub(crate) denied: u64,
    /// Descriptors in them that matched a limit.
    pub(crate) limited: u64,
    /// Answers with listed differences, by difference.
    pub(crate) listed: BTreeMap<Difference, u64>,
    /// Unlisted differences.
    pub(crate) different: Vec<Finding>,
    /// Comparisons abandoned because a second ended between the two answers.
    pub(crate) clock_moved: u64,
    /// Comparisons abandoned because two descriptors share a counter there.
    pub(crate) keys_met: u64,
}

/// An unlisted difference.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) world: u64,
    pub(crate) domain: String,
    pub(crate) call: Call,
    pub(crate) theirs: Reply,
    pub(crate) expected: Reply,
    pub(crate) ours: Reply,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.answers += other.answers;
        self.denied += other.denied;
        self.limited += other.limited;
        for (difference, count) in other.listed {
            *self.listed.entry(difference).or_default() += count;
        }
        self.different.extend(other.different);
        self.clock_moved += other.clock_moved;
        self.keys_met += other.keys_met;
    }

    /// Counts the outcome of a comparison; returns false if the two differ otherwise than listed.
    pub(crate) fn record(
        &mut self,
        (world, domain, call): (&World, &Domain, &Call),
        (theirs, ours): (Reply, Reply),
        now: u64,
    ) -> bool {
        match compare(call, world.modes, now, &theirs, &ours) {
            Outcome::Equal(listed) => {
                self.equal(&listed, &theirs);
                true
            }
            Outcome::Different(expected) => {
                self.different.push(Finding {
                    world: world.number,
                    domain: domain.name.clone(),
                    call: call.clone(),
                    theirs,
                    expected: *expected,
                    ours,
                });
                false
            }
        }
    }

    /// Counts a pair that is equal except for the differences in `listed`.
    fn equal(&mut self, listed: &BTreeSet<Difference>, theirs: &Reply) {
        self.answers += 1;
        if let Reply::Decided { answer, .. } = theirs {
            self.denied += u64::from(answer.overall_code == "OVER_LIMIT");
            let limited = |status: &&Status| status.current_limit.is_some();
            self.limited += answer.statuses.iter().filter(limited).count() as u64;
        }
        for difference in listed {
            *self.listed.entry(*difference).or_default() += 1;
        }
    }
}

/// Sends `count` random requests of `domain` to both services.
///
/// Ends early if the two would count differently from then on: after a difference, and if one of
/// them may have counted a hit in the next minute.
///
/// # Errors
/// A service cannot be called, or its answer is invalid.
pub(crate) async fn play(
    pair: &Pair,
    world: &World,
    domain: &Domain,
    mut rng: Rng,
    count: usize,
) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut counters = Counters::default();
    for _ in 0..count {
        let call = Call::random(&mut rng, domain);
        if counters.would_meet(&call) {
            tally.keys_met += 1;
            continue;
        }
        clear_of_the_edge().await;
        let begin = now().as_secs();
        let (theirs, ours) = tokio::join!(pair.theirs.ask(&call), pair.ours.ask(&call));
        let (theirs, ours) = (theirs?, ours?);
        let end = now().as_secs();
        if counters.met(&call, &theirs, end) {
            tally.keys_met += 1;
            break;
        }
        if begin != end {
            tally.clock_moved += 1;
            if Unit::MINUTE.window_start(begin) != Unit::MINUTE.window_start(end) {
                break;
            }
            // Counters of a second start afresh; any other counted it in the same window in both.
            until_second(end + 1).await;
            continue;
        }
        if !tally.record((world, domain, &call), (theirs, ours), end) {
            break;
        }
    }
    Ok(tally)
}

/// The wall clock, which both services use too.
pub(crate) fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Waits until that second has begun.
async fn until_second(second: u64) {
    let rest = Duration::from_secs(second).saturating_sub(now());
    tokio::time::sleep(rest + AFTER).await;
}

/// Waits for the next second if this one is nearly over: both services must handle a request in the
/// same one.
pub(crate) async fn clear_of_the_edge() {
    const BEFORE: u32 = 960_000_000;
    let now = now();
    if now.subsec_nanos() > BEFORE {
        until_second(now.as_secs() + 1).await;
    }
}

/// Counter names of envoyproxy/ratelimit: entries joined without escapes. Two descriptors with the
/// same text share a counter there, and so do two units whose windows begin at the same second. We
/// keep those apart, so they are not compared.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// The entries behind a joined text.
    entries: HashMap<String, Vec<WireEntry>>,
    /// The unit of a joined text in the window that begins at that second.
    units: HashMap<(String, u64), Unit>,
}

impl Counters {
    pub(crate) fn would_meet(&mut self, call: &Call) -> bool {
        let mut meets = false;
        for view in &call.request.descriptors {
            let own = &view.entries;
            let known = self.entries.entry(joined(own));
            meets |= known.or_insert_with(|| own.clone()) != own;
        }
        meets
    }

    pub(crate) fn met(&mut self, call: &Call, theirs: &Reply, now: u64) -> bool {
        let Reply::Decided { answer, .. } = theirs else {
            return false;
        };
        let mut meets = false;
        for (view, status) in call.request.descriptors.iter().zip(&answer.statuses) {
            if let Some(unit) = status.current_limit.as_ref().and_then(|limit| limit.unit()) {
                let key = (joined(&view.entries), unit.window_start(now));
                meets |= *self.units.entry(key).or_insert(unit) != unit;
            }
        }
        meets
    }
}

fn joined(entries: &[WireEntry]) -> String {
    entries
        .iter()
        .map(|entry| format!("{}_{}_", entry.key, entry.value))
        .collect()
}
