//! Tenants as documents: the JSON of the admin API, and of files for import and export.

use std::fmt;
use std::str::FromStr;

use ratekeeper_core::{Algorithm, Timestamp};
use ratekeeper_rules::window::format_duration;
use ratekeeper_rules::{
    BadQuotas, CUSTOM, Domain, Entry, OwnQuota, PlanIndex, QuotaList, Rule, RuleSet, TenantQuotas,
    Term,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::TenantRecord;

/// The descriptor of a limit of the tenant as a whole.
pub const WHOLE_TENANT: &str = "default";

/// The plans and overrides that a tenant is to have, in place of all that it has.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaDocument {
    /// The plan: one of the domain's `plans`, or `custom` for overrides alone. Without it the tenant is on the
    /// default plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Several plans, one after the other, in place of `tier`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<TierDocument>,
    /// The limits that the tenant has alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<OverrideDocument>,
    /// The time from which on this holds. If it is still to come, the tenant keeps what it has until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_at: Option<Rfc3339>,
    /// The time at which plan and overrides end; the tenant is on the default plan then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Rfc3339>,
}

/// A plan and the time in which a tenant is on it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierDocument {
    /// The plan.
    pub tier: String,
    /// The time at which it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_at: Option<Rfc3339>,
    /// The time at which it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Rfc3339>,
}

/// A limit that one tenant has alone.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverrideDocument {
    /// The entries after the tenant's, each as `key:value`; `default`, or nothing, for the tenant as a whole.
    #[serde(default)]
    pub descriptor: DescriptorText,
    /// The hits that a window holds.
    pub requests_per_unit: u64,
    /// The window as a unit: `second`, `minute`, `hour`, `day`, `week`, `month` or `year`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The window as a duration, in place of `unit`: `10s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
    /// The hits that may come at once, for algorithms with bursts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// The algorithm; by default that of the limit whose place it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// The time at which it begins; by default that of the whole document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_at: Option<Rfc3339>,
    /// The time at which it ends; by default that of the whole document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Rfc3339>,
}

/// The entries of a descriptor: one as a text, several as a list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DescriptorText(pub Vec<String>);

/// A time as in `2027-01-31T00:00:00Z`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rfc3339(pub Timestamp);

/// A text that is no time since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected a time since 1970 with its offset, such as 2027-01-31T00:00:00Z")]
pub struct NotATime;

/// A document that says two things, or nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadDocument {
    /// Both `tier` and `tiers` are there.
    #[error("`tier` and `tiers` say the same thing")]
    TierTwice,
    /// The plan is `custom`, and there are no overrides.
    #[error("a tenant on `custom` needs overrides: it has nothing else")]
    NothingCustom,
    /// One of several plans is `custom`.
    #[error("`custom` stands alone, as `tier`")]
    CustomAmongOthers {
        /// Its place in the list.
        at: usize,
    },
}

impl BadDocument {
    /// The field that is wrong.
    #[must_use]
    pub fn field(&self) -> String {
        match self {
            Self::TierTwice => "tiers".to_owned(),
            Self::NothingCustom => "overrides".to_owned(),
            Self::CustomAmongOthers { at } => format!("tiers[{at}].tier"),
        }
    }
}

impl QuotaDocument {
    /// The document of these quotas: all of them, with their times.
    #[must_use]
    pub fn of(quotas: &TenantQuotas) -> Self {
        let (tier, tiers) = match quotas.plans.as_slice() {
            [] if quotas.overrides.is_empty() => (None, Vec::new()),
            [] => (Some(CUSTOM.to_owned()), Vec::new()),
            [(term, plan)] if *term == Term::ALWAYS => (Some(plan.to_string()), Vec::new()),
            plans => (None, plans.iter().map(TierDocument::of).collect()),
        };
        Self {
            tier,
            tiers,
            overrides: quotas.overrides.iter().map(OverrideDocument::of).collect(),
            effective_at: None,
            expires_at: None,
        }
    }

    /// The quotas of the document.
    ///
    /// # Errors
    /// The document says two things, or nothing.
    pub fn quotas(&self) -> Result<TenantQuotas, BadDocument> {
        let whole = (self.effective_at, self.expires_at);
        let plans = match (&self.tier, self.tiers.as_slice()) {
            (Some(_), [_, ..]) => return Err(BadDocument::TierTwice),
            (Some(tier), []) if tier == CUSTOM => {
                if self.overrides.is_empty() {
                    return Err(BadDocument::NothingCustom);
                }
                Vec::new()
            }
            (Some(tier), []) => vec![(term(whole, whole), tier.as_str().into())],
            (None, tiers) => {
                if let Some(at) = tiers.iter().position(|plan| plan.tier == CUSTOM) {
                    return Err(BadDocument::CustomAmongOthers { at });
                }
                let plan = |plan: &TierDocument| {
                    let times = (plan.effective_at, plan.expires_at);
                    (term(times, whole), plan.tier.as_str().into())
                };
                tiers.iter().map(plan).collect()
            }
        };
        let overrides = self.overrides.iter();
        Ok(TenantQuotas {
            plans,
            overrides: overrides.map(|own| own.own_quota(whole)).collect(),
            epoch: 0,
        })
    }

    /// The field of the document that a mistake in its quotas is about.
    #[must_use]
    pub fn field(&self, bad: &BadQuotas) -> String {
        let is_one = self.tiers.is_empty();
        match bad {
            BadQuotas::NoDomain { .. } => "?domain".to_owned(),
            BadQuotas::NoPlan { .. } if is_one => "tier".to_owned(),
            BadQuotas::NoPlan { at, .. } => format!("tiers[{at}].tier"),
            BadQuotas::EndsBeforeItBegins { list, at } => {
                self.field_of_time(*list, *at, "expires_at")
            }
            BadQuotas::BeginsTwice { list, at } => self.field_of_time(*list, *at, "effective_at"),
            BadQuotas::TooMany {
                list: QuotaList::Plans,
                ..
            } => "tiers".to_owned(),
            bad => bad.field(),
        }
    }

    /// The place of a time: that of the whole document, where the part has none.
    fn field_of_time(&self, list: QuotaList, at: usize, name: &str) -> String {
        let of_part = |effective_at: Option<Rfc3339>, expires_at: Option<Rfc3339>| match name {
            "expires_at" => expires_at.is_some(),
            _ => effective_at.is_some() || self.effective_at.is_none(),
        };
        match list {
            QuotaList::Plans => match self.tiers.get(at) {
                Some(plan) if of_part(plan.effective_at, plan.expires_at) => {
                    format!("tiers[{at}].{name}")
                }
                _ => name.to_owned(),
            },
            QuotaList::Overrides => match self.overrides.get(at) {
                Some(own) if of_part(own.effective_at, own.expires_at) => {
                    format!("overrides[{at}].{name}")
                }
                _ => name.to_owned(),
            },
        }
    }
}

impl TierDocument {
    fn of((term, plan): &(Term, Box<str>)) -> Self {
        let (effective_at, expires_at) = times(*term);
        Self {
            tier: plan.to_string(),
            effective_at,
            expires_at,
        }
    }
}

impl OverrideDocument {
    pub(crate) fn of((term, own): &(Term, OwnQuota)) -> Self {
        let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
        let (effective_at, expires_at) = times(*term);
        Self {
            descriptor: DescriptorText(own.descriptor.iter().map(ToString::to_string).collect()),
            requests_per_unit: own.requests_per_unit,
            unit: text(&own.unit),
            window: text(&own.window),
            burst: own.burst,
            algorithm: text(&own.algorithm),
            effective_at,
            expires_at,
        }
    }

    fn own_quota(&self, whole: (Option<Rfc3339>, Option<Rfc3339>)) -> (Term, OwnQuota) {
        let text = |text: &Option<String>| text.as_deref().map(Into::into);
        let quota = OwnQuota {
            descriptor: self
                .descriptor
                .0
                .iter()
                .map(|it| it.as_str().into())
                .collect(),
            requests_per_unit: self.requests_per_unit,
            unit: text(&self.unit),
            window: text(&self.window),
            burst: self.burst,
            algorithm: text(&self.algorithm),
        };
        (term((self.effective_at, self.expires_at), whole), quota)
    }
}

/// The time of a part; what it does not say, the whole document does.
fn term(
    part: (Option<Rfc3339>, Option<Rfc3339>),
    whole: (Option<Rfc3339>, Option<Rfc3339>),
) -> Term {
    let from = part.0.or(whole.0).map(|time| time.0);
    let until = part.1.or(whole.1).map(|time| time.0);
    Term {
        from: from.unwrap_or(Term::ALWAYS.from),
        until: until.unwrap_or(Term::ALWAYS.until),
    }
}

fn times(term: Term) -> (Option<Rfc3339>, Option<Rfc3339>) {
    let from = (term.from != Term::ALWAYS.from).then_some(Rfc3339(term.from));
    let until = (term.until != Term::ALWAYS.until).then_some(Rfc3339(term.until));
    (from, until)
}

/// A tenant as the admin API shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TenantDocument {
    /// The tenant; of a secret value only the end, unless the reader named it.
    pub api_key: String,
    /// The keyed hash of its value, by which it can be named as `hash:…`.
    pub hash: String,
    /// The domain.
    pub domain: String,
    /// The plan that it is on now; `custom` if it has overrides alone. Absent in a domain without plans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Its plans with their times, if they are not the same for ever.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<TierDocument>,
    /// Its limits.
    pub quotas: LimitsDocument,
    /// The number of times that its usage was reset.
    pub epoch: u32,
    /// The number of the change that made it so; its entity tag.
    pub version: u64,
    /// The time at which it was first put.
    pub created_at: Rfc3339,
    /// The time of the last change.
    pub updated_at: Rfc3339,
}

/// The limits of a tenant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LimitsDocument {
    /// The limit of the tenant as a whole that holds now, from its overrides, its plan or the default plan. Absent if
    /// the rules have none, or more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<LimitDocument>,
    /// The limits that it has alone: those in force and those of other times.
    pub overrides: Vec<OverrideDocument>,
}

/// A limit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LimitDocument {
    /// The hits that a window holds.
    pub requests_per_unit: u64,
    /// The window as a unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The window, if no unit is as long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
}

impl TenantDocument {
    /// A tenant at the time `now`. `api_key` is its value, where the reader has named it.
    #[must_use]
    pub fn of(
        record: &TenantRecord,
        api_key: Option<&str>,
        rules: &RuleSet,
        now: Timestamp,
    ) -> Self {
        let QuotaDocument {
            tier,
            tiers,
            overrides,
            ..
        } = QuotaDocument::of(&record.quotas);
        let domain = rules.domain(&record.id.domain);
        let in_force = record.quotas.plans.iter().rev();
        let in_force = in_force.filter(|(term, _)| term.contains(now));
        let in_force = in_force.map(|(_, plan)| plan.to_string()).next();
        let fallback = tier.filter(|tier| tier == CUSTOM).or_else(|| {
            let name = domain?.plan_name(PlanIndex::DEFAULT);
            Some(name.to_owned()).filter(|name| !name.is_empty())
        });
        let value = api_key.unwrap_or(&record.id.shown);
        let default = domain.and_then(|domain| {
            LimitDocument::of_whole(record, in_force.as_deref(), domain, (rules, value, now))
        });
        Self {
            api_key: value.to_owned(),
            hash: record.id.hash.to_string(),
            domain: record.id.domain.clone(),
            tier: in_force.or(fallback),
            tiers,
            quotas: LimitsDocument { default, overrides },
            epoch: record.quotas.epoch,
            version: record.version,
            created_at: Rfc3339(record.created_at),
            updated_at: Rfc3339(record.updated_at),
        }
    }
}

impl LimitDocument {
    /// The limit of the tenant as a whole.
    fn of_whole(
        record: &TenantRecord,
        plan: Option<&str>,
        domain: &Domain,
        (rules, value, now): (&RuleSet, &str, Timestamp),
    ) -> Option<Self> {
        let own = record.quotas.overrides.iter();
        let own = own.filter(|(term, own)| own.descriptor.is_empty() && term.contains(now));
        if let Some((_, own)) = own.max_by_key(|(term, _)| term.from) {
            let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
            return Some(Self {
                requests_per_unit: own.requests_per_unit,
                unit: text(&own.unit),
                window: text(&own.window),
            });
        }
        let entry = Entry {
            key: domain.tenant()?,
            value,
        };
        let visit = domain.walk(&[entry]).leaf()?;
        let at = plan.and_then(|plan| domain.plans().iter().position(|known| **known == *plan));
        let plan = at.and_then(|at| u16::try_from(at).ok()).map(PlanIndex);
        let is_rate = |rule: &&Rule| {
            let limit = rule.limited();
            limit.is_some_and(|limit| limit.algorithm() != Algorithm::Concurrency)
        };
        let limits = visit.node.rules_on(plan.unwrap_or_default()).iter();
        let mut limits = limits.map(|index| rules.rule(*index)).filter(is_rate);
        let (only, None) = (limits.next()?, limits.next()) else {
            return None;
        };
        let limit = only.limited()?;
        let unit = only.unit.map(|unit| unit.name().to_lowercase());
        Some(Self {
            requests_per_unit: limit.quota(),
            window: unit.is_none().then(|| match &only.calendar {
                Some(_) => only.window_text.to_string(),
                None => format_duration(limit.window()),
            }),
            unit,
        })
    }
}

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = i64::try_from(self.0.as_micros()).unwrap_or(i64::MAX);
        let time = jiff::Timestamp::from_microsecond(micros);
        fmt::Display::fmt(&time.unwrap_or(jiff::Timestamp::MAX), f)
    }
}

impl FromStr for Rfc3339 {
    type Err = NotATime;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let time: jiff::Timestamp = text.parse().map_err(|_| NotATime)?;
        let micros = u64::try_from(time.as_microsecond()).map_err(|_| NotATime)?;
        Ok(Self(Timestamp::from_micros(micros)))
    }
}

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rfc3339 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for DescriptorText {
    type Err = serde_json::Error;

    /// Reads one entry, or a JSON list of several.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "" | WHOLE_TENANT => Self::default(),
            list if list.starts_with('[') => Self(serde_json::from_str(list)?),
            one => Self(vec![one.to_owned()]),
        })
    }
}

impl fmt::Display for DescriptorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str(WHOLE_TENANT),
            [one] if !one.starts_with('[') => f.write_str(one),
            several => write!(f, "{}", serde_json::Value::from(several)),
        }
    }
}

impl Serialize for DescriptorText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [] => serializer.serialize_str(WHOLE_TENANT),
            [one] => serializer.serialize_str(one),
            several => several.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for DescriptorText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "expected an entry as key:value, or a list of entries"
        )]
        enum Either {
            One(String),
            Several(Vec<String>),
        }
        Ok(match Either::deserialize(deserializer)? {
            Either::One(one) if one.is_empty() || one == WHOLE_TENANT => Self::default(),
            Either::One(one) => Self(vec![one]),
            Either::Several(several) => Self(several),
        })
    }
}
