//! Keys that a domain, a descriptor and a limit may have: how limits are kept and enforced.

use std::sync::Arc;

use ratekeeper_core::{Algorithm, Micros};

use super::fields::{At, Fields};
use crate::report::Report;
use crate::rule::LEASE;
use crate::yaml::Kind;
use crate::{Consistency, Enforce, FailureMode, LeakyOverRls, Position, Profile, Rule, RuleLimit};

/// The policy keys of one mapping; [`None`] where a key is missing.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Policy {
    pub(crate) algorithm: Option<Algorithm>,
    pub(crate) consistency: Option<Consistency>,
    pub(crate) count_denied: Option<bool>,
    pub(crate) enabled: Option<bool>,
    pub(crate) enforce: Option<Enforce>,
    pub(crate) leaky_over_rls: Option<LeakyOverRls>,
    pub(crate) lease_time: Option<Micros>,
    pub(crate) on_store_failure: Option<FailureMode>,
    pub(crate) store: Option<Box<str>>,
    pub(crate) sync_interval: Option<Micros>,
}

impl Policy {
    pub(crate) fn parse(fields: &Fields<'_>, report: &mut Report<'_>) -> Self {
        let algorithm = fields.choice("algorithm", report);
        let consistency = value(fields.choice("consistency", report));
        Self {
            algorithm: algorithm.and_then(|algorithm| a_rate(algorithm, report)),
            consistency,
            count_denied: value(fields.boolean("count_denied", report)),
            enabled: value(fields.boolean("enabled", report)),
            enforce: enforce(fields, report),
            leaky_over_rls: value(fields.choice("leaky_over_rls", report)),
            lease_time: lease_time(fields, report),
            on_store_failure: value(fields.choice("on_store_failure", report)),
            store: store(fields, report),
            sync_interval: sync_interval(fields, consistency, report),
        }
    }

    /// A rule of this policy in `domain`, without a limit.
    pub(crate) fn rule(
        &self,
        domain: &Arc<str>,
        (profile, on_store_failure): (Profile, FailureMode),
    ) -> Rule {
        Rule {
            id: "".into(),
            domain: Arc::clone(domain),
            path: [].into(),
            place: Position {
                file: "".into(),
                line: 0,
                column: 0,
            },
            limit: RuleLimit::Unlimited,
            calendar: None,
            unit: None,
            window_text: "".into(),
            name: None,
            replaces: Vec::new(),
            shadow: false,
            quota_mode: false,
            enabled: self.enabled.unwrap_or(true),
            enforce: self.enforce.unwrap_or(Enforce::ALL),
            count_denied: self.count_denied.unwrap_or(profile == Profile::Envoy),
            detailed_metric: false,
            value_to_metric: false,
            metadata: None,
            plan: None,
            consistency: self.consistency,
            lease: self.lease_time.unwrap_or(LEASE),
            is_global: false,
            sync_interval: self.sync_interval,
            store: self.store.clone(),
            on_store_failure: self.on_store_failure.unwrap_or(on_store_failure),
            leaky_over_rls: self.leaky_over_rls.unwrap_or_default(),
            retry_after: None,
        }
    }

    /// Adds the keys of `other`; returns a key on which the two differ.
    pub(crate) fn merge(&mut self, other: Self) -> Option<&'static str> {
        macro_rules! keep {
            ($($key:ident),+) => {
                [$((stringify!($key), keep(&mut self.$key, other.$key))),+]
            };
        }
        let agreed = keep![
            algorithm,
            consistency,
            count_denied,
            enabled,
            enforce,
            leaky_over_rls,
            lease_time,
            on_store_failure,
            store,
            sync_interval
        ];
        let mut agreed = agreed.into_iter();
        agreed.find_map(|(key, agrees)| (!agrees).then_some(key))
    }

    /// Fills the gaps in this policy from `outer`. A rule that is disabled outside stays disabled.
    pub(crate) fn within(self, outer: &Self) -> Self {
        let off = outer.enabled == Some(false) || self.enabled == Some(false);
        Self {
            algorithm: self.algorithm.or(outer.algorithm),
            consistency: self.consistency.or(outer.consistency),
            count_denied: self.count_denied.or(outer.count_denied),
            enabled: if off {
                Some(false)
            } else {
                self.enabled.or(outer.enabled)
            },
            enforce: self.enforce.or(outer.enforce),
            leaky_over_rls: self.leaky_over_rls.or(outer.leaky_over_rls),
            lease_time: self.lease_time.or(outer.lease_time),
            on_store_failure: self.on_store_failure.or(outer.on_store_failure),
            store: self.store.or_else(|| outer.store.clone()),
            sync_interval: self.sync_interval.or(outer.sync_interval),
        }
    }
}

fn value<T>(at: Option<At<T>>) -> Option<T> {
    at.map(|at| at.value)
}

/// Keeps the value of `from` where `into` has none; false if both have one and they differ.
fn keep<T: PartialEq>(into: &mut Option<T>, from: Option<T>) -> bool {
    match (&*into, from) {
        (Some(one), Some(other)) => *one == other,
        (None, from) => {
            *into = from;
            true
        }
        (Some(_), None) => true,
    }
}

/// The message and the help for `algorithm: concurrency`.
pub(crate) const NOT_A_RATE: (&str, &str) = (
    "concurrency is not an algorithm of a rate",
    "write `concurrency: { limit: 20, timeout: 60s }` in the descriptor, beside or instead of `rate_limit:`",
);

fn a_rate(algorithm: At<Algorithm>, report: &mut Report<'_>) -> Option<Algorithm> {
    if algorithm.value != Algorithm::Concurrency {
        return Some(algorithm.value);
    }
    let (message, help) = NOT_A_RATE;
    report.error(algorithm.mark, message, help);
    None
}

/// Reads `sync_interval`, whose range depends on the limit's window.
fn sync_interval(
    fields: &Fields<'_>,
    consistency: Option<Consistency>,
    report: &mut Report<'_>,
) -> Option<Micros> {
    let At { value, mark } = fields.duration("sync_interval", report)?;
    if let Some(mode) = consistency.filter(|mode| *mode != Consistency::Synced) {
        let message = format!(
            "`sync_interval` means nothing with `consistency: {}` and is ignored",
            mode.name()
        );
        report.warn(mark, message, None);
    }
    Some(value)
}

/// The shortest lease that is worth a call, and the longest for which other nodes may lack the hits.
const LEASE_TIMES: (Micros, Micros) = (Micros::from_millis(5), Micros::from_secs(10));

fn lease_time(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Micros> {
    let At { value, mark } = fields.duration("lease_time", report)?;
    let (least, most) = LEASE_TIMES;
    if value < least || value > most {
        let message = "`lease_time` is out of range: it is 5ms to 10s";
        let help = "write `lease_time: 100ms`: other nodes cannot admit the hits that a node holds for so long";
        report.error(mark, message, help);
        return None;
    }
    Some(value)
}

fn store(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Box<str>> {
    let At { value, mark } = fields.text("store", report)?;
    if value.is_empty() {
        report.error(
            mark,
            "`store` is empty",
            "write a store's name, or leave the key out",
        );
        return None;
    }
    // A single file cannot know which stores exist.
    let value: Box<str> = value.into();
    report.stores.push(At {
        value: value.clone(),
        mark,
    });
    Some(value)
}

fn enforce(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Enforce> {
    let node = fields.get("enforce")?;
    let Kind::Scalar(scalar) = &node.kind else {
        let message = format!("`enforce` is a share, not {}", node.kind_name());
        report.error(node.mark, message, "write `enforce: 10%`");
        return None;
    };
    let share = scalar.text.strip_suffix('%').and_then(percent);
    if share.is_none() {
        let message = format!(
            "`enforce` cannot be '{}': it is 0% to 100%, with up to two decimals",
            scalar.text
        );
        let bare = percent(&scalar.text).is_some();
        let help = if bare {
            format!("write `enforce: {}%`", scalar.text)
        } else {
            "write `enforce: 10%`".to_owned()
        };
        report.error(node.mark, message, help);
    }
    share
}

/// Parses `12.5` into hundredths of a percent.
fn percent(text: &str) -> Option<Enforce> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || decimals.len() > 2 {
        return None;
    }
    let tenfold = if decimals.len() == 1 { 10 } else { 1 };
    let hundredths = decimals.parse::<u16>().ok()? * tenfold;
    let total = whole
        .parse::<u16>()
        .ok()?
        .checked_mul(100)?
        .checked_add(hundredths)?;
    Enforce::from_hundredths(total)
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn shares_have_up_to_two_decimals() {
        let hundredths = |text| percent(text).map(|share| share.hundredths());
        assert_eq!(hundredths("10"), Some(1_000));
        assert_eq!(hundredths("0"), Some(0));
        assert_eq!(hundredths("100"), Some(10_000));
        assert_eq!(hundredths("12.5"), Some(1_250));
        assert_eq!(hundredths("0.01"), Some(1));
        for text in [
            "", "100.01", "101", "-1", "1.234", ".5", "5.", "1e1", "700000",
        ] {
            assert_eq!(hundredths(text), None, "{text}");
        }
    }
}
