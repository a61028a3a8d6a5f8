//! The equal-count log as a list: each hit with the start of its group.

use ratekeeper_core::{LimitSpec, Timestamp};

use super::timeline::left;

/// The finest representations: the largest limit, the number of groups, and the ticks in a window.
const FORMS: [(u64, usize, u64); 4] = [
    (9, 9, (1 << 22) - 3),
    (12, 12, (1 << 16) - 3),
    (17, 17, (1 << 11) - 3),
    (23, 23, (1 << 8) - 3),
];

/// `sliding_window` without sub-windows: hits in groups of g, which count until the start of their
/// group has left the window.
#[derive(Clone, Debug)]
pub struct EqualCount {
    pub(crate) most: u64,
    window: u64,
    /// The representation for this limit.
    own: Form,
    /// The representation of this counter, which may date from an earlier limit.
    form: Form,
    /// Newest first: the start of each group in microseconds, a whole number of ticks, and its
    /// hits.
    groups: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Form {
    group: u64,
    groups: usize,
    tick: u64,
}

impl Form {
    fn of(most: u64, window: u64) -> Self {
        let found = FORMS.iter().find(|(up_to, ..)| most <= *up_to);
        let (group, groups, ticks) = match found {
            Some((_, groups, ticks)) => (1, *groups, *ticks),
            None => ((most - 1).div_ceil(16), 17, (1 << 11) - 3),
        };
        Self {
            group,
            groups,
            tick: tick(window.div_ceil(ticks).max(32)),
        }
    }
}

/// The tick length: a divisor of a second, unless it must be longer.
fn tick(least: u64) -> u64 {
    let divides = |tick: &u64| 1_000_000_u64.is_multiple_of(*tick);
    (least..=1_000_000).find(divides).unwrap_or(least)
}

/// The most hits that a limit counts: the quota, or for strict limits the largest number with which
/// the quota is never exceeded.
fn most(spec: LimitSpec) -> u64 {
    let passes = |most: u64| u128::from(most) + u128::from(Form::of(most, 1 << 20).group) - 1;
    let (mut low, mut high) = (0, spec.quota);
    if !spec.strict || passes(high) <= u128::from(spec.quota) {
        return high;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if passes(middle) <= u128::from(spec.quota) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

impl EqualCount {
    pub(crate) fn new(spec: LimitSpec) -> Self {
        let (most, window) = (most(spec), spec.window.get());
        let form = Form::of(most, window);
        Self {
            most,
            window,
            own: form,
            form,
            groups: Vec::new(),
        }
    }

    pub(crate) fn change(&mut self, spec: LimitSpec) {
        self.most = most(spec);
        self.own = Form::of(self.most, self.window);
        if self.groups.is_empty() {
            self.form = self.own;
        }
    }

    /// The groups at `now`: all shifted by one offset if the newest lies more than a window ahead.
    fn moved(&self, now: Timestamp) -> Vec<(u64, u64)> {
        let tick = self.form.tick;
        let newest = self.groups.first().map_or(0, |(began, _)| *began);
        let most = (now.as_micros() + self.window).div_ceil(tick) * tick;
        let offset = match newest > most {
            true => newest - now.as_micros().div_ceil(tick) * tick,
            false => 0,
        };
        let groups = self.groups.iter();
        groups
            .map(|(began, hits)| (began.saturating_sub(offset), *hits))
            .collect()
    }

    /// The counter's time, which does not go back: never before the start of the newest group,
    /// which was rounded up.
    fn clock(&self, groups: &[(u64, u64)], now: Timestamp) -> u64 {
        let began = groups.first().map_or(0, |(began, _)| *began);
        now.as_micros()
            .max((began + 1).saturating_sub(self.form.tick))
    }

    /// The groups that still count.
    fn alive(&self, now: Timestamp) -> Vec<(u64, u64)> {
        let groups = self.moved(now);
        let clock = self.clock(&groups, now);
        let alive = groups.into_iter();
        alive
            .take_while(|(began, _)| began + self.window > clock)
            .collect()
    }

    /// The hits that still count.
    #[must_use]
    pub fn used(&self, now: Timestamp) -> u128 {
        let alive = self.alive(now);
        alive.iter().map(|(_, hits)| u128::from(*hits)).sum()
    }

    pub(crate) fn room(&self, now: Timestamp) -> u64 {
        left(self.most, self.used(now))
    }

    pub(crate) fn charge(&mut self, hits: i64, now: Timestamp) {
        self.groups = self.moved(now);
        if hits == 0 {
            return;
        }
        self.groups = self.alive(now);
        if hits < 0 {
            self.give_back(hits.unsigned_abs());
            return;
        }
        let own = self.own;
        if self.groups.is_empty() {
            self.form = own;
        } else if self.form != own {
            let holds = self.form.group.saturating_mul(self.form.groups as u64 - 1) + 1;
            if holds < self.most || self.form.group > 2 * own.group {
                self.regroup(own, self.clock(&self.groups, now));
            }
        }
        self.take(hits.unsigned_abs(), now);
    }

    /// Adds hits to the newest group and then to new ones; drops the oldest groups if there are too
    /// many.
    fn take(&mut self, mut hits: u64, now: Timestamp) {
        let Form {
            group,
            groups,
            tick,
        } = self.form;
        if let Some((_, newest)) = self.groups.first_mut() {
            let more = hits.min(group.saturating_sub(*newest));
            *newest += more;
            hits -= more;
        }
        let newest = self.groups.first().map_or(0, |(began, _)| *began);
        let began = (now.as_micros().div_ceil(tick) * tick).max(newest);
        // So many hits drop all others, and leave the same groups as the last of them alone would.
        let most = group.saturating_mul(groups as u64 + 1);
        if hits > most {
            hits = (hits - most) % group + most;
        }
        while hits > 0 {
            let more = hits.min(group);
            self.groups.insert(0, (began, more));
            hits -= more;
        }
        self.groups.truncate(groups);
    }

    fn give_back(&mut self, mut hits: u64) {
        while let Some((_, newest)) = self.groups.first_mut() {
            if *newest > hits {
                *newest -= hits;
                return;
            }
            hits -= *newest;
            self.groups.remove(0);
        }
        self.form = self.own;
    }

    /// Regroups the hits from the newest on; a group starts with its oldest hit, but not after
    /// `clock`, although ticks were rounded up beyond it.
    fn regroup(&mut self, form: Form, clock: u64) {
        let total: u64 = self.groups.iter().map(|(_, hits)| *hits).sum();
        let mut regrouped = Vec::new();
        let mut wanted = (total - 1) % form.group + 1;
        let mut sum = 0;
        for (began, hits) in &self.groups {
            let mut hits = *hits;
            while hits > 0 && regrouped.len() < form.groups {
                let part = hits.min(wanted - sum);
                hits -= part;
                sum += part;
                if sum == wanted {
                    let began = match form.tick == self.form.tick {
                        true => *began,
                        false => (*began).min(clock).div_ceil(form.tick) * form.tick,
                    };
                    regrouped.push((began, wanted));
                    (wanted, sum) = (form.group, 0);
                }
            }
        }
        self.form = form;
        self.groups = regrouped;
    }
}
