//! The hits that a region needs, by the demand that one of its nodes sees. No proof depends on this.

use crate::Micros;

const SECOND: u64 = 1_000_000;

/// The hits that a region needs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LoanNeeds {
    /// In this window, with those counted.
    pub now: u64,
    /// In each later one.
    pub next: u64,
}

/// The demand for one counter, as a node of a region sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeenDemand {
    /// The hits that this node is asked for in a second, in thousandths.
    pub rate: u64,
    /// The hits of the whole region. Other nodes have their own demand, of which this one sees only what they use.
    pub used: RegionUse,
}

/// The hits of a counter that a whole region uses, as its store tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionUse {
    /// Of fixed windows.
    Windows {
        /// The hits counted in this window.
        count: u64,
        /// The hits counted in the one before.
        before: u64,
        /// The time until this one ends.
        left: Micros,
    },
    /// The hits that a log counts.
    Log(u64),
    /// The hits taken out of a bucket in a second, in thousandths.
    Bucket(u64),
}

impl SeenDemand {
    /// The hits that the region needs, of a limit with that window.
    #[must_use]
    pub fn needs(&self, window: Micros) -> LoanNeeds {
        let own = expected(self.rate, window);
        let next = match self.used {
            RegionUse::Windows {
                count,
                before,
                left,
            } => return self.window_needs(window, (count, before), left),
            RegionUse::Log(count) => {
                let soon =
                    count.saturating_add(expected(self.rate, window.min(Micros::new(SECOND))));
                let next = forecast(count).max(own);
                next.max(soon.min(next.saturating_mul(2)))
            }
            RegionUse::Bucket(rate) => expected(rate, window).max(own),
        };
        LoanNeeds { now: next, next }
    }

    /// The needs if hits go on as they were counted so far, once a quarter of the window has passed.
    fn window_needs(&self, window: Micros, (count, before): (u64, u64), left: Micros) -> LoanNeeds {
        let (length, rest) = (window.get(), left.get());
        let elapsed = length.saturating_sub(rest).max(length / 4 + 1);
        let whole = part(count, length, elapsed);
        let soon = forecast(part(whole, rest, length));
        LoanNeeds {
            now: count.saturating_add(soon.max(expected(self.rate, left))),
            next: forecast(whole.max(before)).max(expected(self.rate, window)),
        }
    }
}

/// The hits to provide for in `span`, at so many thousandths of a hit a second.
#[must_use]
pub fn expected(rate: u64, span: Micros) -> u64 {
    forecast(part(rate, span.get(), 1_000 * SECOND))
}

/// `hits * of / whole`.
fn part(hits: u64, of: u64, whole: u64) -> u64 {
    let part = u128::from(hits) * u128::from(of) / u128::from(whole.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// The hits to provide for where `expected` are expected: a tenth more, and twice the deviation of random arrivals.
const fn forecast(expected: u64) -> u64 {
    let deviation = expected.isqrt();
    expected
        .saturating_add(expected / 10)
        .saturating_add(deviation.saturating_mul(2))
}

/// The hits to ask for in each later window where `need` is forecast and `share` is there. A lack of less than a fiftieth
/// of the share waits; hits are asked for with headroom.
pub(super) const fn lack(need: u64, share: u64) -> u64 {
    let missing = need.saturating_sub(share);
    if missing == 0 || missing < share / 50 {
        return 0;
    }
    missing.saturating_add(need.div_ceil(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_lacks_wait_and_others_are_asked_for_with_headroom() {
        assert_eq!(forecast(0), 0);
        assert_eq!(forecast(100), 130);
        assert_eq!(lack(100, 100), 0);
        assert_eq!(lack(1_010, 1_000), 0);
        assert_eq!(lack(1_020, 1_000), 20 + 102);
        assert_eq!(lack(u64::MAX, 0), u64::MAX);
    }

    const MINUTE: Micros = Micros::from_secs(60);

    /// The needs of a region in a window of which `elapsed` seconds are over, while this node sees `rate` hits a second.
    fn in_window(rate: u64, elapsed: u64, (count, before): (u64, u64)) -> LoanNeeds {
        let used = RegionUse::Windows {
            count,
            before,
            left: Micros::from_secs(60 - elapsed),
        };
        let rate = rate * 1_000;
        SeenDemand { rate, used }.needs(MINUTE)
    }

    #[test]
    fn what_a_window_needs_is_what_this_node_sees_or_all_nodes_use() {
        assert_eq!(in_window(0, 30, (0, 0)), LoanNeeds::default());
        // One node sees all of it, denied requests too.
        let (half, minute) = (forecast(300), forecast(600));
        let seen = in_window(10, 30, (200, 0));
        assert_eq!((seen.now, seen.next), (200 + half, minute));
        // Others see most of it: what was counted goes on.
        let used = in_window(1, 30, (300, 0));
        assert_eq!((used.now, used.next), (300 + half, minute));
        // As before, until more is known.
        assert_eq!(in_window(1, 0, (0, 600)).next, minute);
        assert_eq!(in_window(0, 1, (20, 0)).next, forecast(79));
    }

    #[test]
    fn a_log_needs_what_it_counts_and_what_comes_soon() {
        let log = |rate: u64, count, window| {
            let (rate, used) = (rate * 1_000, RegionUse::Log(count));
            SeenDemand { rate, used }.needs(window).next
        };
        assert_eq!(log(10, 0, MINUTE), forecast(600));
        assert_eq!(log(1, 600, MINUTE), forecast(600));
        // What comes within a second, beside what is counted: at most twice as much as otherwise.
        let short = Micros::from_secs(2);
        assert_eq!(log(60, 100, short), 100 + forecast(60));
        let half = Micros::from_millis(500);
        assert_eq!(
            log(100, 300, half),
            300 + forecast(50).max(forecast(300) - 300)
        );
    }

    #[test]
    fn a_bucket_needs_what_is_taken_out_of_it() {
        let bucket = |rate: u64, taken: u64| {
            let (rate, used) = (rate * 1_000, RegionUse::Bucket(taken * 1_000));
            SeenDemand { rate, used }.needs(MINUTE)
        };
        let minute = forecast(600);
        let all = LoanNeeds {
            now: minute,
            next: minute,
        };
        assert_eq!((bucket(10, 1), bucket(1, 10)), (all, all));
    }
}
