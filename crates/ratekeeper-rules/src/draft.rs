//! A limit as it is written, and the one way from it to a rule.
//!
//! Files, service levels and the overrides of a quota store all make a [`LimitDraft`]; [`LimitDraft::build`] checks it.

mod field;
pub(crate) mod quota;
mod window;

use ratekeeper_core::{Algorithm, Limit, LimitError, LimitSpec, Micros};

use crate::diagnostic::Faults;
use crate::mark::{At, Mark};
use crate::policy::Policy;
use crate::{Calendar, Position, Rule, RuleLimit, Unit};
pub(crate) use field::Field;
use quota::{Form, Quota};
use window::Window;
pub(crate) use window::no_duration;

/// A limit as it is written.
#[derive(Debug)]
pub(crate) struct LimitDraft {
    /// The start of the limit.
    pub(crate) mark: Mark,
    pub(crate) name: Option<Box<str>>,
    pub(crate) id: Option<At<Box<str>>>,
    pub(crate) replaces: Vec<At<Box<str>>>,
    /// The limit's own policy.
    pub(crate) policy: Policy,
    pub(crate) algorithm: Field<Algorithm>,
    pub(crate) quota: Quota,
}

impl Form {
    /// Returns true if a value is wrong, which has been reported.
    const fn is_wrong(&self) -> bool {
        self.burst.is_wrong()
            || self.sub_windows.is_wrong()
            || self.strict.is_wrong()
            || self.post_paid.is_wrong()
            || self.max_debt.is_wrong()
    }
}

impl LimitDraft {
    /// A draft without keys, at `mark`.
    pub(crate) fn at(mark: Mark) -> Self {
        Self {
            mark,
            name: None,
            id: None,
            replaces: Vec::new(),
            policy: Policy::default(),
            algorithm: Field::default(),
            quota: Quota::default(),
        }
    }
}

/// The defaults that a limit takes from its surroundings.
#[derive(Clone, Copy)]
pub(crate) struct LimitDefaults<'a> {
    /// The policy of the descriptor and the domain.
    pub(crate) policy: &'a Policy,
    /// The algorithm, if neither names one.
    pub(crate) algorithm: Algorithm,
}

/// A limit that has been checked.
#[derive(Clone, Debug)]
pub(crate) struct BuiltLimit {
    pub(crate) mark: Mark,
    pub(crate) limit: RuleLimit,
    pub(crate) calendar: Option<Calendar>,
    pub(crate) unit: Option<Unit>,
    pub(crate) window_text: Box<str>,
    pub(crate) name: Option<Box<str>>,
    pub(crate) replaces: Vec<At<Box<str>>>,
    pub(crate) id: Option<At<Box<str>>>,
    pub(crate) policy: Policy,
    pub(crate) retry_after: Option<Micros>,
}

impl BuiltLimit {
    /// No limit.
    pub(crate) fn unlimited(mark: Mark) -> Self {
        Self {
            mark,
            limit: RuleLimit::Unlimited,
            calendar: None,
            unit: None,
            window_text: "".into(),
            name: None,
            replaces: Vec::new(),
            id: None,
            policy: Policy::default(),
            retry_after: None,
        }
    }

    /// The rule of the limit, in all other respects as `base`.
    pub(crate) fn into_rule(self, place: Position, base: Rule) -> Rule {
        Rule {
            place,
            limit: self.limit,
            calendar: self.calendar,
            unit: self.unit,
            window_text: self.window_text,
            // Others may replace the limit by the name of that whose place it takes.
            name: self.name.or(base.name),
            retry_after: self.retry_after,
            ..base
        }
    }
}

impl LimitDraft {
    /// Checks the draft. [`None`] if it is wrong, which `faults` has been told.
    pub(crate) fn build(
        mut self,
        around: LimitDefaults<'_>,
        faults: &mut dyn Faults,
    ) -> Option<BuiltLimit> {
        let unlimited = BuiltLimit {
            replaces: std::mem::take(&mut self.replaces),
            name: self.name.take(),
            id: self.id.take(),
            policy: std::mem::take(&mut self.policy).within(around.policy),
            ..BuiltLimit::unlimited(self.mark)
        };
        if self.quota.unlimited.get() == Some(&true) {
            self.check_unlimited(faults);
            return Some(unlimited);
        }
        let window = self.window(faults);
        let quota = self.quota(faults);
        let (window, quota) = (window?, quota?);
        let default = match window {
            Window::Calendar(_) => Algorithm::FixedWindow,
            _ => unlimited.policy.algorithm.unwrap_or(around.algorithm),
        };
        let algorithm = self.algorithm.get().copied().unwrap_or(default);
        let limit = self.limit(algorithm, quota, &window, faults)?;
        Some(BuiltLimit {
            limit: RuleLimit::Limited(limit),
            unit: window.unit(),
            window_text: window.text().into(),
            calendar: window.into_calendar(),
            ..unlimited
        })
    }

    /// The limit, unless its counters' arithmetic could overflow.
    fn limit(
        &self,
        algorithm: Algorithm,
        quota: u64,
        window: &Window,
        faults: &mut dyn Faults,
    ) -> Option<Limit> {
        if self.quota.form.is_wrong() {
            return None;
        }
        let form = &self.quota.form;
        let sub_windows = form.sub_windows.get();
        let spec = LimitSpec {
            calendar: matches!(window, Window::Calendar(_)),
            burst: form.burst.copied(),
            // More than any limit can have is refused as such.
            sub_windows: sub_windows.map(|count| u32::try_from(*count).unwrap_or(u32::MAX)),
            strict: form.strict.get() == Some(&true),
            post_paid: form.post_paid.get() == Some(&true),
            max_debt: form.max_debt.copied(),
            ..LimitSpec::new(algorithm, quota, window.length())
        };
        let error = match Limit::try_new(spec) {
            Ok(limit) => return Some(limit),
            Err(error) => error,
        };
        let mut culprits = culprits(error).iter();
        let (key, mark) = culprits
            .find_map(|key| Some((*key, self.mark_of(key)?)))
            .unwrap_or(("limit", self.mark));
        let help = match error {
            LimitError::EmptyWindow if algorithm.holds_permits() => Some("write `timeout: 60s`"),
            error => limit_help(error),
        };
        faults.error(key, mark, &told(error, algorithm), help);
        None
    }

    /// The position of the value of `key`.
    fn mark_of(&self, key: &str) -> Option<Mark> {
        match key {
            "algorithm" => self.algorithm.mark(),
            "burst" => self.quota.form.burst.mark(),
            "calendar" => self.quota.calendar.mark(),
            "limit" => self.quota.limit.mark(),
            "requests_per_unit" => self.quota.requests_per_unit.mark(),
            "max_debt" => self.quota.form.max_debt.mark(),
            "post_paid" => self.quota.form.post_paid.mark(),
            "strict" => self.quota.form.strict.mark(),
            "sub_windows" => self.quota.form.sub_windows.mark(),
            "window" => self.quota.window.mark(),
            _ => None,
        }
    }

    fn quota(&self, faults: &mut dyn Faults) -> Option<u64> {
        let help = Some("write `limit: 100`; 0 blocks everything");
        let (per_unit, limit) = (&self.quota.requests_per_unit, &self.quota.limit);
        match (per_unit.key(), limit.key()) {
            (Some(_), Some(mark)) => {
                let message = "`limit` and `requests_per_unit` say the same thing";
                faults.error("limit", mark, message, Some("leave one of them out"));
                None
            }
            (None, Some(_)) if !limit.is_set() => {
                faults.error("limit", self.mark, "`limit` is empty", help);
                None
            }
            (None, Some(_)) => limit.get().copied(),
            (Some(_), None) if per_unit.is_set() => per_unit.get().copied(),
            _ if self.quota.window.is_set() || self.quota.calendar.is_set() => {
                faults.error("limit", self.mark, "there is no `limit`", help);
                None
            }
            _ => {
                let message = "without `requests_per_unit` this blocks everything";
                let help = "if that is meant, write `requests_per_unit: 0`";
                faults.warn(self.mark, message, Some(help));
                Some(0)
            }
        }
    }

    fn check_unlimited(&self, faults: &mut dyn Faults) {
        if let (Some(unit), Some(mark)) = (self.quota.unit.get(), self.quota.unit.mark()) {
            if Unit::from_name(unit).is_some() {
                let message = "should not specify rate limit unit when unlimited";
                let help = "leave out `unit:`, or `unlimited:`";
                faults.error("unit", mark, message, Some(help));
            } else {
                let message = "`unit` means nothing beside `unlimited` and is ignored";
                faults.warn(mark, message, None);
            }
        }
        if let (Some(_), Some(mark)) = (
            self.quota.requests_per_unit.get(),
            self.quota.requests_per_unit.mark(),
        ) {
            let message = "`requests_per_unit` means nothing beside `unlimited` and is ignored";
            faults.warn(mark, message, None);
        }
        let others = [
            ("limit", self.quota.limit.key()),
            ("window", self.quota.window.key()),
            ("calendar", self.quota.calendar.key()),
            ("burst", self.quota.form.burst.key()),
            ("sub_windows", self.quota.form.sub_windows.key()),
            ("strict", self.quota.form.strict.key()),
            ("post_paid", self.quota.form.post_paid.key()),
            ("max_debt", self.quota.form.max_debt.key()),
            ("algorithm", self.algorithm.key()),
        ];
        for (key, mark) in others {
            if let Some(mark) = mark {
                let message = format!("`{key}` contradicts `unlimited`");
                faults.error(key, mark, &message, Some("leave one of them out"));
            }
        }
    }
}

/// The keys that an error can be about; the first one that the draft has is shown.
const fn culprits(error: LimitError) -> &'static [&'static str] {
    match error {
        LimitError::EmptyWindow | LimitError::WindowTooShort => &["window"],
        LimitError::BurstTooLarge | LimitError::ZeroBurst | LimitError::NoBurst(_) => &["burst"],
        LimitError::NoSubWindows(_) | LimitError::SubWindowsOutOfRange => &["sub_windows"],
        LimitError::SubWindowsTooShort { .. } => &["sub_windows", "window"],
        LimitError::NoStrict(_) | LimitError::StrictWithSubWindows => &["strict"],
        LimitError::NoPostPaid(_) | LimitError::PostPaidWithSubWindows => &["post_paid"],
        LimitError::DebtWithoutPostPaid | LimitError::NoDebt(_) => &["max_debt"],
        LimitError::DebtTooLarge(_) => &["max_debt", "burst"],
        LimitError::NoCalendar(_) => &["algorithm", "calendar"],
        _ => &["limit", "requests_per_unit", "burst"],
    }
}

/// The error in the words of the keys that a file has.
fn told(error: LimitError, algorithm: Algorithm) -> String {
    if error == LimitError::EmptyWindow && algorithm.holds_permits() {
        return "a timeout is at least 1 microsecond".to_owned();
    }
    error.to_string()
}

const fn limit_help(error: LimitError) -> Option<&'static str> {
    let help = match error {
        LimitError::NoBurst(_) => "add `algorithm: token_bucket`, or leave `burst` out",
        LimitError::NoSubWindows(_) => {
            "add `algorithm: sliding_window`, or leave `sub_windows` out"
        }
        LimitError::NoStrict(_) => "add `algorithm: sliding_window`, or leave `strict` out",
        LimitError::StrictWithSubWindows => "leave `sub_windows` out, or `strict`",
        LimitError::NoPostPaid(_) => "write `algorithm: token_bucket`, or `post_paid: false`",
        LimitError::PostPaidWithSubWindows => {
            "leave `sub_windows` out, or write `post_paid: false`"
        }
        LimitError::DebtWithoutPostPaid => "add `post_paid: true`, or leave `max_debt` out",
        LimitError::NoDebt(_) => "leave `max_debt` out",
        LimitError::NoCalendar(_) => "write `algorithm: fixed_window`, or leave it out",
        LimitError::EmptyWindow => "write `window: 10s`",
        _ => return None,
    };
    Some(help)
}

/// The id suffixes of a list's limits: the window, and the algorithm where the window is not
/// enough.
pub(crate) fn suffixes(limits: &[BuiltLimit], is_list: bool) -> Vec<Option<String>> {
    let suffix = |limit: &BuiltLimit| {
        let window = &limit.window_text;
        let alike = limits
            .iter()
            .filter(|other| other.window_text == *window)
            .count();
        match limit.limit {
            RuleLimit::Limited(limit) if alike > 1 => {
                format!("{window}:{}", limit.algorithm().name())
            }
            RuleLimit::Limited(_) => window.to_string(),
            RuleLimit::Unlimited => "unlimited".to_owned(),
        }
    };
    limits
        .iter()
        .map(|limit| is_list.then(|| suffix(limit)))
        .collect()
}
