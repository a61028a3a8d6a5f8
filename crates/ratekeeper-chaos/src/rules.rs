//! The limits that the nodes enforce, and the requests made for each of them.

use std::time::Duration;

/// The domain of all rules.
pub(crate) const DOMAIN: &str = "chaos";

/// The time for which a key of a rotating limit is used before the next one takes its place.
///
/// A fresh key every two seconds reveals excess at any moment of a fault. Each node alone asks for a key several times
/// as often as its limit allows.
pub(crate) const PERIOD: Duration = Duration::from_secs(2);

/// The limit of a key of [`Rule::Hard`], [`Rule::Soft`] and [`Rule::Synced`].
pub(crate) const LIMIT: u64 = 10;

/// The limit of a key of [`Rule::Leased`]. Smaller ones than 64 are counted exactly, whatever they say.
const LEASED_LIMIT: u64 = 100;

/// The limit of [`Rule::Spend`], [`Rule::Shut`] and [`Rule::Tokens`], which is never reached: the remaining hits tell those charged.
pub(crate) const AMPLE: u64 = 1_000_000;

/// The limit a second of [`Rule::FixedFlow`] and [`Rule::SlidingFlow`].
const FLOW: u64 = 30;

/// Permits of [`Rule::Job`] that may be held at once: one less than there are nodes that ask for one at the same time.
pub(crate) const PERMITS: u64 = 2;

/// Keys of [`Rule::Tenant`].
pub(crate) const TENANTS: u64 = 24;

/// The limits. Windows of a year never end while the campaign runs, so that a limit is a total.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Rule {
    /// Rotating keys; without Redis it denies, so that nothing excuses excess.
    Hard,
    /// Rotating keys; without Redis each node counts alone.
    Soft,
    /// Rotating keys and an ample limit, to compare the hits that Redis charged with those it admitted.
    Spend,
    /// As `Spend`, but without Redis it denies: what Redis charged for a denied request has to be given back.
    Shut,
    /// Rotating keys, of which nodes take hits in advance; without Redis it denies what they do not hold.
    Leased,
    /// Rotating keys that each node counts by itself, and adds up in Redis.
    Synced,
    /// One key with a limit a second, asked for more often than that, by a window of the clock.
    FixedFlow,
    /// The same, by a window that slides.
    SlidingFlow,
    /// Keys that are never limited, spread over all shards.
    Tenant,
    /// One key, whose counter a fault may damage.
    Victim,
    /// Tenants, of which a database has limits of their own.
    Customer,
    /// Reservations.
    Tokens,
    /// Permits.
    Job,
    /// One key with a window of the clock, the only rule where passes are counted window by window.
    Windowed,
}

impl Rule {
    /// The key of its descriptors.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Hard => "hard",
            Self::Soft => "soft",
            Self::Spend => "spend",
            Self::Shut => "shut",
            Self::Leased => "leased",
            Self::Synced => "synced",
            Self::FixedFlow => "fixed_flow",
            Self::SlidingFlow => "sliding_flow",
            Self::Tenant => "tenant",
            Self::Victim => "victim",
            Self::Customer => "customer",
            Self::Tokens => "tokens",
            Self::Job => "job",
            Self::Windowed => "windowed",
        }
    }

    /// The limit of a key, of those that rotate and are used up.
    pub(crate) const fn limit(self) -> u64 {
        match self {
            Self::Leased => LEASED_LIMIT,
            _ => LIMIT,
        }
    }

    /// Returns true if its keys rotate.
    pub(crate) const fn rotates(self) -> bool {
        matches!(
            self,
            Self::Hard | Self::Soft | Self::Spend | Self::Shut | Self::Leased | Self::Synced
        )
    }
}

/// The rules as a file.
pub(crate) fn yaml() -> String {
    let year = "window: 365d, algorithm: fixed_window";
    format!(
        "domain: {DOMAIN}
tenant: customer
descriptors:
- {{ key: customer, rate_limit: {{ window: 1d, limit: 5 }} }}
- {{ key: hard, rate_limit: {{ {year}, limit: {LIMIT} }}, on_store_failure: deny }}
- {{ key: soft, rate_limit: {{ {year}, limit: {LIMIT} }} }}
- {{ key: spend, rate_limit: {{ {year}, limit: {AMPLE} }} }}
- {{ key: shut, rate_limit: {{ {year}, limit: {AMPLE} }}, on_store_failure: deny }}
- {{ key: leased, rate_limit: {{ {year}, limit: {LEASED_LIMIT}, consistency: leased }}, on_store_failure: deny }}
- {{ key: synced, rate_limit: {{ {year}, limit: {LIMIT}, consistency: synced, sync_interval: 100ms }} }}
- {{ key: fixed_flow, rate_limit: {{ window: 1s, limit: {FLOW}, algorithm: fixed_window }}, on_store_failure: deny }}
- {{ key: sliding_flow, rate_limit: {{ window: 1s, limit: {FLOW} }}, on_store_failure: deny }}
- {{ key: tenant, rate_limit: {{ window: 1h, limit: 100000000 }} }}
- {{ key: victim, rate_limit: {{ window: 1h, limit: 100000000 }} }}
- {{ key: tokens, rate_limit: {{ {year}, limit: {AMPLE} }}, on_store_failure: deny }}
- {{ key: job, concurrency: {{ limit: {PERMITS}, timeout: 60s }}, on_store_failure: deny }}
"
    )
}

/// The only rule of nodes that are watched window by window: `limit` in each `window`.
pub(crate) fn windowed_yaml(window: Duration, limit: u64) -> String {
    let window = window.as_secs();
    format!(
        "domain: {DOMAIN}
descriptors:
- {{ key: windowed, rate_limit: {{ window: {window}s, limit: {limit}, algorithm: fixed_window }} }}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_core::lease::Terms;
    use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros};

    #[test]
    fn the_leased_limit_is_leased() {
        let limit = |quota| {
            let year = Micros::from_secs(365 * 86_400);
            let spec = LimitSpec::new(Algorithm::FixedWindow, quota, year);
            Limit::try_new(spec).expect("a valid limit")
        };
        let terms = |rule: Rule| Terms::try_new(&limit(rule.limit()), Micros::from_millis(100));
        assert!(terms(Rule::Leased).is_ok());
        assert!(terms(Rule::Hard).is_err(), "it is too small");
        let line = format!("limit: {}, consistency: leased", Rule::Leased.limit());
        assert!(yaml().contains(&line), "{}", yaml());
    }
}
