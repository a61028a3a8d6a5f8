//! The promises: shares never sum to more than the limit, and no more passes than it.

use std::collections::VecDeque;

use ratekeeper_core::region::loans::DRIFT_PPM;

use super::RegionTotals;
use super::counter::HIT;
use super::plan::Kind;
use super::region::Loans;
use super::world::World;

impl World {
    /// The sum of all shares is at most the limit, for every window, or now.
    pub(super) fn check_shares(&mut self, after: &str, time: u64) {
        let found = match self.plan.kind {
            Kind::Windows => self.windows_over(),
            Kind::Log | Kind::Bucket => self.shares_over(time),
        };
        if let (Some(found), None) = (found, &self.broken) {
            self.broken = Some(format!("{found} after {after} at {time}"));
        }
    }

    fn windows_over(&self) -> Option<String> {
        let windows = self
            .regions
            .iter()
            .map(|region| region.kept.counter.window());
        let (first, last) = (windows.clone().min()?, windows.max()?);
        // Before the first requests there is no window yet.
        let first = first.max(last.saturating_sub(20));
        (first..last + 3).find_map(|window| {
            let shares = self.regions.iter().map(|region| match &region.kept.loans {
                // A region that is past a window uses it no more: what it used counts.
                _ if region.kept.counter.window() > window => {
                    region.used.get(&window).copied().unwrap_or(0)
                }
                Loans::Windows(loans) => loans.share(window),
                Loans::Timed(_) => 0,
            });
            let sum: u64 = shares.sum();
            (sum > self.plan.limit).then(|| format!("shares of window {window} sum to {sum}"))
        })
    }

    fn shares_over(&self, time: u64) -> Option<String> {
        let mut sum = 0;
        for region in &self.regions {
            let Loans::Timed(loans) = &region.kept.loans else {
                continue;
            };
            let now = region.clock.now(time);
            let held = loans.peers.iter().map(|peer| peer.held);
            let held = held.filter(|held| !held.is_over(now, region.generation) && region.is_alive);
            let held: u64 = held.map(|held| held.amount).sum();
            let over = loans.lent().saturating_sub(region.owns);
            if over > 0 && self.plan.new_shares.is_none() {
                return Some(format!("{} are lent of {}", loans.lent(), region.owns));
            }
            sum += region.owns.saturating_sub(loans.lent()) + held;
        }
        (sum > self.plan.limit).then(|| format!("shares sum to {sum}"))
    }

    /// A borrower holds nothing any more of what its lender takes back.
    pub(super) fn check_regained(&mut self, lender: usize, borrower: usize, time: u64) {
        let region = &self.regions[borrower];
        let Loans::Timed(loans) = &region.kept.loans else {
            return;
        };
        let held = loans.peers[lender].held;
        let is_held = held.amount > 0 && !held.is_over(region.clock.now(time), region.generation);
        if is_held && region.answers() && self.broken.is_none() {
            self.broken = Some(format!("{} regained while held, at {time}", held.amount));
        }
    }

    /// The verdict on the whole.
    pub(super) fn judged(&self) -> Result<RegionTotals, String> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        let (most, bound) = match self.plan.kind {
            Kind::Windows => (
                self.by_window.values().copied().max().unwrap_or(0),
                self.plan.limit,
            ),
            _ if self.plan.steps => (0, 0),
            // In each region the hits of a group less one are not counted, at most.
            Kind::Log => {
                let regions = self.plan.regions() as u64;
                let group = self.plan.whole().most_in_any_window().unwrap_or(0);
                let uncounted = group.saturating_sub(self.plan.limit);
                (
                    self.most_in_a_window(),
                    self.plan.limit + regions * uncounted,
                )
            }
            Kind::Bucket => (self.most_above_the_rate(), self.plan.burst),
        };
        let over = most.saturating_sub(bound);
        if over > self.forgotten {
            return Err(format!("{most} passed where {bound} may"));
        }
        Ok(RegionTotals {
            admitted: self.admitted.iter().map(|(_, hits)| hits).sum(),
            messages: self.messages,
            lending: u64::from(self.has_lent),
            forgotten: u64::from(over > 0),
            uncounted: match self.plan.kind {
                Kind::Log if over == 0 => {
                    1_000 * most.saturating_sub(self.plan.limit) / self.plan.limit
                }
                Kind::Log | Kind::Windows | Kind::Bucket => 0,
            },
        })
    }

    /// The most admissions in any window, as short as the slowest clock has it.
    fn most_in_a_window(&self) -> u64 {
        let window = self.plan.window - self.plan.window * DRIFT_PPM / 1_000_000;
        let mut inside = VecDeque::new();
        let (mut sum, mut most) = (0, 0);
        for (time, hits) in &self.admitted {
            inside.push_back((*time, *hits));
            sum += hits;
            while let Some((first, hits)) = inside.front() {
                if first + window > *time {
                    break;
                }
                sum -= hits;
                inside.pop_front();
            }
            most = most.max(sum);
        }
        most
    }

    /// The most by which admissions exceeded the rate, as high as the fastest clock has it: at most the burst.
    fn most_above_the_rate(&self) -> u64 {
        let (burst, limit) = (
            i128::from(self.plan.burst * HIT),
            i128::from(self.plan.limit),
        );
        let parts = 1_000_000 + i128::from(DRIFT_PPM);
        let (mut level, mut last, mut lowest) = (burst, 0, burst);
        for (time, hits) in &self.admitted {
            let span = i128::from(time - last);
            let gained = span * limit * parts / i128::from(self.plan.window);
            level = (level + gained).min(burst) - i128::from(hits * HIT);
            (last, lowest) = (*time, lowest.min(level));
        }
        let above = burst - lowest;
        u64::try_from(above / i128::from(HIT) + i128::from(above % i128::from(HIT) > 0))
            .unwrap_or(u64::MAX)
    }
}
