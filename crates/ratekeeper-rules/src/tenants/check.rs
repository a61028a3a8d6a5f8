//! Checks of a tenant's quotas by the rules of their domain.

use super::site::{OVERRIDES_MAX, Site, Target, entry_of};
use super::{BadQuotas, OwnQuota, QuotaList, TenantQuotas, Term};
use crate::parse::context::Context;
use crate::parse::fields::Fields;
use crate::parse::limits::{LimitDefaults, limit_of};
use crate::parse::policy::Policy;
use crate::report::Report;
use crate::{Position, Rule, RuleSet, Source, yaml};

/// The most plans of one tenant, one after the other.
const PLANS_MAX: usize = 64;

/// The longest text in a quota, in bytes.
const TEXT_BYTES_MAX: usize = 256;

/// The most bytes of all entries of a descriptor: it is part of a key in the database, and of the ids of rules. An index
/// of PostgreSQL takes less than three kilobytes.
const DESCRIPTOR_BYTES_MAX: usize = 1_024;

impl TenantQuotas {
    /// Checks the quotas by the rules of their domain.
    ///
    /// # Errors
    /// The first mistake; see [`BadQuotas::field`].
    pub fn check(&self, domain: &str, rules: &RuleSet) -> Result<(), BadQuotas> {
        let found = rules
            .domain(domain)
            .filter(|found| found.tenant().is_some());
        let found = found.ok_or_else(|| BadQuotas::NoDomain {
            domain: domain.into(),
        })?;
        let known = found.plans();
        for (at, (_, plan)) in self.plans.iter().enumerate() {
            if !known.contains(plan) {
                let known = match known {
                    [] => "none: the rules have no `plans`".into(),
                    names => names.join(", ").into(),
                };
                let plan = plan.clone();
                return Err(BadQuotas::NoPlan { at, plan, known });
            }
        }
        let plans: Vec<_> = self
            .plans
            .iter()
            .map(|(term, _)| (*term, &[][..]))
            .collect();
        check_terms(QuotaList::Plans, PLANS_MAX, &plans)?;
        let overrides = self.overrides.iter();
        let overrides: Vec<_> = overrides
            .map(|(term, quota)| (*term, &quota.descriptor[..]))
            .collect();
        check_terms(QuotaList::Overrides, OVERRIDES_MAX, &overrides)?;
        let site = rules.site(found);
        for (at, (_, quota)) in self.overrides.iter().enumerate() {
            quota
                .compile(&site, rules.rules())
                .map_err(|refused| refused.at(at))?;
        }
        Ok(())
    }
}

fn check_terms(list: QuotaList, most: usize, all: &[(Term, &[Box<str>])]) -> Result<(), BadQuotas> {
    if all.len() > most {
        return Err(BadQuotas::TooMany { list, most });
    }
    for (at, (term, descriptor)) in all.iter().enumerate() {
        if term.until <= term.from {
            return Err(BadQuotas::EndsBeforeItBegins { list, at });
        }
        let is_same =
            |(other, its): &(Term, &[Box<str>])| other.from == term.from && its == descriptor;
        if all[..at].iter().any(is_same) {
            return Err(BadQuotas::BeginsTwice { list, at });
        }
    }
    Ok(())
}

/// The mistake in a limit.
#[derive(Debug)]
pub(crate) struct RefusedQuota {
    key: &'static str,
    message: Box<str>,
    help: Option<Box<str>>,
}

impl RefusedQuota {
    fn at(self, at: usize) -> BadQuotas {
        BadQuotas::NoLimit {
            at,
            key: self.key,
            message: self.message,
            help: self.help,
        }
    }
}

impl OwnQuota {
    /// The place of the override among the rules of its domain, and its rule.
    pub(crate) fn compile(
        &self,
        site: &Site<'_>,
        rules: &[Rule],
    ) -> Result<(Target, Rule), RefusedQuota> {
        self.check_texts()?;
        let parts: Vec<_> = self.parts().collect();
        let target = site.target(&parts, rules).map_err(|wrong| RefusedQuota {
            key: "descriptor",
            message: wrong.to_string().into(),
            help: wrong.help().map(Into::into),
        })?;
        let lines = self.lines();
        let text: Vec<_> = lines
            .iter()
            .map(|(key, value)| format!("{key}: {value}"))
            .collect();
        let source = Source {
            name: "quota store".to_owned(),
            text: text.join("\n"),
        };
        let mut report = Report::new(&source);
        let tree = yaml::build(&source.text).root;
        let limit = tree.as_deref().and_then(|tree| {
            let fields = Fields::new(tree, Context::TenantOverride, &mut report)?;
            let algorithm = site.algorithm(Some(&target), rules);
            let defaults = LimitDefaults {
                policy: &Policy::default(),
                algorithm,
            };
            limit_of(&fields, defaults, &mut report)
        });
        let (mut errors, _) = report.finish();
        if let (Some(limit), true) = (limit, errors.is_empty()) {
            let place = Position {
                file: source.name.as_str().into(),
                line: 1,
                column: 1,
            };
            let rule = site.rule(limit, &target, place, rules);
            return Ok((target, rule));
        }
        let error = (!errors.is_empty()).then(|| errors.swap_remove(0));
        let line = error.as_ref().map_or(1, |error| error.place.line) as usize;
        let key = lines.get(line.saturating_sub(1)).map(|(key, _)| *key);
        Err(RefusedQuota {
            key: key.map_or("requests_per_unit", spoken),
            message: error
                .as_ref()
                .map_or("this is no limit", |error| &*error.message)
                .into(),
            help: error.and_then(|error| error.help).map(Into::into),
        })
    }

    /// Checks the parts that the limit's own rules say nothing about.
    fn check_texts(&self) -> Result<(), RefusedQuota> {
        let refused = |key, message: &str| RefusedQuota {
            key,
            message: message.into(),
            help: None,
        };
        let texts = [
            ("unit", &self.unit),
            ("window", &self.window),
            ("algorithm", &self.algorithm),
        ];
        let texts = texts
            .iter()
            .filter_map(|(key, text)| Some((*key, text.as_deref()?)));
        let entries = self.descriptor.iter().map(|text| ("descriptor", &**text));
        for (key, text) in texts.chain(entries) {
            if text.len() > TEXT_BYTES_MAX || text.chars().any(char::is_control) {
                let message =
                    format!("it has 1 to {TEXT_BYTES_MAX} bytes and no control characters");
                return Err(refused(key, &message));
            }
        }
        if self.descriptor.len() > crate::tenants::ENTRIES_MAX {
            return Err(refused("descriptor", "it has too many entries"));
        }
        let bytes: usize = self.descriptor.iter().map(|text| text.len()).sum();
        if bytes > DESCRIPTOR_BYTES_MAX {
            let message = format!("its entries have more than {DESCRIPTOR_BYTES_MAX} bytes");
            return Err(refused("descriptor", &message));
        }
        if self.descriptor.iter().any(|text| entry_of(text).is_none()) {
            let message = "an entry has no key: it is the key, a colon and the value";
            return Err(refused("descriptor", message));
        }
        match (&self.unit, &self.window) {
            (None, None) => Err(refused("unit", "neither `unit` nor `window` is there")),
            (Some(_), Some(_)) => Err(refused("window", "`unit` and `window` say the same thing")),
            _ => Ok(()),
        }
    }

    /// The limit as a rules file has it, a key a line.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let quota = match u32::try_from(self.requests_per_unit) {
            Ok(_) => "requests_per_unit",
            Err(_) => "limit",
        };
        let mut lines = vec![(quota, self.requests_per_unit.to_string())];
        let texts = [
            ("unit", &self.unit),
            ("window", &self.window),
            ("algorithm", &self.algorithm),
        ];
        for (key, text) in texts {
            // Text in JSON's quotes reads the same in YAML.
            lines.extend(
                text.as_ref()
                    .map(|text| (key, serde_json::Value::from(&**text).to_string())),
            );
        }
        lines.extend(self.burst.map(|burst| ("burst", burst.to_string())));
        lines
    }
}

/// The name that a key of a rules file has in a record.
fn spoken(key: &'static str) -> &'static str {
    match key {
        "limit" => "requests_per_unit",
        key => key,
    }
}
