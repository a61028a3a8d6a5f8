//! The plans and overrides that the flags of `quota set` name.

use crate::cli::QuotaSet;
use anyhow::{Context, Result, anyhow, bail};
use ratekeeper_core::Timestamp;
use ratekeeper_quota::{
    DescriptorText, NamedDates, OverrideDocument, PlanDocument, QuotaDocument, QuotaEdit, Rfc3339,
};
use ratekeeper_rules::{CUSTOM, TenantOverride, Unit};

/// The parts that the flags name.
pub(super) struct Named {
    edit: QuotaEdit,
    /// The dates of all parts that have none of their own.
    whole: NamedDates,
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
    for (_, plan) in &named.edit.plans {
        if **plan == *CUSTOM {
            bail!("--plan {CUSTOM}: to leave a plan, write --remove-plan NAME; overrides stay");
        }
    }
    let whole = named.whole;
    let plans = named.edit.plans.iter_mut().map(|(dates, _)| dates);
    let overrides = named.edit.overrides.iter_mut().map(|(dates, _)| dates);
    for dates in plans
        .chain(overrides)
        .filter(|dates| **dates == NamedDates::default())
    {
        *dates = whole;
    }
    Ok(Box::new(named))
}

impl Named {
    /// The parts that the flags name.
    ///
    /// # Errors
    /// A flag cannot be read.
    pub(super) fn of(args: &QuotaSet) -> Result<Self> {
        let whole = |flag: &str, text: &Option<String>| {
            let time = text.as_deref().map(time).transpose();
            time.with_context(|| format!("--{flag}"))
        };
        let plans = args.plans.iter().map(|text| plan(text));
        let overrides = args.overrides.iter().map(|text| own_limit(text));
        let removed_plans = args.remove_plans.iter().map(|text| removed(text));
        let removed_plans = removed_plans.map(|(name, from)| (name.into(), from));
        let removed_overrides = args.remove_overrides.iter().map(|text| {
            let (descriptor, from) = removed(text);
            let descriptor: DescriptorText = descriptor
                .parse()
                .with_context(|| format!("--remove-override {text}"))?;
            let entries = descriptor.0.into_iter().map(String::into_boxed_str);
            Ok((entries.collect(), from))
        });
        Ok(Self {
            edit: QuotaEdit {
                plans: plans.collect::<Result<_>>()?,
                overrides: overrides.collect::<Result<_>>()?,
                removed_plans: removed_plans.collect(),
                removed_overrides: removed_overrides.collect::<Result<_>>()?,
            },
            whole: NamedDates {
                from: whole("effective-at", &args.effective_at)?,
                until: whole("expires-at", &args.expires_at)?,
            },
        })
    }

    pub(super) const fn edit(&self) -> &QuotaEdit {
        &self.edit
    }

    /// Refuses a part that is to hold from now on until a time that is over.
    pub(super) fn refuse_ended(&self, now: Timestamp) -> Result<()> {
        let plans = self.edit.plans.iter().map(|(dates, _)| dates);
        let overrides = self.edit.overrides.iter().map(|(dates, _)| dates);
        let ends = plans.chain(overrides).filter(|dates| dates.from.is_none());
        let mut ends = ends.filter_map(|dates| dates.until);
        match ends.find(|until| *until <= now) {
            Some(until) => bail!("{} is in the past: it would never hold", Rfc3339(until)),
            None => Ok(()),
        }
    }

    /// The parts as all that there is.
    pub(super) fn document(&self) -> QuotaDocument {
        let is_bare = |dates: &NamedDates| *dates == NamedDates::default();
        let (plan, plans) = match self.edit.plans.as_slice() {
            [(dates, plan)] if is_bare(dates) => (Some(plan.to_string()), Vec::new()),
            plans => (None, plans.iter().map(dated).collect()),
        };
        let overrides = self.edit.overrides.iter().map(|(dates, own)| {
            let (effective_at, expires_at) = shown(*dates);
            OverrideDocument {
                effective_at,
                expires_at,
                ..OverrideDocument::from(own)
            }
        });
        let (effective_at, expires_at) = shown(self.whole);
        QuotaDocument {
            plan,
            plans,
            overrides: overrides.collect(),
            effective_at,
            expires_at,
        }
    }
}

fn dated((dates, plan): &(NamedDates, Box<str>)) -> PlanDocument {
    let (effective_at, expires_at) = shown(*dates);
    PlanDocument {
        plan: plan.to_string(),
        effective_at,
        expires_at,
    }
}

fn shown(dates: NamedDates) -> (Option<Rfc3339>, Option<Rfc3339>) {
    (dates.from.map(Rfc3339), dates.until.map(Rfc3339))
}

fn time(text: &str) -> Result<Timestamp> {
    Ok(text.parse::<Rfc3339>()?.0)
}

/// The dates that `text` writes as `FROM..UNTIL`, either of which may be missing, or as `FROM`.
fn dates(text: &str) -> Result<NamedDates> {
    let (from, until) = text.split_once("..").unwrap_or((text, ""));
    let part = |text: &str| {
        Some(text)
            .filter(|text| !text.is_empty())
            .map(time)
            .transpose()
    };
    let dates = NamedDates {
        from: part(from)?,
        until: part(until)?,
    };
    match dates == NamedDates::default() {
        true => Err(anyhow!("expected FROM..UNTIL, FROM.. or ..UNTIL")),
        false => Ok(dates),
    }
}

/// The plan that `text` writes as `pro` or `pro@FROM..UNTIL`.
fn plan(text: &str) -> Result<(NamedDates, Box<str>)> {
    match text.rsplit_once('@') {
        None => Ok((NamedDates::default(), text.into())),
        Some((name, its)) => {
            let its = dates(its).with_context(|| format!("--plan {text}"))?;
            Ok((its, name.into()))
        }
    }
}

/// A name, and the start behind it if there is one. A descriptor may have an `@` of its own.
fn removed(text: &str) -> (&str, Option<Timestamp>) {
    let split = text.rsplit_once('@');
    let dated =
        split.and_then(|(name, from)| Some((name, time(from.trim_end_matches("..")).ok()?)));
    dated.map_or((text, None), |(name, from)| (name, Some(from)))
}

/// The override that `text` writes as `endpoint:POST /orders=500/minute@FROM..UNTIL`.
fn own_limit(text: &str) -> Result<(NamedDates, TenantOverride)> {
    let wrong = || {
        anyhow!(
            "--override {text}: write DESCRIPTOR=HITS/WINDOW[,OPTION…][@FROM..UNTIL], as in \
             'endpoint:POST /orders=500/minute', default=20/10s@2027-01-31T00:00:00Z.. or \
             default=100000/day,post_paid"
        )
    };
    let (descriptor, hits, limit) = quota_of(text).ok_or_else(wrong)?;
    let (limit, its) = match limit.split_once('@') {
        Some((limit, its)) => (
            limit,
            dates(its).with_context(|| format!("--override {text}"))?,
        ),
        None => (limit, NamedDates::default()),
    };
    let mut parts = limit.split(',');
    let window = parts.next().unwrap_or_default();
    let is_unit = Unit::from_name(window).is_some();
    let descriptor: DescriptorText = descriptor.parse().with_context(wrong)?;
    let mut own = TenantOverride {
        descriptor: descriptor
            .0
            .into_iter()
            .map(String::into_boxed_str)
            .collect(),
        requests_per_unit: hits,
        unit: is_unit.then(|| window.into()),
        window: (!is_unit).then(|| window.into()),
        ..TenantOverride::default()
    };
    for part in parts {
        add_option(&mut own, part).with_context(|| format!("--override {text}"))?;
    }
    Ok((its, own))
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
        _ => bail!("'{name}' is no option: write burst, algorithm, post_paid or max_debt"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(own: &TenantOverride) -> Vec<&str> {
        own.descriptor.iter().map(|entry| &**entry).collect()
    }

    #[test]
    fn an_override_is_a_descriptor_a_limit_and_its_dates() -> Result<()> {
        let (its, own) = own_limit("endpoint:GET /a?b=c=500/minute")?;
        assert_eq!(its, NamedDates::default());
        assert_eq!(entries(&own), ["endpoint:GET /a?b=c"]);
        assert_eq!(
            (own.requests_per_unit, own.unit.as_deref()),
            (500, Some("minute"))
        );
        let (its, own) = own_limit("default=20/10s@2027-01-31T00:00:00Z..2027-02-01T00:00:00Z")?;
        assert!(own.descriptor.is_empty());
        assert_eq!((own.unit, own.window.as_deref()), (None, Some("10s")));
        let from = Timestamp::from_secs(1_801_353_600);
        let until = Timestamp::from_secs(1_801_440_000);
        assert_eq!((its.from, its.until), (Some(from), Some(until)));
        let (its, own) = own_limit("[\"a:1\",\"b:2\"]=1/s@..2027-02-01T00:00:00Z")?;
        assert_eq!(entries(&own), ["a:1", "b:2"]);
        assert_eq!((its.from, its.until), (None, Some(until)));
        let (its, own) = own_limit("user:a@b.c=1/s@2027-01-31T00:00:00Z")?;
        assert_eq!(entries(&own), ["user:a@b.c"]);
        assert_eq!((its.from, its.until), (Some(from), None));
        let (its, own) = own_limit(
            "model:a=b=7/day,post_paid,max_debt=50,burst=9,algorithm=gcra@..2027-02-01T00:00:00Z",
        )?;
        assert_eq!(entries(&own), ["model:a=b"]);
        assert_eq!((its.from, its.until), (None, Some(until)));
        assert_eq!(
            (own.requests_per_unit, own.unit.as_deref()),
            (7, Some("day"))
        );
        assert_eq!(
            (own.post_paid, own.max_debt, own.burst),
            (Some(true), Some(50), Some(9))
        );
        assert_eq!(own.algorithm.as_deref(), Some("gcra"));
        let (_, own) = own_limit("default=7/10s,post_paid=false")?;
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
    fn plans_and_what_is_removed_may_have_dates() -> Result<()> {
        let from = Timestamp::from_secs(1_801_353_600);
        let (its, name) = plan("pro@2027-01-31T00:00:00Z..")?;
        assert_eq!((its.from, its.until, &*name), (Some(from), None, "pro"));
        assert_eq!(plan("pro")?, (NamedDates::default(), "pro".into()));
        assert!(plan("pro@soon").is_err());
        assert_eq!(removed("pro@2027-01-31T00:00:00Z"), ("pro", Some(from)));
        assert_eq!(removed("user:a@b.c"), ("user:a@b.c", None));
        Ok(())
    }
}
