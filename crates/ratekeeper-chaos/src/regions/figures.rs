//! The results of a scenario: hits by window, and the goals missed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::callers::{Answer, Answers};
use super::scenario::{Event, Events, RegionPlan, Scenario};
use super::signals::{self, Link};
use super::untold;
use super::watch::Look;
use super::{NAMES, Way};

/// The first windows, in which nodes come to know their traffic. They count for excess, and for nothing else.
const WARM_UP: u64 = 2;

/// The checks of one way in one window.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Count {
    pub(super) asked: [u64; 3],
    pub(super) admitted: [u64; 3],
    /// Denials although all regions together had not asked for more than the limit by then: one counter that everybody
    /// reaches at once would have let them pass.
    pub(super) denied_falsely: u64,
}

/// The sums of one way.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sums {
    pub(super) asked: u64,
    pub(super) admitted: u64,
    /// The hits that one counter would have admitted, if everybody reached it at once.
    pub(super) possible: u64,
    /// Hits beyond the limit of their window.
    pub(super) over: u64,
    pub(super) denied_falsely: u64,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    /// Answers of failure modes.
    pub(super) degraded: u64,
}

/// All figures of a scenario.
pub(super) struct Figures {
    pub(super) limit: u64,
    /// By way, and by window since the first.
    pub(super) windows: BTreeMap<Way, Vec<Count>>,
    pub(super) sums: BTreeMap<Way, Sums>,
    /// Hits of `counted` beyond the limit that its bound does not explain.
    pub(super) unexplained: u64,
    pub(super) link: Link,
    /// The goals missed; empty if all were met.
    pub(super) missed: Vec<String>,
    pub(super) logs: Vec<String>,
}

impl Count {
    pub(super) fn all_asked(&self) -> u64 {
        self.asked.iter().sum()
    }

    pub(super) fn all_admitted(&self) -> u64 {
        self.admitted.iter().sum()
    }
}

impl Sums {
    /// The part of what was possible that was not admitted.
    pub(super) fn lost(&self) -> f64 {
        let lost = self.possible.saturating_sub(self.admitted);
        lost as f64 / self.possible.max(1) as f64
    }
}

impl Figures {
    pub(super) fn of(
        (plan, scenario): (&RegionPlan, &Scenario),
        answers: Answers,
        (looks, events): (&[Look], &Events),
        logs: Vec<(usize, String)>,
    ) -> Self {
        let (mut windows, mut sums) = (BTreeMap::new(), BTreeMap::new());
        for way in Way::ALL {
            let of_way = answers.all.iter().filter(|answer| answer.way == way);
            let of_way: Vec<&Answer> = of_way.collect();
            let counts = counts(&of_way, plan.limit);
            sums.insert(way, summed(&of_way, &counts, plan.limit));
            windows.insert(way, counts);
        }
        let degraded = answers.all.iter().filter(|it| it.is_degraded).count() as u64;
        let (link, lies) = signals::judge((plan, scenario), (looks, events), (degraded, &logs));
        let mut figures = Self {
            limit: plan.limit,
            windows,
            sums,
            unexplained: untold::beyond_bound(&answers.all, plan.limit),
            link,
            missed: lies,
            logs: logs.into_iter().map(|(_, log)| log).collect(),
        };
        figures.miss(plan, scenario, &answers);
        figures
    }

    /// Records the goals missed.
    fn miss(&mut self, plan: &RegionPlan, scenario: &Scenario, answers: &Answers) {
        let bounded = self.sums[&Way::Bounded];
        if bounded.over > 0 {
            self.missed.push(format!("{} over the limit", bounded.over));
        }
        if bounded.asked == 0 {
            self.missed.push("nothing was asked".to_owned());
        }
        if scenario.is_above_the_limit() && bounded.possible == bounded.asked {
            let what = "no window was asked for more than the limit";
            self.missed.push(what.to_owned());
        }
        if bounded.admitted * 2 <= bounded.possible {
            let (admitted, possible) = (bounded.admitted, bounded.possible);
            self.missed
                .push(format!("only {admitted} of {possible} were admitted"));
        }
        if let Some(error) = &answers.error {
            let errors = answers.errors;
            self.missed
                .push(format!("{errors} without an answer: {error}"));
        }
        let is_bound = scenario.event == Event::Nothing && !plan.is_test;
        if is_bound && self.unexplained > 0 {
            let hits = self.unexplained;
            self.missed
                .push(format!("`counted`: {hits} beyond its bound"));
        }
        if scenario.is_quiet && self.link.asks > 0 {
            self.missed
                .push(format!("{} asks for nothing", self.link.asks));
        }
        if !scenario.is_quiet && self.link.borrowed_max == 0 {
            self.missed.push("nothing was lent".to_owned());
        }
        let lost = bounded.lost();
        let is_whole = scenario.event == Event::Nothing && !plan.is_test;
        if is_whole && lost > plan.lost_max {
            self.missed.push(format!("{:.1} % lost", lost * 100.0));
        }
    }

    /// False denials of a way, in parts of the limits of all windows.
    pub(super) fn falsely(&self, way: Way) -> f64 {
        let windows = self.windows[&way].len() as u64;
        let limits = windows.saturating_sub(WARM_UP) * self.limit;
        self.sums[&way].denied_falsely as f64 / limits.max(1) as f64
    }
}

/// The checks by window, from the first window to the last.
fn counts(answers: &[&Answer], limit: u64) -> Vec<Count> {
    let Some(first) = answers.iter().map(|answer| answer.window).min() else {
        return Vec::new();
    };
    let mut by_end: Vec<&&Answer> = answers.iter().collect();
    by_end.sort_by_key(|answer| answer.done);
    let mut counts: Vec<Count> = Vec::new();
    for answer in by_end {
        let at = (answer.window - first) as usize;
        if counts.len() <= at {
            counts.resize(at + 1, Count::default());
        }
        let count = &mut counts[at];
        count.asked[answer.region] += 1;
        match answer.is_allowed {
            true => count.admitted[answer.region] += 1,
            false => count.denied_falsely += u64::from(count.all_asked() <= limit),
        }
    }
    counts
}

fn summed(answers: &[&Answer], counts: &[Count], limit: u64) -> Sums {
    let mut sums = Sums::default();
    for count in counts {
        sums.over += count.all_admitted().saturating_sub(limit);
    }
    for count in counts.iter().skip(WARM_UP as usize) {
        sums.asked += count.all_asked();
        sums.admitted += count.all_admitted();
        sums.possible += count.all_asked().min(limit);
        sums.denied_falsely += count.denied_falsely;
    }
    sums.degraded = answers.iter().filter(|it| it.is_degraded).count() as u64;
    let took = answers.iter().map(|it| it.done.saturating_sub(it.sent));
    let mut took: Vec<Duration> = took.collect();
    took.sort();
    let at = |part: usize| took.get(took.len() * part / 100).copied();
    sums.p50 = at(50).unwrap_or_default();
    sums.p99 = at(99).unwrap_or_default();
    sums
}

/// The name of a region, for figures.
pub(super) fn name(region: usize) -> &'static str {
    NAMES[region]
}

#[cfg(test)]
mod tests {
    use super::super::scenario::SCENARIOS;
    use super::*;

    fn answer(region: usize, done: u64, window: u64, is_allowed: bool) -> Answer {
        Answer {
            way: Way::Bounded,
            region,
            sent: Duration::ZERO,
            done: Duration::from_millis(done),
            window,
            is_allowed,
            is_degraded: false,
        }
    }

    /// The goals that a scenario misses in which so much is asked for in each of three windows, and so much passes.
    fn missed(asked: u64, admitted: u64) -> Vec<String> {
        let limit = RegionPlan::TEST.limit;
        let windows = 10..13 + WARM_UP;
        let answers = windows.flat_map(|window| {
            (0..asked).map(move |number| answer(1, number, window, number < admitted))
        });
        let answers: Vec<Answer> = answers.collect();
        let of_way: Vec<&Answer> = answers.iter().collect();
        let counts = counts(&of_way, limit);
        let sums = BTreeMap::from([(Way::Bounded, summed(&of_way, &counts, limit))]);
        let mut figures = Figures {
            limit,
            windows: BTreeMap::new(),
            sums,
            unexplained: 0,
            link: Link {
                borrowed_max: 1,
                ..Link::default()
            },
            missed: Vec::new(),
            logs: Vec::new(),
        };
        let above = SCENARIOS.iter().find(|it| it.is_above_the_limit());
        let above = above.expect("some ask for more");
        figures.miss(&RegionPlan::TEST, above, &Answers::default());
        figures.missed
    }

    #[test]
    fn a_scenario_that_never_reaches_its_limit_proves_nothing() {
        let limit = RegionPlan::TEST.limit;
        let never = missed(limit, limit);
        assert_eq!(never, ["no window was asked for more than the limit"]);
        let denies = missed(2 * limit, 1);
        let told = format!("only 3 of {} were admitted", 3 * limit);
        assert_eq!(denies, [told]);
        assert_eq!(missed(2 * limit, limit), [""; 0]);
    }

    #[test]
    fn excess_and_false_denials_are_counted_by_window_and_in_order() {
        // Of two in a window, three pass in the second; and of the denials of the first one comes too early.
        let answers = [
            answer(0, 1, 10, true),
            answer(1, 2, 10, false),
            answer(1, 4, 10, false),
            answer(0, 3, 10, true),
            answer(0, 5, 11, true),
            answer(1, 6, 11, true),
            answer(2, 7, 11, true),
        ];
        let answers: Vec<&Answer> = answers.iter().collect();
        let counts = counts(&answers, 2);
        assert_eq!(counts.len(), 2);
        assert_eq!(counts[0].asked, [2, 2, 0]);
        assert_eq!(counts[0].admitted, [2, 0, 0]);
        assert_eq!(counts[0].denied_falsely, 1);
        assert_eq!(counts[1].admitted, [1, 1, 1]);
        assert_eq!(summed(&answers, &counts, 2).over, 1);
    }
}
