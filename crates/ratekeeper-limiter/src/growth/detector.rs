//! The detector: a function of samples and time.
//!
//! A series, the requests of a rule or of one of its callers, is held against its own last hour, over the same length of
//! time: one minute against the sixty minutes before it, or five minutes against twelve times five. With the median `m` of
//! those, its requests `x` are unusual if all of these hold:
//!
//! ```text
//! (sqrt x - median of the square roots) / s >= 5   (6.5 over five minutes)
//! x >= 2.2 m  (2 m)   x >= 1.25 of the largest   x >= 40  (120)   m > 0
//! each half >= 1.5 m/2   (each of the five minutes >= 1.3 m/5)
//! ```
//!
//! `s` is 1.4826 times the median absolute deviation, which a burst in the past does not move: Rousseeuw and Croux,
//! "Alternatives to the Median Absolute Deviation", Journal of the American Statistical Association 88 (1993). Square roots
//! give counts the same deviation at any rate, 1/2 for single requests: Bartlett, "The Square Root Transformation in
//! Analysis of Variance" (1936). `s` is at least 1, that of requests that come in groups of four, as those of a page and its
//! images do. The other conditions leave out the noise of small numbers, bursts of seconds, and what happens each hour.

use std::collections::HashMap;
use std::sync::Arc;

use ratekeeper_core::Timestamp;

use super::series::{Judged, Series, float};

/// The seconds from one sample to the next.
pub const TICK_SECS: u64 = 10;

/// The most rules and callers that are watched. A new one takes the place of the one with the fewest requests of late, if
/// it has more.
pub const SERIES_MAX: usize = 4_096;

/// Below so many, callers are watched from their first request on; further ones from the second within ten seconds, so that
/// a flood of new names takes no room.
const ROOM_FOR_ALL: usize = 512;

/// Series by their requests of late.
type Quiet = Vec<(f64, GrowthKey)>;

/// The most callers that may take another's place at one time.
const TAKEOVERS_MAX: usize = 64;

/// The ticks after which growth is no news: an hour.
const NEWS_TICKS: u64 = 360;

/// The ticks for which there must be less before growth has ended.
const CALM_TICKS: u64 = 6;

/// The requests that are watched as one series.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GrowthKey {
    /// The id of the rule.
    pub rule: Arc<str>,
    /// A hash of the subject; [`None`] for all requests of the rule.
    pub subject: Option<u64>,
}

/// The requests of one series in ten seconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrowthRequests {
    /// The series.
    pub key: GrowthKey,
    /// The domain of the rule.
    pub domain: Arc<str>,
    /// The name of the subject, as operators may see it.
    pub subject: Option<Arc<str>>,
    /// The requests.
    pub count: u64,
}

/// A series with far more requests than in its own last hour.
#[derive(Clone, PartialEq, Debug)]
pub struct Growth {
    /// The domain of the rule.
    pub domain: Arc<str>,
    /// The id of the rule.
    pub rule: Arc<str>,
    /// The caller, as operators may see it; [`None`] for all requests of the rule.
    pub subject: Option<Arc<str>>,
    /// The start of the time in which it was found.
    pub since: Timestamp,
    /// The end; [`None`] while it goes on.
    pub until: Option<Timestamp>,
    /// The requests a minute that were usual before.
    pub usual_per_minute: f64,
    /// The requests of the last minute.
    pub per_minute: u64,
    /// The most requests of a minute since.
    pub peak_per_minute: u64,
}

/// A report of the detector.
#[derive(Clone, PartialEq, Debug)]
pub enum GrowthChange {
    /// The growth begins.
    Began(Growth),
    /// The growth ends: there are as few requests as before, or it has lasted an hour and is no news.
    Ended(Growth),
}

/// Finds unusual growth.
#[derive(Debug, Default)]
pub struct GrowthDetector {
    /// Boxed, as a map keeps room for up to twice as many as there are, and for half as many again while it grows.
    series: HashMap<GrowthKey, Box<Watched>>,
    /// The ten seconds of the last sample, counted from 1970.
    tick: u64,
}

#[derive(Debug)]
struct Watched {
    series: Series,
    domain: Arc<str>,
    subject: Option<Arc<str>>,
    /// The growth that goes on, its first tick, and the last one that was not calm.
    active: Option<Box<(Growth, u64, u64)>>,
}

impl GrowthDetector {
    /// Takes the requests of the ten seconds that end `now`, of which each counted one stands for up to `every`. Returns
    /// what began and what ended. Samples of a time that was sampled before count with the latest one.
    pub fn on_sample(
        &mut self,
        now: Timestamp,
        requests: Vec<GrowthRequests>,
        every: u32,
    ) -> Vec<GrowthChange> {
        self.tick = self.tick.max(now.as_micros() / (TICK_SECS * 1_000_000));
        let (tick, mut quiet) = (self.tick, None);
        let mut changes = Vec::new();
        for GrowthRequests {
            key,
            domain,
            subject,
            count,
        } in requests
        {
            if !self.series.contains_key(&key) && !self.make_room(&key, count, &mut quiet) {
                continue;
            }
            let rule = Arc::clone(&key.rule);
            let watched = self.series.entry(key).or_insert_with(|| {
                Box::new(Watched {
                    series: Series::new(tick),
                    domain,
                    subject,
                    active: None,
                })
            });
            watched.series.add(tick, count);
            if watched.active.is_none()
                && let Some(judged) = watched.series.judge(tick, every)
            {
                let growth = watched.begin(rule, now, &judged);
                changes.push(GrowthChange::Began(growth.clone()));
                watched.active = Some(Box::new((growth, tick, tick)));
            }
        }
        let active = self.series.values_mut();
        changes.extend(active.filter_map(|watched| watched.proceed(tick, now)));
        changes
    }

    /// Returns true if a new series can be watched. `quiet` has those that may go for it, once somebody has looked.
    fn make_room(&mut self, key: &GrowthKey, count: u64, quiet: &mut Option<Quiet>) -> bool {
        let is_single = count < 2 && key.subject.is_some();
        if self.series.len() < ROOM_FOR_ALL || (self.series.len() < SERIES_MAX && !is_single) {
            return true;
        }
        if is_single {
            return false;
        }
        let quiet = quiet.get_or_insert_with(|| self.quiet());
        while let Some((requests, key)) = quiet.last() {
            if !self.is_still(key, *requests) {
                quiet.pop();
                continue;
            }
            let is_taken = *requests < float(count) && self.series.remove(key).is_some();
            if is_taken {
                quiet.pop();
            }
            return is_taken;
        }
        false
    }

    /// Returns true if the series has had no more than these `requests` of late, since somebody looked.
    fn is_still(&self, key: &GrowthKey, requests: f64) -> bool {
        let series = self.series.get(key);
        series.is_some_and(|it| it.active.is_none() && it.series.recent(self.tick) <= requests)
    }

    /// The series with the fewest requests of late, the least at the end.
    fn quiet(&self) -> Quiet {
        let idle = self.series.iter().filter(|(_, it)| it.active.is_none());
        let recent = idle.map(|(key, watched)| (watched.series.recent(self.tick), key.clone()));
        let mut recent: Vec<_> = recent.collect();
        recent.sort_unstable_by(|(some, _), (other, _)| other.total_cmp(some));
        let surplus = recent.len().saturating_sub(TAKEOVERS_MAX);
        recent.drain(..surplus);
        recent
    }

    /// The growth that goes on, the largest first.
    #[must_use]
    pub fn active(&self) -> Vec<Growth> {
        let active = self.series.values().filter_map(|it| it.active.as_ref());
        let mut active: Vec<_> = active.map(|active| active.0.clone()).collect();
        active.sort_by(|some, other| {
            let order = (other.per_minute, &other.rule, &other.subject);
            order.cmp(&(some.per_minute, &some.rule, &some.subject))
        });
        active
    }

    /// The number of series that are watched.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.series.len()
    }
}

impl Watched {
    fn begin(&self, rule: Arc<str>, now: Timestamp, judged: &Judged) -> Growth {
        let length = judged.ticks * TICK_SECS * 1_000_000;
        let per_minute = self.series.last_minute();
        Growth {
            domain: Arc::clone(&self.domain),
            rule,
            subject: self.subject.clone(),
            since: Timestamp::from_micros(now.as_micros().saturating_sub(length)),
            until: None,
            usual_per_minute: judged.usual_per_minute,
            per_minute,
            peak_per_minute: per_minute,
        }
    }

    /// Brings the growth that goes on up to date; returns it when it has ended.
    fn proceed(&mut self, tick: u64, now: Timestamp) -> Option<GrowthChange> {
        let (growth, first, loud) = self.active.as_deref_mut()?;
        self.series.add(tick, 0);
        growth.per_minute = self.series.last_minute();
        growth.peak_per_minute = growth.peak_per_minute.max(growth.per_minute);
        if float(growth.per_minute) >= 1.5 * growth.usual_per_minute {
            *loud = tick;
        }
        if tick < *loud + CALM_TICKS && tick < *first + NEWS_TICKS {
            return None;
        }
        let (mut growth, _, _) = *self.active.take()?;
        growth.until = Some(now);
        Some(GrowthChange::Ended(growth))
    }
}
