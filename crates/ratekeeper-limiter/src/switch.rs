//! Switches: rules that operators turn off, or back on, while the service runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use ratekeeper_rules::Rule;
use serde::{Deserialize, Serialize};

/// The most rules that can be switched at one time.
pub const SWITCHES_MAX: usize = 10_000;

/// The position of one rule's switch. A rule without a switch does what its file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleSwitch {
    /// On, even if the file says `enabled: false`. A rule that the file has in shadow mode stays there.
    Enabled,
    /// Off: the rule takes no part in any decision.
    Disabled,
    /// Decided and counted, but not enforced.
    Shadow,
}

impl RuleSwitch {
    /// All positions.
    pub const ALL: [Self; 3] = [Self::Enabled, Self::Disabled, Self::Shadow];

    /// The position with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|position| position.name() == name)
    }

    /// The name in answers, metrics and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::Disabled => "disabled",
            Self::Shadow => "shadow",
        }
    }
}

/// The part that a rule has in decisions, by its file and its switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleMode {
    /// It denies requests that are over its limit.
    Enforced,
    /// It counts, and denies nothing.
    Shadow,
    /// It takes no part.
    Disabled,
}

impl RuleMode {
    /// The mode of `rule` with its switch, if it has one, in this position.
    #[must_use]
    pub fn of(rule: &Rule, switch: Option<RuleSwitch>) -> Self {
        let is_enabled = rule.enabled || switch == Some(RuleSwitch::Enabled);
        match switch {
            Some(RuleSwitch::Disabled) => Self::Disabled,
            Some(RuleSwitch::Shadow) => Self::Shadow,
            _ if !is_enabled => Self::Disabled,
            _ if rule.shadow => Self::Shadow,
            _ => Self::Enforced,
        }
    }

    /// The name in answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Shadow => "shadow",
            Self::Disabled => "disabled",
        }
    }
}

/// The reason why a rule is not switched.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SwitchError {
    /// No rule in force has this id.
    #[error("no rule has the id {0:?}")]
    UnknownRule(Box<str>),
    /// There are [`SWITCHES_MAX`] switches already.
    #[error("{SWITCHES_MAX} rules are switched already; restore some of them first")]
    TooMany,
}

/// The switches of all rules, by rule id. A copy shares its content until one of the two changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Switches(Arc<BTreeMap<Box<str>, RuleSwitch>>);

impl Switches {
    /// The switch of the rule with this id.
    #[must_use]
    pub fn get(&self, rule: &str) -> Option<RuleSwitch> {
        // Almost always there are none.
        match self.0.is_empty() {
            true => None,
            false => self.0.get(rule).copied(),
        }
    }

    /// Every switch with the id of its rule, in the order of the ids. Rules that the files no longer have are
    /// among them: a rule that comes back is still switched.
    pub fn iter(&self) -> impl Iterator<Item = (&str, RuleSwitch)> {
        self.0.iter().map(|(rule, switch)| (&**rule, *switch))
    }

    /// Returns true if no rule is switched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts the switch of `rule` into a position; [`None`] takes it away.
    pub(crate) fn set(&mut self, rule: &str, to: Option<RuleSwitch>) -> Result<(), SwitchError> {
        let is_new = !self.0.contains_key(rule);
        match to {
            None => {
                Arc::make_mut(&mut self.0).remove(rule);
            }
            Some(_) if is_new && self.0.len() >= SWITCHES_MAX => return Err(SwitchError::TooMany),
            Some(to) => {
                Arc::make_mut(&mut self.0).insert(rule.into(), to);
            }
        }
        Ok(())
    }
}

impl FromIterator<(Box<str>, RuleSwitch)> for Switches {
    /// Collects the first [`SWITCHES_MAX`].
    fn from_iter<I: IntoIterator<Item = (Box<str>, RuleSwitch)>>(switches: I) -> Self {
        Self(Arc::new(switches.into_iter().take(SWITCHES_MAX).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_modes_have_names() {
        let names = RuleSwitch::ALL.map(RuleSwitch::name);
        assert_eq!(names, ["enabled", "disabled", "shadow"]);
        assert_eq!(names.map(RuleSwitch::named), RuleSwitch::ALL.map(Some));
        assert_eq!(RuleSwitch::named("on"), None);
        let modes = [RuleMode::Enforced, RuleMode::Shadow, RuleMode::Disabled];
        let names = modes.map(RuleMode::name);
        assert_eq!(names, ["enforced", "shadow", "disabled"]);
    }

    #[test]
    fn switches_are_bounded() {
        let many = (0..SWITCHES_MAX).map(|number| (number.to_string().into(), RuleSwitch::Shadow));
        let mut switches: Switches = many.collect();
        assert_eq!(
            switches.set("one more", Some(RuleSwitch::Disabled)),
            Err(SwitchError::TooMany)
        );
        assert_eq!(switches.set("7", Some(RuleSwitch::Disabled)), Ok(()));
        assert_eq!(switches.get("7"), Some(RuleSwitch::Disabled));
        assert_eq!(switches.set("7", None), Ok(()));
        assert_eq!(switches.set("one more", Some(RuleSwitch::Disabled)), Ok(()));
    }
}
