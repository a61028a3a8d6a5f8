//! `regions`: how regions share the limit of a rule.

use std::fmt;
use std::sync::Arc;

use ratekeeper_core::region::counted::{Counted, Silent};
use ratekeeper_core::region::loans::LoanKind;
use ratekeeper_core::{Limit, Micros, Regions, Unshareable, Whole};

use crate::named::named;
use crate::{Consistency, Rule, RuleLimit};

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
    /// Each region admits while its own hits, and what the others have last said, sum to less than the limit.
    Counted,
    /// Each region enforces the whole limit, also where the domain or the default plan's limit says something else.
    #[cfg_attr(feature = "yaml", serde(rename = "none"))]
    Unshared,
}

named!(RegionMode: Regional "regional", Bounded "bounded", Counted "counted", Unshared "none");

/// The assumption about a region that is silent, of a limit that regions count together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(
    feature = "yaml",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "snake_case")
)]
pub enum OnSilence {
    /// It uses nothing more: each region may admit the whole limit.
    Alone,
    /// It uses its share by weight: what all regions admit stays near the limit.
    #[default]
    Share,
}

named!(OnSilence: Alone "alone", Share "share");

/// The time between two posts of a counter that regions count together, unless a rule says otherwise.
pub(crate) const POST_INTERVAL: Micros = Micros::from_secs(1);

/// The shortest interval.
const POST_INTERVAL_MIN: Micros = Micros::from_millis(100);

/// The longest interval.
const POST_INTERVAL_MAX: Micros = Micros::from_secs(60);

/// The shortest interval where silence means anything: an idle link is tried every two seconds.
const POST_INTERVAL_HEARD: Micros = Micros::from_secs(1);

/// The time in which a post that is due gets to another region: a look at its counter, what is gathered with it, and its way.
const POSTED_WITHIN: Micros = Micros::from_millis(200);

/// The hits of a limit for each region, below which lending is of no use.
const LENT_EACH: u64 = 8;

/// The part of a limit that the region of this node enforces.
#[derive(Clone, PartialEq, Debug)]
pub struct RegionShare {
    /// All regions that share the limit.
    pub regions: Arc<Regions>,
    /// The limit that this region enforces; of what is lent, the part that it owns; all of it if it is counted together.
    pub limit: Limit,
    /// True if regions lend each other parts of the limit.
    pub is_lent: bool,
    /// The way in which regions count it together, if they do.
    pub counted: Option<Counted>,
}

/// The keys of a limit about regions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RegionKeys {
    pub(crate) mode: Option<RegionMode>,
    pub(crate) counted: Counted,
}

impl RegionKeys {
    /// Those of `rule`.
    pub(crate) fn of(rule: &Rule) -> Self {
        Self {
            mode: rule.regions,
            counted: Counted {
                interval: rule.post_interval.unwrap_or(POST_INTERVAL),
                silent: match rule.on_silence.unwrap_or_default() {
                    OnSilence::Alone => Silent::Alone,
                    OnSilence::Share => Silent::Share,
                },
            },
        }
    }
}

impl fmt::Display for RegionShare {
    /// `region eu enforces 301 (weights version 3: ap 1, eu 2, us 1)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (own, version) = (&self.regions.own().name, self.regions.version());
        if let Some(counted) = &self.counted {
            return self.counted_in_words(counted, f);
        }
        let does = if self.is_lent { "owns" } else { "enforces" };
        write!(f, "region {own} {does} {}", self.limit.quota())?;
        if self.limit.capacity() != self.limit.quota() && self.limit.algorithm().has_burst() {
            write!(f, " with bursts of {}", self.limit.capacity())?;
        }
        write!(f, " (weights version {version}: ")?;
        self.weights(f)
    }
}

impl RegionShare {
    /// `region eu counts with ap and us: about 600, and what others admit in 1.2 s; of one that is silent, its share (weights
    /// version 3: ap 1, eu 2, us 1)`
    fn counted_in_words(&self, counted: &Counted, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = self.regions.own_place();
        let others = self.regions.all().iter().enumerate();
        let others = others.filter(|(place, region)| *place != own && !region.is_retired);
        let others: Vec<&str> = others.map(|(_, region)| &*region.name).collect();
        let (name, quota) = (&self.regions.own().name, self.limit.quota());
        let tenths = counted.interval.get().saturating_add(POSTED_WITHIN.get()) / 100_000;
        write!(
            f,
            "region {name} counts with {}: about {quota}, and what others admit in {}.{} s; one that is silent ",
            others.join(" and "),
            tenths / 10,
            tenths % 10
        )?;
        match counted.silent {
            Silent::Alone => f.write_str("counts as it last said"),
            Silent::Share => {
                write!(
                    f,
                    "counts with its share (weights version {}: ",
                    self.regions.version()
                )?;
                self.weights(f)
            }
        }
    }

    /// `ap 1, eu 2, us 1)`
    fn weights(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

/// The share of `limit` in the region of this node, where `rule` has it; None for a limit that regions do not share, and
/// where the region is not known.
///
/// # Errors
/// A message and its help.
pub(crate) fn share(
    limit: &RuleLimit,
    rule: &Rule,
    region: &NodeRegion,
) -> Result<Option<RegionShare>, (String, &'static str)> {
    let keys = RegionKeys::of(rule);
    let (RuleLimit::Limited(limit), Some(mode)) = (limit, keys.mode) else {
        return Ok(None);
    };
    match mode {
        RegionMode::Regional => {}
        RegionMode::Bounded => {
            check_counting(limit, rule, mode)?;
            check_lent(limit)?;
        }
        RegionMode::Counted => {
            check_counting(limit, rule, mode)?;
            check_counted(limit, keys.counted)?;
        }
        RegionMode::Unshared => return Ok(None),
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
        RegionMode::Counted | RegionMode::Unshared => Ok(*limit),
    };
    match shared {
        Ok(limit) => Ok(Some(RegionShare {
            regions: Arc::clone(regions),
            limit,
            is_lent: mode == RegionMode::Bounded,
            counted: (mode == RegionMode::Counted).then_some(keys.counted),
        })),
        Err(why) => {
            let help = match why {
                Unshareable::TooSmall { .. } => {
                    "raise the limit, or write `regions: none` and keep the counter in one region's store"
                }
                Unshareable::Limit(_) => "raise the limit, or write `regions: none`",
            };
            let message = format!("`regions: {}` is not possible here: {why}", mode.name());
            Err((message, help))
        }
    }
}

/// Refuses to lend parts of, or to count together, what is not decided by the region's store, or from what nodes hold of it
/// for its window.
fn check_counting(
    limit: &Limit,
    rule: &Rule,
    mode: RegionMode,
) -> Result<(), (String, &'static str)> {
    let is_counted = mode == RegionMode::Counted;
    let (why, help) = match rule.consistency {
        _ if rule.count_denied && is_counted => (
            "with `count_denied`, as denied requests in one region would use up the limit of all others",
            "write `count_denied: false`",
        ),
        _ if rule.count_denied => (
            "with `count_denied`, as what others lent could be used up by denied requests",
            "write `count_denied: false`",
        ),
        None | Some(Consistency::Exact) => return Ok(()),
        Some(Consistency::Leased)
            if is_counted || LoanKind::of(limit) != Some(LoanKind::Bucket) =>
        {
            return Ok(());
        }
        Some(Consistency::Leased) => (
            "with `consistency: leased` here: a bucket that becomes smaller could not charge what nodes hold of it",
            "write `consistency: exact`, or `algorithm: sliding_window`",
        ),
        Some(Consistency::Synced | Consistency::Local) => (
            "with this consistency: the region's store decides each request",
            "write `consistency: exact`",
        ),
    };
    let message = format!("`regions: {}` is not possible {why}", mode.name());
    Err((message, help))
}

/// Refuses limits and bursts of so few hits that lending is of no use.
fn check_each(limit: &Limit, regions: &Regions) -> Result<(), (String, &'static str)> {
    let least = LENT_EACH * regions.all().len() as u64;
    let whole = Whole::of(limit);
    let (what, help) = if whole.quota < least {
        (
            "limit",
            "raise the limit, or write `regions: none` and keep the counter in one region's store",
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

/// Refuses limits that regions cannot count together, and intervals that are out of range.
fn check_counted(limit: &Limit, counted: Counted) -> Result<(), (String, &'static str)> {
    let why = if limit.is_calendar() {
        "windows of a calendar are not counted together, others are".to_owned()
    } else if limit.is_post_paid() {
        "hits that are paid afterwards are charged in full, whatever others have used".to_owned()
    } else if !limit.algorithm().has_fixed_windows() {
        format!(
            "a {} is not counted together, a fixed_window is: its hits belong to a window by name",
            limit.algorithm().name()
        )
    } else {
        return check_interval(limit, counted);
    };
    let message = format!("`regions: counted` is not possible here: {why}");
    let help = "use `algorithm: fixed_window`, write `regions: regional`, which gives each region a fixed share by its weight, or \
                `regions: none`, with which each enforces the whole limit";
    Err((message, help))
}

fn check_interval(limit: &Limit, counted: Counted) -> Result<(), (String, &'static str)> {
    let interval = counted.interval;
    if interval < POST_INTERVAL_MIN || interval > POST_INTERVAL_MAX {
        let message = "`post_interval` has to be from 100ms to 60s".to_owned();
        return Err((message, "write `post_interval: 1s`"));
    }
    if counted.silent == Silent::Share && interval < POST_INTERVAL_HEARD {
        let message = "`post_interval` has to be at least 1s with `on_silence: share`: an idle link says something every two \
                       seconds"
            .to_owned();
        let help = "write `post_interval: 1s`, or `on_silence: alone`, with which each region may admit the whole limit while it \
                    reaches no other";
        return Err((message, help));
    }
    if interval.get().saturating_mul(2) > limit.window().get() {
        let message = format!(
            "a `post_interval` of {} ms is more than half of the window: most hits would be told when it is over",
            interval.as_millis_ceil()
        );
        let help = "write a longer window, `regions: regional`, or `on_silence: alone` with a shorter `post_interval`";
        return Err((message, help));
    }
    Ok(())
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
        "write `regions: regional`, which gives each region a fixed share by its weight, or `regions: none`, with which each \
         enforces the whole limit",
    ))
}
