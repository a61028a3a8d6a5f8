//! The short check: an identifier, and a limit of the request's own or one of the rules.

use std::borrow::Cow;

use ratekeeper_core::duration::parse_duration;
use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Timestamp};
use ratekeeper_limiter::{
    BroughtLimit, Check, ENTRY_BYTES_MAX, LimitStatus, MAX_HITS, OwnLimit, Ruling,
};
use ratekeeper_rules::{Domain, Entry, FailureMode, Matched, Node, RuleSet};
use ratekeeper_store::Answer::Decided;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::check::{CHECKS_MAX, judge};
use super::request::entry_text;
use super::round::Round;
use super::{Api, Object, Reason, Refusal, Sender, require_rules};
use crate::access::callers::Power;

/// The key under which identifiers are counted that come with a limit of their own.
const IDENTIFIER: &str = "identifier";

/// The domain of limits that name none.
pub(crate) const DOMAIN: &str = "default";

/// The longest window: 366 days.
const WINDOW_MAX: Micros = Micros::from_secs(366 * 86_400);

/// An identifier, and what limits it: `limit` and `duration`, or the `rule` of that id.
#[derive(Deserialize, ToSchema, Debug)]
#[schema(as = ShortCheck)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitRequest<'a> {
    /// The one who is limited: a user, a key, an address.
    #[serde(borrow, deserialize_with = "entry_text")]
    #[schema(min_length = 1)]
    pub(crate) identifier: Cow<'a, str>,
    /// Hits that pass in `duration`, for callers with the permission `override`.
    #[schema(minimum = 1)]
    pub(crate) limit: Option<u64>,
    /// The window: milliseconds, or a text such as `10s` or `1h30m`.
    #[serde(borrow)]
    pub(crate) duration: Option<WindowText<'a>>,
    /// `sliding_window` if absent, and `token_bucket` with a `burst`.
    #[serde(borrow, default)]
    pub(crate) algorithm: Cow<'a, str>,
    /// Hits that pass at once after idle time.
    pub(crate) burst: Option<u64>,
    /// The id of a rule, all of whose entries but one have values: that one is the identifier. If it has a pattern, the identifier must match that.
    #[serde(borrow, default)]
    pub(crate) rule: Cow<'a, str>,
    /// Apart from that of others, the namespace of limits that come with the request; `default` if absent.
    #[serde(borrow, default)]
    pub(crate) domain: Cow<'a, str>,
    /// The cost in hits, 1 if absent; 0 takes nothing.
    pub(crate) cost: Option<u64>,
}

/// A window as requests write it.
#[derive(Deserialize, ToSchema, Debug)]
#[schema(as = Duration)]
#[serde(untagged)]
pub(crate) enum WindowText<'a> {
    Millis(u64),
    #[serde(borrow)]
    Text(Cow<'a, str>),
}

/// Independent short checks.
#[derive(Deserialize, ToSchema, Debug)]
#[schema(as = ShortChecks)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitsRequest<'a> {
    /// 1 to 1,000.
    #[serde(borrow)]
    #[schema(value_type = Vec<LimitRequest<'a>>, min_items = 1, max_items = 1000)]
    pub(crate) limits: Vec<Object<LimitRequest<'a>>>,
}

/// The answer to a short check.
#[derive(Serialize, ToSchema, Clone, Debug)]
#[schema(as = ShortDecision)]
pub(crate) struct LimitAnswer {
    /// True if the request may pass.
    pub(crate) success: bool,
    /// Hits of a window, or a larger burst; 0, as all numbers, where no limit answered: the rule is switched off, in shadow or
    /// unlimited, or the request could not be read. `success` counts.
    pub(crate) limit: u64,
    /// Hits left.
    pub(crate) remaining: u64,
    /// The time at which there is more than `remaining`: milliseconds since 1970.
    pub(crate) reset: u64,
    /// Milliseconds until then.
    pub(crate) reset_after_ms: u64,
    /// On a denial, milliseconds until the same hits would pass; absent if they never will.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) retry_after_ms: Option<u64>,
    /// True if a failure mode answered.
    pub(crate) degraded: bool,
}

/// The answers to short checks, in their order.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = ShortDecisions)]
pub(crate) struct LimitsAnswer {
    pub(crate) results: Vec<LimitAnswer>,
}

impl LimitAnswer {
    /// The answer to a request that no limit has answered.
    const fn unreadable(success: bool) -> Self {
        Self {
            success,
            limit: 0,
            remaining: 0,
            reset: 0,
            reset_after_ms: 0,
            retry_after_ms: None,
            degraded: false,
        }
    }

    fn new(ruling: &Ruling<'_>, now: Timestamp) -> Self {
        let decision = ruling.decision;
        let LimitStatus {
            rule: _, // The caller named it.
            limit,
            remaining,
            reset_after,
            full_after: _,
            retry_after,
            is_over: _, // `success` tells it.
            debt: _,    // A short answer has what callers read who do not settle.
        } = decision.limit_status().unwrap_or_default();
        let resets_at = now.after(reset_after).as_micros();
        Self {
            success: decision.allowed(),
            limit,
            remaining,
            reset: resets_at.div_ceil(1_000),
            reset_after_ms: reset_after.as_millis_ceil(),
            retry_after_ms: retry_after.map(Micros::as_millis_ceil),
            degraded: decision.is_degraded(),
        }
    }
}

/// A short check, validated, or the answer to one that cannot be read.
enum Prepared<'a> {
    Check(PreparedCheck<'a>),
    Unreadable(LimitAnswer),
}

/// Returns true if nothing is wrong with a request but what its client may have chosen.
const fn is_whole<T>(prepared: &Result<T, Refusal>) -> bool {
    match prepared {
        Ok(_) => true,
        Err(refusal) => matches!(refusal.reason, Reason::OutOfBounds),
    }
}

/// The parts of a short check.
struct PreparedCheck<'a> {
    domain: Cow<'a, str>,
    entries: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    hits: i64,
    /// None for a rule.
    own: Option<OwnLimit>,
}

impl PreparedCheck<'_> {
    fn check(&self) -> Check<'_> {
        let mut check = Check::new(&self.domain);
        let entries = self.entries.iter();
        let terms = check.push(entries.map(|(key, value)| (&**key, &**value)));
        terms.hits = self.hits;
        terms.limit = self.own.as_ref().map(BroughtLimit::Own);
        check
    }
}

impl<C: Sender> Api<'_, C> {
    /// Decides one short check.
    pub(crate) async fn limit(&self, request: &LimitRequest<'_>) -> Result<LimitAnswer, C::Error> {
        let prepared = match self.prepare(request, "")? {
            Prepared::Check(check) => check,
            Prepared::Unreadable(answer) => return Ok(answer),
        };
        let now = self.app.limiter.clock().now();
        let read = |ruling: &Ruling<'_>| LimitAnswer::new(ruling, now);
        let origin = self.sender.origin();
        Ok(self.app.check(prepared.check(), now, origin, read).await)
    }

    /// Decides up to a thousand short checks, each by itself; none if one of them is malformed. Asks all of them before it
    /// waits for any.
    pub(crate) async fn limit_all(
        &self,
        requests: &[Object<LimitRequest<'_>>],
    ) -> Result<Vec<LimitAnswer>, C::Error> {
        if requests.is_empty() || requests.len() > CHECKS_MAX {
            let message = format!("expected 1 to {CHECKS_MAX} limits");
            return Err(Refusal::invalid("limits", message).into());
        }
        let prepared = requests.iter().enumerate();
        let prepared = prepared
            .map(|(number, request)| self.prepare(&request.0, &format!("limits[{number}].")));
        let prepared: Vec<Prepared<'_>> = prepared.collect::<Result<_, _>>()?;
        let round = Round::begin(self.app, self.sender.origin());
        let now = round.now;
        let read = |_: &Prepared<'_>, ruling: &Ruling<'_>| LimitAnswer::new(ruling, now);
        let asked = prepared.iter().map(|prepared| match prepared {
            Prepared::Check(check) => {
                round.ask(&mut check.check(), |ruling| read(prepared, ruling))
            }
            Prepared::Unreadable(answer) => Decided(answer.clone()),
        });
        let asked: Vec<_> = asked.collect();
        Ok(round.end(prepared.iter().zip(asked), read).await)
    }

    /// Validates a request; `prefix` leads the paths of wrong fields. What its client may have chosen is judged, so that it
    /// is no error.
    fn prepare<'r>(
        &self,
        request: &'r LimitRequest<'_>,
        prefix: &str,
    ) -> Result<Prepared<'r>, C::Error> {
        // A limit that comes along needs none, and a rule that is there was not refused.
        require_rules(self.app, [])?;
        let prepared = match request.rule.is_empty() {
            true => request.own(),
            false => request.named(self.app.limiter.snapshot().rules()),
        };
        if request.rule.is_empty() && is_whole(&prepared) {
            self.sender.permit(Power::Override)?;
        }
        let refusal = match prepared {
            Ok(check) => return Ok(Prepared::Check(check)),
            Err(refusal) => Refusal {
                field: format!("{prefix}{}", refusal.field),
                ..refusal
            },
        };
        let (allowed, _) = judge(self.app, refusal)?;
        Ok(Prepared::Unreadable(LimitAnswer::unreadable(allowed)))
    }
}

impl LimitRequest<'_> {
    /// The check by a limit that comes with the request.
    fn own(&self) -> Result<PreparedCheck<'_>, Refusal> {
        let missing = |field: &str| Refusal::invalid(field, format!("missing field `{field}`"));
        let quota = self.limit.ok_or_else(|| missing("limit"))?;
        let window = self.duration.as_ref().ok_or_else(|| missing("duration"))?;
        let window = window.read()?;
        if quota == 0 {
            return Err(Refusal::invalid("limit", "a limit is at least 1"));
        }
        let algorithm = match &*self.algorithm {
            "" => Algorithm::by_burst(self.burst),
            name => Algorithm::from_name(name)
                .filter(|algorithm| !algorithm.holds_permits())
                .ok_or_else(|| Refusal::invalid("algorithm", algorithms()))?,
        };
        let spec = LimitSpec {
            burst: self.burst,
            ..LimitSpec::new(algorithm, quota, window)
        };
        let refused = |error: ratekeeper_core::LimitError| match self.burst {
            Some(_) if !algorithm.has_burst() => Refusal::invalid("burst", error.to_string()),
            _ => Refusal::invalid("limit", error.to_string()),
        };
        let limit = Limit::try_new(spec).map_err(refused)?.without_delay();
        let domain = Some(&*self.domain).filter(|domain| !domain.is_empty());
        Ok(PreparedCheck {
            domain: domain.unwrap_or(DOMAIN).into(),
            entries: vec![(IDENTIFIER.into(), self.identifier()?.into())],
            hits: self.hits()?,
            own: Some(OwnLimit {
                limit,
                on_store_failure: FailureMode::default(),
            }),
        })
    }

    /// The check by a rule.
    fn named(&self, rules: &RuleSet) -> Result<PreparedCheck<'_>, Refusal> {
        let given = [
            ("limit", self.limit.is_some()),
            ("duration", self.duration.is_some()),
            ("burst", self.burst.is_some()),
            ("algorithm", !self.algorithm.is_empty()),
            ("domain", !self.domain.is_empty()),
        ];
        if let Some((field, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
            return Err(Refusal::invalid(field, "the rule has one; leave it out"));
        }
        let (domain, path) = rules
            .path_of(&self.rule)
            .ok_or_else(|| Refusal::invalid("rule", "no rule has this id"))?;
        if path
            .last()
            .is_some_and(|node| !has_rule(rules, node, &self.rule))
        {
            let message = "this is a limit of one plan; name the rule of the default plan: the tenant's own plan decides";
            return Err(Refusal::invalid("rule", message));
        }
        let mut open = path.iter().filter(|node| !is_fixed(node));
        let (Some(named), None) = (open.next(), open.next()) else {
            let message = "this rule takes more or less than an identifier; use /v1/check";
            return Err(Refusal::invalid("rule", message));
        };
        let identifier = self.identifier()?;
        let entries: Vec<Entry<'_>> = path.iter().map(|node| entry_of(node, identifier)).collect();
        if let Some(pattern) = named
            .value()
            .filter(|_| !is_matched(domain, &entries, &path))
        {
            let message = format!("the rule is for identifiers that match {pattern:?}");
            return Err(Refusal::out_of_bounds("identifier", message));
        }
        let entries = entries.iter().map(|entry| {
            let value = match entry.value == identifier {
                true => Cow::Borrowed(identifier),
                false => Cow::Owned(entry.value.to_owned()),
            };
            (Cow::Owned(entry.key.to_owned()), value)
        });
        Ok(PreparedCheck {
            domain: domain.name().to_owned().into(),
            entries: entries.collect(),
            hits: self.hits()?,
            own: None,
        })
    }

    fn identifier(&self) -> Result<&str, Refusal> {
        match self.identifier.len() {
            0 => Err(Refusal::out_of_bounds("identifier", "it must not be empty")),
            length if length > ENTRY_BYTES_MAX => {
                let message = format!("at most {ENTRY_BYTES_MAX} bytes");
                Err(Refusal::out_of_bounds("identifier", message))
            }
            _ => Ok(&self.identifier),
        }
    }

    fn hits(&self) -> Result<i64, Refusal> {
        let hits = i64::try_from(self.cost.unwrap_or(1)).unwrap_or(i64::MAX);
        match hits <= MAX_HITS {
            true => Ok(hits),
            false => Err(Refusal::out_of_bounds(
                "cost",
                format!("at most {MAX_HITS}"),
            )),
        }
    }
}

impl WindowText<'_> {
    fn read(&self) -> Result<Micros, Refusal> {
        let window = match self {
            Self::Millis(millis) => Micros::from_millis(*millis),
            // `10 s` as well, as others write it.
            Self::Text(text) => parse_duration(&text.replace(' ', ""))
                .map_err(|error| Refusal::invalid("duration", error.to_string()))?,
        };
        match window {
            Micros::ZERO => Err(Refusal::invalid("duration", "a duration is above 0")),
            window if window > WINDOW_MAX => Err(Refusal::invalid("duration", "at most 366 days")),
            window => Ok(window),
        }
    }
}

/// The names of the algorithms, in a sentence.
fn algorithms() -> String {
    let names = Algorithm::ALL.into_iter();
    let names = names.filter(|algorithm| !algorithm.holds_permits());
    let names: Vec<_> = names.map(Algorithm::name).collect();
    format!("expected one of {}", names.join(", "))
}

/// Returns true if the rule with this id, which is at `node`, is the default plan's, or that has none there.
fn has_rule(rules: &RuleSet, node: &Node, id: &str) -> bool {
    let mut own = node.rules().iter().map(|index| rules.rule(*index));
    node.rules().is_empty() || own.any(|rule| *rule.id == *id)
}

/// Returns true if the node is for one value alone.
fn is_fixed(node: &Node) -> bool {
    node.value().is_some_and(|value| !value.contains('*'))
}

fn entry_of<'a>(node: &'a Node, identifier: &'a str) -> Entry<'a> {
    let fixed = node.value().filter(|_| is_fixed(node));
    Entry {
        key: node.key(),
        value: fixed.unwrap_or(identifier),
    }
}

/// Returns true if `entries` match the nodes of `path`, or a node for just this value in the place of a pattern.
fn is_matched(domain: &Domain, entries: &[Entry<'_>], path: &[&Node]) -> bool {
    let walk = domain.walk(entries);
    (0..path.len()).all(|at| {
        let visit = walk.get(at);
        visit.is_some_and(|visit| {
            visit.how == Matched::Exact || visit.node.pattern() == path[at].pattern()
        })
    })
}
