//! The loans of one counter in words, or what regions have counted of it, for whoever asks why a request is denied.

use std::fmt::Write as _;

use ratekeeper_core::Micros;
use ratekeeper_core::region::loans::{LoanStanding, PeerStanding};
use ratekeeper_limiter::Explanation;
use ratekeeper_store::{LoanCounter, boot_time};

use super::RegionLoans;

/// A region, its loans, and what it said that it could spare, with how long ago that was.
struct Told<'a> {
    name: &'a str,
    loan: PeerStanding,
    spare: Option<(u64, Micros)>,
    has_link: bool,
}

impl RegionLoans {
    /// Adds to each limit that regions lend, or count together, what this one enforces of it now, and where that comes from.
    pub(crate) async fn explain(&self, explanation: &mut Explanation) {
        let descriptors = explanation.descriptors.iter_mut();
        let nodes = descriptors.flat_map(|descriptor| &mut descriptor.nodes);
        for limit in nodes.flat_map(|node| &mut node.limits) {
            if let Some(counter) = limit.lent {
                limit.add_note(&self.in_words(counter).await);
            }
        }
    }

    /// The loans of `counter` in words.
    async fn in_words(&self, counter: LoanCounter) -> String {
        let found = self.limiter.store().loans(counter, None).await;
        if counter.counted.is_some() {
            let state = found.ok();
            let said = state.and_then(|state| self.counts_in_words(counter, &state));
            return said
                .unwrap_or_else(|| "what regions have counted cannot be read now".to_owned());
        }
        let lending = self.lending(&counter);
        let Some((state, loans)) = found.ok().and_then(|state| {
            let loans = lending.read(&state)?;
            Some((state, loans))
        }) else {
            return "its loans cannot be read now".to_owned();
        };
        let standing = loans.standing(&state, &lending);
        let spares = self.counters.lock().spares(counter.key);
        let others = self.others().map(|(place, peer)| Told {
            name: peer.name(),
            loan: standing.peers[place],
            spare: spares.get(place).copied().flatten(),
            has_link: peer.is_reachable(),
        });
        let left = standing.peers.iter().skip(self.peers.len());
        let left = left.map(|loan| Told {
            name: "a region that has left",
            loan: *loan,
            spare: None,
            has_link: true,
        });
        let others: Vec<_> = others.chain(left).collect();
        let own = &self.regions.own().name;
        sentence(own, counter.whole.quota, &standing, &others, boot_time())
    }
}

/// `eu enforces 512 of 600: owns 200, holds 300 of us (9 min 40 s) and 12 of ap (55 s); us had 55 spare 80 ms ago`.
fn sentence(
    own: &str,
    whole: u64,
    standing: &LoanStanding,
    others: &[Told<'_>],
    now: Micros,
) -> String {
    let mut said = format!(
        "{own} enforces {} of {whole}: owns {}",
        standing.now, standing.owns
    );
    let held = others.iter().filter(|told| told.loan.held > 0);
    let held = held.map(|told| {
        let left = span_in_words(told.loan.left);
        format!("{} of {} ({left})", told.loan.held, told.name)
    });
    let lent = others.iter().filter(|told| told.loan.lent > 0);
    let lent = lent.map(|told| format!("{} to {}", told.loan.lent, told.name));
    for (does, parts) in [
        ("holds", held.collect::<Vec<_>>()),
        ("has lent", lent.collect()),
    ] {
        if !parts.is_empty() {
            let _ = write!(said, ", {does} {}", parts.join(" and "));
        }
    }
    for told in others {
        if let Some((spare, at)) = told.spare {
            let ago = span_in_words(Micros::new(now.get().saturating_sub(at.get())));
            let _ = write!(said, "; {} had {spare} spare {ago} ago", told.name);
        }
        if !told.has_link {
            let _ = write!(said, "; no link to {}", told.name);
        }
    }
    said
}

/// The hits that another region has counted in this window.
pub(super) struct Counts<'a> {
    pub(super) name: &'a str,
    pub(super) total: u64,
    /// The time at which this node heard that, if it did.
    pub(super) heard: Option<Micros>,
    /// The share that it is taken to have used, if it is silent.
    pub(super) share: Option<u64>,
    pub(super) has_link: bool,
}

/// `eu counted 200, us 310 0.8 s ago, ap 0, of 600; us is silent, with a share of 200; no link to ap`. `gone` is the hits of
/// regions that have left.
pub(super) fn counted_sentence(
    (own, count): (&str, u64),
    (whole, gone): (u64, u64),
    others: &[Counts<'_>],
    now: Micros,
) -> String {
    let mut said = format!("{own} counted {count}");
    for other in others {
        let _ = write!(said, ", {} {}", other.name, other.total);
        if let Some(at) = other.heard {
            let tenths = now.get().saturating_sub(at.get()) / 100_000;
            let _ = write!(said, " {}.{} s ago", tenths / 10, tenths % 10);
        }
    }
    if gone > 0 {
        let _ = write!(said, ", regions that have left {gone}");
    }
    let _ = write!(said, ", of {whole}");
    for other in others {
        if let Some(share) = other.share {
            let _ = write!(said, "; {} is silent, with a share of {share}", other.name);
        }
        if !other.has_link {
            let _ = write!(said, "; no link to {}", other.name);
        }
    }
    said
}

/// A span in its two largest units: `80 ms`, `9 min 40 s`.
fn span_in_words(span: Micros) -> String {
    let seconds = span.get() / 1_000_000;
    match seconds {
        0 => format!("{} ms", span.get() / 1_000),
        1..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, held: u64, lent: u64, spare: Option<(u64, Micros)>) -> Told<'_> {
        let loan = PeerStanding {
            held,
            lent,
            left: Micros::from_secs(580),
            ..PeerStanding::default()
        };
        Told {
            name,
            loan,
            spare,
            has_link: name != "ap",
        }
    }

    #[test]
    fn a_sentence_says_what_is_enforced_and_where_it_comes_from() {
        let now = Micros::from_secs(1_000);
        let spare = Some((55, Micros::new(now.get() - 80_000)));
        let standing = |now| LoanStanding {
            owns: 200,
            now,
            next: now,
            peers: Vec::new(),
        };
        let both = [told("ap", 12, 0, None), told("us", 300, 0, spare)];
        assert_eq!(
            sentence("eu", 600, &standing(512), &both, now),
            "eu enforces 512 of 600: owns 200, holds 12 of ap (9 min 40 s) and 300 of us (9 min 40 s); no link to ap; us \
             had 55 spare 80 ms ago"
        );
        let lender = [told("eu", 0, 300, None)];
        assert_eq!(
            sentence("us", 600, &standing(0), &lender, now),
            "us enforces 0 of 600: owns 200, has lent 300 to eu"
        );
        let neither = [told("us", 0, 0, None)];
        assert_eq!(
            sentence("eu", 600, &standing(200), &neither, now),
            "eu enforces 200 of 600: owns 200"
        );
    }

    #[test]
    fn a_sentence_says_what_each_region_has_counted() {
        let now = Micros::from_secs(1_000);
        let counts = |name, total, heard, share| Counts {
            name,
            total,
            heard,
            share,
            has_link: share.is_none(),
        };
        let heard = Some(Micros::new(now.get() - 850_000));
        let others = [counts("us", 310, heard, None), counts("ap", 0, None, None)];
        assert_eq!(
            counted_sentence(("eu", 200), (600, 0), &others, now),
            "eu counted 200, us 310 0.8 s ago, ap 0, of 600"
        );
        assert_eq!(
            counted_sentence(("eu", 200), (600, 40), &others[1..], now),
            "eu counted 200, ap 0, regions that have left 40, of 600"
        );
        let silent = [counts("us", 310, heard, Some(200))];
        assert_eq!(
            counted_sentence(("eu", 200), (600, 0), &silent, now),
            "eu counted 200, us 310 0.8 s ago, of 600; us is silent, with a share of 200; no link to us"
        );
    }

    #[test]
    fn spans_are_said_in_units_that_fit() {
        let words = |micros| span_in_words(Micros::new(micros));
        assert_eq!(words(999), "0 ms");
        assert_eq!(words(999_999), "999 ms");
        assert_eq!(words(59_999_999), "59 s");
        assert_eq!(words(60_000_000), "1 min 0 s");
        assert_eq!(words(3_599_000_000), "59 min 59 s");
        assert_eq!(words(3_660_000_000), "1 h 1 min");
        assert_eq!(words(93_600_000_000), "1 d 2 h");
    }
}
