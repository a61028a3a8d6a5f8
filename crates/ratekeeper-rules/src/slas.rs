//! HTTP service levels (`slas:`): limits for calls by method and path.
//!
//! They are limits like any other. Loading puts them into a domain of their own,
//! [`SERVICE_LEVELS`], with descriptors of the caller, the service level and the method, so that
//! counters, statistics and answers need nothing else. This module has the part that is special:
//! finding a request's service level by method and path.

pub(crate) mod conflicts;
mod pattern;
mod router;

use crate::{PathFolding, PathForm, PlanIndex, Position, RuleIndex};

pub use pattern::{PathPattern, PathPatternError, Segment};
use router::Router;

/// The domain of the service levels. A file may use this name for a domain only where no file has
/// `slas:`.
pub const SERVICE_LEVELS: &str = "slas";

/// The path variable that names the tenant.
pub const TENANT: &str = "tenant";

/// The keys of a service level's descriptor after the caller's: the service level and the method.
pub const LEVEL_KEYS: [&str; 2] = ["sla", "method"];

/// One service level, checked.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct ServiceLevel {
    /// Unique among all service levels and rules.
    pub id: Box<str>,
    /// A service level that is not enabled does nothing; less specific ones match in its place.
    pub enabled: bool,
    /// True if its file has it enabled, whatever switches say.
    pub written_enabled: bool,
    /// Methods in capitals; empty means all.
    pub methods: Vec<Box<str>>,
    /// The whole path, base included.
    pub pattern: PathPattern,
    /// The rules made from its tiers, at least one; all must pass. They are those of the default plan.
    pub rules: Vec<RuleIndex>,
    /// The rules of the plans that have tiers of their own, in the order of the plans.
    pub by_plan: Vec<(PlanIndex, Vec<RuleIndex>)>,
    /// The position in its file.
    pub place: Position,
}

impl ServiceLevel {
    /// The method name under which a request of `method` is counted; None if this service level
    /// does not apply to it.
    ///
    /// Upper and lower case are equal: many services run `get` as they do `GET`. A service level
    /// for all methods counts unknown methods together as `other`, so that a caller who makes up
    /// methods gets no fresh counter for each.
    #[must_use]
    pub(crate) fn counted_method(&self, method: &str) -> Option<&str> {
        let is_it = |own: &&str| own.eq_ignore_ascii_case(method);
        if self.methods.is_empty() {
            return Some(KNOWN_METHODS.into_iter().find(is_it).unwrap_or("other"));
        }
        self.methods.iter().map(|own| &**own).find(is_it)
    }

    /// True if it is on by a switch alone: then it comes before one of the same pattern and methods, which its file has in its
    /// place.
    const fn is_switched_on(&self) -> bool {
        self.enabled && !self.written_enabled
    }

    fn lists(&self, method: &str) -> bool {
        self.methods.iter().any(|own| **own == *method)
    }
}

const GET: &str = "GET";
const HEAD: &str = "HEAD";

/// The methods of RFC 9110 and RFC 5789.
const KNOWN_METHODS: [&str; 9] = [
    GET, HEAD, "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
];

/// The service level of a request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LevelMatch<'a> {
    /// The most specific service level that applies to the request.
    pub level: &'a ServiceLevel,
    /// The path segment at `{tenant}`; None if the pattern has no such variable.
    pub tenant: Option<&'a str>,
    /// The method name under which the request is counted.
    pub method: &'a str,
}

/// The status of a service level, whose path matches a request, for that request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LevelStatus {
    /// It applies: it is the most specific one.
    Holds,
    /// Another one is more specific.
    LessSpecific,
    /// It lists other methods.
    OtherMethod,
    /// It is not enabled.
    Disabled,
}

/// All service levels of a load.
#[derive(Debug, Default)]
pub(crate) struct ServiceLevels {
    levels: Vec<ServiceLevel>,
    router: Router,
    folding: PathFolding,
}

impl ServiceLevels {
    pub(crate) fn new(levels: Vec<ServiceLevel>, folding: PathFolding) -> Self {
        let router = Router::new(&levels, folding);
        Self {
            levels,
            router,
            folding,
        }
    }

    /// The same ones, of which those that `is_on` selects are enabled; None if they are so already.
    pub(crate) fn switched(&self, is_on: impl Fn(&ServiceLevel) -> bool) -> Option<Self> {
        let mut levels = self.levels.iter();
        if levels.all(|level| level.enabled == is_on(level)) {
            return None;
        }
        let switched = self.levels.iter().map(|level| ServiceLevel {
            enabled: is_on(level),
            ..level.clone()
        });
        Some(Self::new(switched.collect(), self.folding))
    }

    pub(crate) fn as_slice(&self) -> &[ServiceLevel] {
        &self.levels
    }

    /// The most specific one for a request. HEAD counts as GET where no service level lists HEAD:
    /// most services run the same code for both.
    pub(crate) fn find<'a>(&'a self, method: &'a str, path: &'a str) -> Option<LevelMatch<'a>> {
        if !method.eq_ignore_ascii_case(HEAD) {
            return self.most_specific(path, |level| level.counted_method(method));
        }
        let listed = self.most_specific(path, |level| level.lists(HEAD).then_some(HEAD));
        let as_get = self.most_specific(path, |level| level.counted_method(GET));
        let specificity = |found: LevelMatch<'a>| &found.level.pattern;
        match (listed, as_get) {
            (Some(head), Some(get))
                if specificity(get).by_specificity(specificity(head)).is_lt() =>
            {
                Some(get)
            }
            (listed, as_get) => listed.or(as_get),
        }
    }

    /// The most specific one for which `counted` returns a method.
    fn most_specific<'a>(
        &'a self,
        path: &'a str,
        counted: impl Fn(&'a ServiceLevel) -> Option<&'a str>,
    ) -> Option<LevelMatch<'a>> {
        let counted = |index: u32| counted(self.levels.get(index as usize)?);
        let folded = self.folding.fold(PathForm::Path, path);
        let index = self
            .router
            .find(&folded, |index| counted(index).is_some())?;
        let level = self.levels.get(index as usize)?;
        let tenant = level.pattern.variable(TENANT);
        Some(LevelMatch {
            level,
            tenant: tenant.and_then(|at| pattern::segments_of(path).nth(at)),
            method: counted(index)?,
        })
    }

    pub(crate) fn level_statuses(
        &self,
        method: &str,
        path: &str,
    ) -> Vec<(&ServiceLevel, LevelStatus)> {
        let mut about: Vec<_> = self
            .levels
            .iter()
            .filter(|level| level.pattern.matches(path, self.folding))
            .collect();
        about.sort_by(|one, other| {
            let methods = one.methods.is_empty().cmp(&other.methods.is_empty());
            let switched_on = other.is_switched_on().cmp(&one.is_switched_on());
            let equal = methods.then(switched_on);
            one.pattern.by_specificity(&other.pattern).then(equal)
        });
        let found = self.find(method, path).map(|found| found.level);
        let is_head = method.eq_ignore_ascii_case(HEAD);
        let is_about = |level: &ServiceLevel| {
            let as_get = is_head && level.counted_method(GET).is_some();
            as_get || level.counted_method(method).is_some()
        };
        let status = |level: &ServiceLevel| match () {
            () if !level.enabled => LevelStatus::Disabled,
            () if found.is_some_and(|found| std::ptr::eq(found, level)) => LevelStatus::Holds,
            () if is_about(level) => LevelStatus::LessSpecific,
            () => LevelStatus::OtherMethod,
        };
        about
            .into_iter()
            .map(|level| (level, status(level)))
            .collect()
    }
}

#[cfg(test)]
mod tests;
