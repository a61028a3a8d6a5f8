//! The limits in force as text, in the format of envoyproxy/ratelimit's `/rlconfig`.

use std::fmt::{self, Write as _};

use crate::{Domain, Node, RuleIndex, RuleLimit, RuleSet};

impl RuleSet {
    /// Returns a line for each limit, in the order of the files: `domain.path: unit=MINUTE
    /// requests_per_unit=5, shadow_mode: false, quota_mode: false`.
    ///
    /// Properties that envoyproxy/ratelimit does not have follow at the end: a window that is not a
    /// unit (`unit=UNKNOWN`), an algorithm other than its own. Secret values are replaced by
    /// fingerprints.
    #[must_use]
    pub fn rlconfig(&self) -> String {
        let mut text = String::new();
        for domain in &self.domains {
            let path = domain.name().to_owned();
            for node in domain.nodes() {
                // Writing to a string cannot fail.
                let _ = self.write_node(&mut text, domain, &path, node);
            }
        }
        text
    }

    fn write_node(
        &self,
        text: &mut String,
        domain: &Domain,
        above: &str,
        node: &Node,
    ) -> fmt::Result {
        let path = format!("{above}.{}", domain.composite(node.key(), node.value()));
        for &index in node.rules() {
            self.write_rule(text, &path, index)?;
        }
        node.nodes()
            .iter()
            .try_for_each(|child| self.write_node(text, domain, &path, child))
    }

    fn write_rule(&self, text: &mut String, path: &str, index: RuleIndex) -> fmt::Result {
        let rule = self.rule(index);
        let unit = rule.unit.map_or("UNKNOWN", |unit| unit.name());
        let quota = rule.limited().map_or(0, |limit| limit.quota());
        write!(
            text,
            "{path}: unit={unit} requests_per_unit={quota}, shadow_mode: {}, quota_mode: {}",
            rule.shadow, rule.quota_mode
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
        if !rule.enabled {
            write!(text, ", enabled: false")?;
        }
        if !rule.enforce.is_all() {
            write!(text, ", enforce: {}", rule.enforce)?;
        }
        writeln!(text)
    }
}
