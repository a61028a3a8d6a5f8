//! The limits in force as text, in the format of envoyproxy/ratelimit's `/rlconfig`.

use std::fmt::{self, Write as _};

use crate::{Domain, Node, PlanIndex, RuleIndex, RuleLimit, RuleSet};

/// The part that a rule has in decisions, as its line says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RulePart {
    /// It takes part.
    pub enabled: bool,
    /// It denies nothing.
    pub shadow: bool,
}

impl RuleSet {
    /// As [`Self::rlconfig_of`], as the files have it.
    #[must_use]
    pub fn rlconfig(&self) -> String {
        self.rlconfig_of(|index| {
            let rule = self.rule(index);
            RulePart {
                enabled: rule.enabled,
                shadow: rule.shadow,
            }
        })
    }

    /// Returns a line for each limit, in the order of the files: `domain.path: unit=MINUTE
    /// requests_per_unit=5, shadow_mode: false, quota_mode: false`.
    ///
    /// Properties that envoyproxy/ratelimit does not have follow at the end: a window that is not a
    /// unit (`unit=UNKNOWN`), an algorithm other than its own, the plan whose limit it is. Secret values
    /// are replaced by fingerprints. `part` is what each rule has in decisions. Limits of single tenants are
    /// left out.
    #[must_use]
    pub fn rlconfig_of(&self, part: impl Fn(RuleIndex) -> RulePart) -> String {
        let mut text = String::new();
        for domain in &self.domains {
            let path = domain.name().to_owned();
            for node in domain.nodes() {
                // Writing to a string cannot fail.
                let _ = self.write_node((&mut text, &part), domain, &path, node);
            }
        }
        text
    }

    fn write_node(
        &self,
        (text, part): (&mut String, &dyn Fn(RuleIndex) -> RulePart),
        domain: &Domain,
        above: &str,
        node: &Node,
    ) -> fmt::Result {
        let path = format!("{above}.{}", domain.composite(node.key(), node.value()));
        let rules = node.rules();
        let of_plans = node.by_plan().flat_map(|(plan, own)| {
            // A concurrency limit is among the rules of each plan.
            let own = own.iter().filter(move |index| !rules.contains(index));
            own.map(move |index| (*index, plan))
        });
        let of_default = rules.iter().map(|index| (*index, PlanIndex::DEFAULT));
        for (index, plan) in of_default.chain(of_plans) {
            self.write_rule(text, &path, (index, part(index)))?;
            if plan != PlanIndex::DEFAULT {
                write!(text, ", plan: {}", domain.plan_name(plan))?;
            }
            writeln!(text)?;
        }
        node.nodes()
            .iter()
            .try_for_each(|child| self.write_node((&mut *text, part), domain, &path, child))
    }

    /// Writes a line without its end.
    fn write_rule(
        &self,
        text: &mut String,
        path: &str,
        (index, part): (RuleIndex, RulePart),
    ) -> fmt::Result {
        let rule = self.rule(index);
        let unit = rule.unit.map_or("UNKNOWN", |unit| unit.name());
        let quota = rule.limited().map_or(0, |limit| limit.quota());
        write!(
            text,
            "{path}: unit={unit} requests_per_unit={quota}, shadow_mode: {}, quota_mode: {}",
            part.shadow, rule.quota_mode
        )?;
        match &rule.limit {
            RuleLimit::Unlimited => write!(text, ", unlimited: true")?,
            RuleLimit::Limited(limit) => {
                if rule.unit.is_none() {
                    write!(text, ", window: {}", rule.window_text)?;
                }
                if !limit.algorithm().has_fixed_windows() {
                    write!(text, ", algorithm: {}", limit.algorithm().name())?;
                }
                if limit.algorithm().has_burst() {
                    write!(text, ", burst: {}", limit.capacity())?;
                }
            }
        }
        if !part.enabled {
            write!(text, ", enabled: false")?;
        }
        if !rule.enforce.is_all() {
            write!(text, ", enforce: {}", rule.enforce)?;
        }
        Ok(())
    }
}
