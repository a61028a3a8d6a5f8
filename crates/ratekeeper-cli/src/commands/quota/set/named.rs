//! The plans and overrides that the flags of `quota set` name.

use crate::cli::QuotaSet;
use anyhow::{Context, Result, anyhow, bail};
use ratekeeper_core::Timestamp;
use ratekeeper_quota::{OverrideOption, QuotaDocument, QuotaEdit};
use ratekeeper_rules::time::Rfc3339;
use ratekeeper_rules::{
    CUSTOM, Dated, Dates, OverrideDescriptor, TenantOverride, TenantPlan, Unit,
};

/// The parts that the flags name.
pub(super) struct Named {
    edit: QuotaEdit,
    /// The dates of all parts that have none of their own.
    whole: Dates,
}

/// The parts that the flags name beside all others.
///
/// # Errors
/// A flag cannot be read, or there is none.
pub(super) fn named(args: &QuotaSet) -> Result<Box<Named>> {
    let mut named = Named::of(args)?;
    if named.edit.is_empty() {
        bail!(
            "nothing is named: write --plan, --override, --remove-plan or --remove-override; `quota delete` takes all away"
        );
    }
    if named.edit.plans.iter().any(|plan| *plan.plan == *CUSTOM) {
        bail!("--plan {CUSTOM}: to leave a plan, write --remove-plan NAME; overrides stay");
    }
    date_all(&mut named.edit.plans, named.whole);
    date_all(&mut named.edit.overrides, named.whole);
    Ok(Box::new(named))
}

/// Gives those without dates some.
fn date_all<T: Dated>(parts: &mut [T], dates: Dates) {
    let bare = parts.iter_mut().filter(|part| part.dates() == (None, None));
    bare.for_each(|part| part.set_dates(dates));
}

impl Named {
    /// The parts that the flags name.
    ///
    /// # Errors
    /// A flag cannot be read.
    pub(super) fn of(args: &QuotaSet) -> Result<Self> {
        let whole = |flag: &str, text: &Option<String>| {
            let time = text.as_deref().map(str::parse::<Rfc3339>).transpose();
            time.with_context(|| format!("--{flag}"))
        };
        let plans = args.plans.iter().map(|text| plan(text));
        let overrides = args.overrides.iter().map(|text| own_limit(text));
        let overrides = overrides.collect::<Result<Vec<_>>>()?;
        let dropped = overrides.iter().flat_map(|(own, dropped)| {
            let options = dropped.iter();
            options.map(|option| (own.descriptor.clone(), *option))
        });
        let dropped = dropped.collect();
        let removed_plans = args.remove_plans.iter().map(|text| removed(text));
        let removed_plans = removed_plans.map(|(name, from)| (name.into(), from));
        let removed_overrides = args.remove_overrides.iter().map(|text| {
            let (descriptor, from) = removed(text);
            let descriptor = descriptor_of(descriptor);
            let descriptor = descriptor.with_context(|| format!("--remove-override {text}"))?;
            Ok((descriptor, from))
        });
        Ok(Self {
            edit: QuotaEdit {
                plans: plans.collect::<Result<_>>()?,
                overrides: overrides.into_iter().map(|(own, _)| own).collect(),
                dropped,
                removed_plans: removed_plans.collect(),
                removed_overrides: removed_overrides.collect::<Result<_>>()?,
            },
            whole: (
                whole("effective-at", &args.effective_at)?,
                whole("expires-at", &args.expires_at)?,
            ),
        })
    }

    pub(super) const fn edit(&self) -> &QuotaEdit {
        &self.edit
    }

    /// Refuses a part that is to hold from now on until a time that is over.
    pub(super) fn refuse_ended(&self, now: Timestamp) -> Result<()> {
        let plans = self.edit.plans.iter().map(Dated::dates);
        let overrides = self.edit.overrides.iter().map(Dated::dates);
        let mut ends = plans.chain(overrides).filter_map(|dates| match dates {
            (None, Some(until)) => Some(until),
            _ => None,
        });
        match ends.find(|until| until.0 <= now) {
            Some(until) => bail!("{until} is in the past: it would never hold"),
            None => Ok(()),
        }
    }

    /// The parts as all that there is.
    pub(super) fn document(&self) -> QuotaDocument {
        let (plan, plans) = match self.edit.plans.as_slice() {
            // Each field is asked for: a plan with more than a name is no bare name.
            [
                TenantPlan {
                    plan,
                    effective_at: None,
                    expires_at: None,
                },
            ] => (Some(plan.to_string()), Vec::new()),
            plans => (None, plans.to_vec()),
        };
        let (effective_at, expires_at) = self.whole;
        QuotaDocument {
            plan,
            plans,
            overrides: self.edit.overrides.clone(),
            effective_at,
            expires_at,
        }
    }
}

/// The dates that `text` writes as `FROM..UNTIL`, either of which may be missing, or as `FROM`.
fn dates(text: &str) -> Result<Dates> {
    let (from, until) = text.split_once("..").unwrap_or((text, ""));
    let part = |text: &str| {
        let text = Some(text).filter(|text| !text.is_empty());
        text.map(str::parse::<Rfc3339>).transpose()
    };
    match (part(from)?, part(until)?) {
        (None, None) => Err(anyhow!("expected FROM..UNTIL, FROM.. or ..UNTIL")),
        dates => Ok(dates),
    }
}

/// The plan that `text` writes as `pro` or `pro@FROM..UNTIL`.
fn plan(text: &str) -> Result<TenantPlan> {
    let Some((name, its)) = text.rsplit_once('@') else {
        return Ok(TenantPlan::new(text));
    };
    let mut plan = TenantPlan::new(name);
    plan.set_dates(dates(its).with_context(|| format!("--plan {text}"))?);
    Ok(plan)
}

/// A name, and the start behind it if there is one. A descriptor may have an `@` of its own.
fn removed(text: &str) -> (&str, Option<Timestamp>) {
    let split = text.rsplit_once('@');
    let dated = split.and_then(|(name, from)| {
        Some((name, from.trim_end_matches("..").parse::<Rfc3339>().ok()?.0))
    });
    dated.map_or((text, None), |(name, from)| (name, Some(from)))
}

/// The descriptor of an override. One that is left empty, as by a variable of a script, is not the whole tenant.
fn descriptor_of(text: &str) -> Result<OverrideDescriptor> {
    if text.is_empty() {
        bail!("there is no descriptor; `default` is the tenant as a whole");
    }
    Ok(text.parse()?)
}

/// The override that `text` writes as `endpoint:POST /orders=500/minute@FROM..UNTIL`, and the options that it takes away.
fn own_limit(text: &str) -> Result<(TenantOverride, Vec<OverrideOption>)> {
    let wrong = || {
        anyhow!(
            "--override {text}: write DESCRIPTOR=HITS/WINDOW[,OPTION…][@FROM..UNTIL], as in \
             'endpoint:POST /orders=500/minute', default=20/10s@2027-01-31T00:00:00Z.. or \
             default=100000/day,post_paid"
        )
    };
    let Some((descriptor, hits, limit)) = quota_of(text) else {
        return Err(bad_hits(text).unwrap_or_else(wrong));
    };
    let (limit, (effective_at, expires_at)) = match limit.split_once('@') {
        Some((limit, its)) => (
            limit,
            dates(its).with_context(|| format!("--override {text}"))?,
        ),
        None => (limit, (None, None)),
    };
    let mut parts = limit.split(',');
    let window = parts.next().unwrap_or_default();
    let is_unit = Unit::from_name(window).is_some();
    let mut own = TenantOverride {
        descriptor: descriptor_of(descriptor).with_context(wrong)?,
        requests_per_unit: hits,
        unit: is_unit.then(|| window.into()),
        window: (!is_unit).then(|| window.into()),
        effective_at,
        expires_at,
        ..TenantOverride::default()
    };
    let mut dropped = Vec::new();
    for part in parts {
        let its = match part.split_once('=') {
            Some((name, NONE)) => option_of(name).map(|option| dropped.push(option)),
            _ => add_option(&mut own, part),
        };
        its.with_context(|| format!("--override {text}"))?;
    }
    Ok((own, dropped))
}

/// Takes an option away that the override before has.
const NONE: &str = "none";

/// The complaint about hits that are no number of them, if there is something like a number.
fn bad_hits(text: &str) -> Option<anyhow::Error> {
    let (_, rest) = text
        .rsplit_once('=')
        .filter(|(_, rest)| rest.contains('/'))?;
    let (hits, _) = rest.split_once('/')?;
    let is_like_one = |byte: u8| byte.is_ascii_digit() || b"-+.".contains(&byte);
    (!hits.is_empty() && hits.bytes().all(is_like_one)).then(|| {
        anyhow!(
            "--override {text}: `{hits}` is not a number of hits; write a whole number from 0 to {}",
            u64::MAX
        )
    })
}

/// The descriptor, the hits and all that follows their slash. A descriptor may have an `=` of its own, and options
/// behind the window have one.
fn quota_of(text: &str) -> Option<(&str, u64, &str)> {
    text.rmatch_indices('=').find_map(|(at, _)| {
        let (hits, rest) = text[at + 1..].split_once('/')?;
        Some((&text[..at], hits.parse().ok()?, rest))
    })
}

/// Sets what an option behind the window says: `post_paid`, `max_debt=500`.
fn add_option(own: &mut TenantOverride, text: &str) -> Result<()> {
    let (name, value) = text.split_once('=').unwrap_or((text, "true"));
    let number = || {
        let hits = value.parse().ok();
        hits.with_context(|| format!("{name}: write a number of hits, as in {name}=500"))
    };
    match name {
        "burst" => own.burst = Some(number()?),
        "max_debt" => own.max_debt = Some(number()?),
        "algorithm" => own.algorithm = Some(value.into()),
        "post_paid" => {
            let is_so = value.parse().ok();
            own.post_paid = Some(is_so.context("post_paid: write true or false")?);
        }
        _ => return option_of(name).map(drop),
    }
    Ok(())
}

fn option_of(name: &str) -> Result<OverrideOption> {
    Ok(match name {
        "burst" => OverrideOption::Burst,
        "max_debt" => OverrideOption::MaxDebt,
        "algorithm" => OverrideOption::Algorithm,
        "post_paid" => OverrideOption::PostPaid,
        _ => bail!("'{name}' is no option: write burst, algorithm, post_paid or max_debt"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(own: &TenantOverride) -> Vec<&str> {
        own.descriptor.iter().map(|entry| &**entry).collect()
    }

    #[test]
    fn an_override_is_a_descriptor_a_limit_and_its_dates() -> Result<()> {
        let (own, _) = own_limit("endpoint:GET /a?b=c=500/minute")?;
        assert_eq!(own.dates(), (None, None));
        assert_eq!(entries(&own), ["endpoint:GET /a?b=c"]);
        assert_eq!(
            (own.requests_per_unit, own.unit.as_deref()),
            (500, Some("minute"))
        );
        let (own, _) = own_limit("default=20/10s@2027-01-31T00:00:00Z..2027-02-01T00:00:00Z")?;
        assert!(own.descriptor.is_empty());
        assert_eq!((&own.unit, own.window.as_deref()), (&None, Some("10s")));
        let from = Rfc3339(Timestamp::from_secs(1_801_353_600));
        let until = Rfc3339(Timestamp::from_secs(1_801_440_000));
        assert_eq!(own.dates(), (Some(from), Some(until)));
        let (own, _) = own_limit("[\"a:1\",\"b:2\"]=1/s@..2027-02-01T00:00:00Z")?;
        assert_eq!(entries(&own), ["a:1", "b:2"]);
        assert_eq!(own.dates(), (None, Some(until)));
        let (own, _) = own_limit("user:a@b.c=1/s@2027-01-31T00:00:00Z")?;
        assert_eq!(entries(&own), ["user:a@b.c"]);
        assert_eq!(own.dates(), (Some(from), None));
        let (own, _) = own_limit(
            "model:a=b=7/day,post_paid,max_debt=50,burst=9,algorithm=gcra@..2027-02-01T00:00:00Z",
        )?;
        assert_eq!(entries(&own), ["model:a=b"]);
        assert_eq!(own.dates(), (None, Some(until)));
        assert_eq!(
            (own.requests_per_unit, own.unit.as_deref()),
            (7, Some("day"))
        );
        assert_eq!(
            (own.post_paid, own.max_debt, own.burst),
            (Some(true), Some(50), Some(9))
        );
        assert_eq!(own.algorithm.as_deref(), Some("gcra"));
        let (own, _) = own_limit("default=7/10s,post_paid=false")?;
        assert_eq!(
            (own.window.as_deref(), own.post_paid),
            (Some("10s"), Some(false))
        );
        for wrong in [
            "",
            "a:b=5/s,",
            "a:b=5/s,post_paid=maybe",
            "a:b=5/s,max_debt",
            "a:b=5/s,max_debt=-1",
            "a:b=5/s,steps=1",
            "a:b",
            "a:b=",
            "a:b=5",
            "a:b=x/minute",
            "a:b=-1/minute",
            "[1]=5/s",
            "a:b=5/s@",
            "a:b=5/s@..",
            "a:b=5/s@tomorrow",
        ] {
            assert!(own_limit(wrong).is_err(), "{wrong}");
        }
        Ok(())
    }

    #[test]
    fn options_are_taken_away() -> Result<()> {
        let (own, dropped) = own_limit("default=7/day,burst=none,algorithm=none,post_paid")?;
        assert_eq!((own.burst, &own.algorithm), (None, &None));
        assert_eq!(own.post_paid, Some(true));
        assert_eq!(dropped, [OverrideOption::Burst, OverrideOption::Algorithm]);
        assert!(own_limit("default=7/day,window=none").is_err());
        Ok(())
    }

    #[test]
    fn a_limit_of_the_whole_tenant_is_named() {
        let said = |text: &str| format!("{:#}", own_limit(text).expect_err("it is refused"));
        let empty = said("=5/minute");
        assert!(empty.contains("there is no descriptor"), "{empty}");
        for hits in ["-1", "18446744073709551616", "1.5"] {
            let message = said(&format!("default={hits}/minute"));
            assert!(
                message.contains(&format!("`{hits}` is not a number of hits")),
                "{message}"
            );
        }
    }

    #[test]
    fn plans_and_what_is_removed_may_have_dates() -> Result<()> {
        let from = Timestamp::from_secs(1_801_353_600);
        let dated = plan("pro@2027-01-31T00:00:00Z..")?;
        assert_eq!(dated.dates(), (Some(Rfc3339(from)), None));
        assert_eq!(&*dated.plan, "pro");
        assert_eq!(plan("pro")?, TenantPlan::new("pro"));
        assert!(plan("pro@soon").is_err());
        assert_eq!(removed("pro@2027-01-31T00:00:00Z"), ("pro", Some(from)));
        assert_eq!(removed("user:a@b.c"), ("user:a@b.c", None));
        Ok(())
    }
}
