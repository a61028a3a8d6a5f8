//! `regions`: how regions share the limit of a rule.

use std::fmt;
use std::sync::Arc;

use ratekeeper_core::region::loans::LoanKind;
use ratekeeper_core::{Limit, Regions, Unshareable, Whole};

use crate::named::named;
use crate::{Rule, RuleLimit};

/// The region of the node that reads rules.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum NodeRegion {
    /// None: rules with `regions` are refused, as this node would enforce the whole limit.
    #[default]
    Nowhere,
    /// Not known here: rules are checked without it, and keep their whole limits.
    Unknown,
    /// One of these.
    In(Arc<Regions>),
}

/// The way in which regions share a limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(
    feature = "yaml",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "snake_case")
)]
pub enum RegionMode {
    /// Each region enforces a share by its weight.
    Regional,
    /// The same, and regions lend each other what they do not use of their shares.
    Bounded,
}

named!(RegionMode: Regional "regional", Bounded "bounded");

/// The hits of a limit for each region, below which lending is of no use.
const LENT_EACH: u64 = 8;

/// The part of a limit that the region of this node enforces.
#[derive(Clone, PartialEq, Debug)]
pub struct RegionShare {
    /// All regions that share the limit.
    pub regions: Arc<Regions>,
    /// The limit that this region enforces; of what is lent, the part that it owns.
    pub limit: Limit,
    /// True if regions lend each other parts of the limit.
    pub is_lent: bool,
}

impl fmt::Display for RegionShare {
    /// `region eu enforces 301 (weights version 3: ap 1, eu 2, us 1)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (own, version) = (&self.regions.own().name, self.regions.version());
        let does = if self.is_lent { "owns" } else { "enforces" };
        write!(f, "region {own} {does} {}", self.limit.quota())?;
        if self.limit.capacity() != self.limit.quota() && self.limit.algorithm().has_burst() {
            write!(f, " with bursts of {}", self.limit.capacity())?;
        }
        write!(f, " (weights version {version}: ")?;
        for (at, region) in self.regions.all().iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{} {}", region.name, region.weight)?;
            if region.is_retired {
                f.write_str(" retired")?;
            }
        }
        write!(f, ")")
    }
}

impl Rule {
    /// The limit that this node enforces, unless it is unlimited: that of the file, or this region's share of it.
    #[must_use]
    pub fn enforced(&self) -> Option<&Limit> {
        let share = self.share.as_ref().map(|share| &share.limit);
        share.or_else(|| self.limited())
    }
}

/// The share of `limit` in the region of this node; None for a limit that regions do not share, and where the region is
/// not known.
///
/// # Errors
/// A message and its help.
pub(crate) fn share(
    limit: &RuleLimit,
    mode: Option<RegionMode>,
    region: &NodeRegion,
) -> Result<Option<RegionShare>, (String, &'static str)> {
    let (RuleLimit::Limited(limit), Some(mode)) = (limit, mode) else {
        return Ok(None);
    };
    if mode == RegionMode::Bounded {
        check_lent(limit)?;
    }
    let regions = match region {
        NodeRegion::In(regions) => regions,
        NodeRegion::Unknown => return Ok(None),
        NodeRegion::Nowhere => {
            let message = format!(
                "`regions: {}` needs to know this node's region, which the settings do not name",
                mode.name()
            );
            let help = "write `region: eu` and `regions: { version: 1, eu: { weight: 1 }, us: { weight: 1 } }` in \
                        ratekeeper.yaml, or leave `regions` out of the rule";
            return Err((message, help));
        }
    };
    let shared = match mode {
        RegionMode::Regional => limit.shared(regions),
        RegionMode::Bounded => {
            check_each(limit, regions)?;
            let whole = Whole::of(limit);
            let owns = regions.share(whole.quota);
            // The check of a share by weight, and then the part that moves.
            limit.shared(regions).map(|_| limit.holding(owns, whole))
        }
    };
    match shared {
        Ok(limit) => Ok(Some(RegionShare {
            regions: Arc::clone(regions),
            limit,
            is_lent: mode == RegionMode::Bounded,
        })),
        Err(why) => {
            let help = match why {
                Unshareable::TooSmall { .. } => {
                    "raise the limit, or leave `regions` out and keep the counter in one region's store"
                }
                Unshareable::Limit(_) => "raise the limit, or leave `regions` out",
            };
            let message = format!("`regions: {}` is not possible here: {why}", mode.name());
            Err((message, help))
        }
    }
}

/// Refuses limits and bursts of so few hits that lending is of no use.
fn check_each(limit: &Limit, regions: &Regions) -> Result<(), (String, &'static str)> {
    let least = LENT_EACH * regions.all().len() as u64;
    let whole = Whole::of(limit);
    let (what, help) = if whole.quota < least {
        (
            "limit",
            "raise the limit, or leave `regions` out and keep the counter in one region's store",
        )
    } else if whole.burst < least {
        ("burst", "raise the burst, or write `regions: regional`")
    } else {
        return Ok(());
    };
    let message = format!(
        "`regions: bounded` needs a {what} of at least {least} here, {LENT_EACH} for each region"
    );
    Err((message, help))
}

/// Refuses limits of which regions cannot lend each other parts.
fn check_lent(limit: &Limit) -> Result<(), (String, &'static str)> {
    let why = if limit.is_calendar() {
        "windows of a calendar cannot be lent, others can".to_owned()
    } else if limit.is_post_paid() {
        "hits that are paid afterwards are charged in full, whatever a region holds".to_owned()
    } else if limit.sub_windows() > 0 {
        "sub_windows cannot be lent, a sliding_window without them can".to_owned()
    } else if limit.is_strict() {
        "the groups of a strict sliding_window change with a share that moves".to_owned()
    } else if LoanKind::of(limit).is_none() {
        format!(
            "a {} cannot be lent; fixed_window, sliding_window, token_bucket and gcra can",
            limit.algorithm().name()
        )
    } else if !limit.has_exact_parts() {
        "parts of so large a bucket, or one that fills so slowly, cannot be computed exactly"
            .to_owned()
    } else {
        return Ok(());
    };
    let message = format!("`regions: bounded` is not possible here: {why}");
    Err((
        message,
        "write `regions: regional`, which gives each region a fixed share by its weight",
    ))
}
