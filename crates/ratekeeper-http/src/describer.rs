//! Turns requests into checks for a limiter.

use std::collections::BTreeSet;
use std::sync::Arc;

use ratekeeper_limiter::Check;
use ratekeeper_rules::{
    Domain, JsonPointer, LEVEL_KEYS, LevelMatch, Options, PathKeys, RuleSet, SERVICE_LEVELS, TENANT,
};

use crate::described::Described;
use crate::view::View;
use crate::{
    AmbiguousPaths, CallerName, EncodedSlashes, Identity, Malformed, Mapping, Original, Refused,
    ValueSource,
};

/// Turns requests into checks for a limiter: identifies the caller, finds the service level, and
/// builds the descriptors for the rules of a domain.
///
/// ```
/// use http::{HeaderMap, Method, Uri};
/// use ratekeeper_http::{Describer, Forwarding, Hop, Original};
/// use ratekeeper_rules::{Options, Source, load};
///
/// let text = "slas: [ { id: get, pathPattern: '/product/*', tiers: [ { period: 10, threshold: 2 } ] } ]".to_owned();
/// let rules = load(&[Source { name: "slas.yaml".to_owned(), text }], &Options::default())?.rules;
///
/// let (uri, headers) = (Uri::from_static("/product/7"), HeaderMap::new());
/// let hop = Hop::Address("203.0.113.7".parse()?);
/// let original = Original::received(hop, "http", &Method::GET, &uri, &headers, &Forwarding::default())?;
///
/// let describer = Describer::default();
/// let domain = describer.domain(None, &rules)?;
/// let question = describer.question(&original, domain, &rules)?;
/// let check = question.check();
/// let entries = check.descriptors().flat_map(|descriptor| descriptor.entries);
/// let pairs: Vec<_> = entries.map(|entry| (entry.key, entry.value)).collect();
/// assert_eq!(pairs, [("remote_address", "203.0.113.7"), ("sla", "get"), ("method", "GET")]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Describer {
    /// The identification of callers.
    pub identity: Identity,
    /// The descriptors for the rules of a domain.
    pub mapping: Mapping,
    /// The domain for requests that do not ask for another; None for the only one that has rules.
    pub domain: Option<Box<str>>,
    /// The treatment of paths with an encoded slash or a backslash.
    pub encoded_slashes: EncodedSlashes,
    /// The treatment of other paths that services read in different ways.
    pub ambiguous_paths: AmbiguousPaths,
}

/// The reason why a domain cannot be chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UnclearDomain {
    /// The rules have this many domains, and none was chosen.
    #[error("the rules have {0} domains, and none is chosen")]
    Several(usize),
    /// The request names one domain, and the settings another.
    #[error("the settings name another domain")]
    Contradicted,
}

impl Describer {
    /// The domain whose rules decide: that of the settings, else `asked`, else the only one that
    /// exists; None if there is none, only service levels or nothing at all.
    ///
    /// # Errors
    /// See [`UnclearDomain`].
    pub fn domain<'a>(
        &'a self,
        asked: Option<&'a str>,
        rules: &'a RuleSet,
    ) -> Result<Option<&'a str>, UnclearDomain> {
        match (asked, self.domain.as_deref()) {
            (Some(asked), Some(set)) if asked != set => return Err(UnclearDomain::Contradicted),
            (Some(domain), _) | (None, Some(domain)) => return Ok(Some(domain)),
            (None, None) => {}
        }
        let mut domains = rules.domains();
        match domains.len() {
            0 | 1 => Ok(domains.next().map(|domain| domain.name())),
            count => Err(UnclearDomain::Several(count)),
        }
    }

    /// The check for `request`: the descriptors for `domain`, and the matching service level of
    /// `rules`. Parts of the request are borrowed; addresses and decoded values are not.
    ///
    /// # Errors
    /// A part of the request that matters is ambiguous, or its token is not accepted. The request
    /// must not be decided then.
    pub fn question<'a>(
        &'a self,
        request: &'a Original<'a>,
        domain: Option<&'a str>,
        rules: &'a RuleSet,
    ) -> Result<RequestCheck<'a>, Refused> {
        self.check_path(request, domain, rules)?;
        let folding = rules.path_folding();
        let view = View::new(request, &self.identity, folding)?;
        let mut described = match domain {
            Some(_) => self.mapping.describe(&view, rules)?,
            None => Described::default(),
        };
        let level = self.level(request, rules)?;
        if let Some(level) = &level {
            let caller = match level.tenant {
                Some(tenant) => self.identity.tenant(TENANT, tenant, folding)?,
                None => view.caller()?,
            };
            let [level_key, method_key] = LEVEL_KEYS;
            described.push([
                (caller.key, caller.name),
                (level_key, (&*level.level.id).into()),
                (method_key, level.method.into()),
            ]);
        }
        Ok(RequestCheck {
            domain: domain.unwrap_or(SERVICE_LEVELS),
            described,
            level,
            caller: view.into_caller(),
        })
    }

    /// Identifies the caller of `request`, with paths as `rules` count them.
    ///
    /// # Errors
    /// As for [`Self::question`].
    pub fn caller<'a>(
        &'a self,
        request: &'a Original<'a>,
        rules: &RuleSet,
    ) -> Result<CallerName<'a>, Refused> {
        let view = View::new(request, &self.identity, rules.path_folding())?;
        Ok(view.caller()?)
    }

    /// The keys of entries that are made from paths, and `path` and `endpoint`. Pass them to the
    /// rules ([`Options::path_keys`](ratekeeper_rules::Options::path_keys)), so that
    /// `/Orders/Export/` is counted as `/orders/export`: only values under these keys are folded.
    #[must_use]
    pub fn path_keys(&self) -> PathKeys {
        let mut keys = Options::default().path_keys;
        let mut add = |key: &str, source: &ValueSource| {
            if let Some(form) = source.path_form() {
                keys.entry(key.into()).or_default().insert(form);
            }
        };
        self.identity
            .named()
            .for_each(|(key, source)| add(key, source));
        for field in self.mapping.descriptors().iter().flatten() {
            match &field.source {
                Some(ValueSource::Identity) => {
                    let mut sources = self.identity.sources();
                    sources.by_ref().for_each(|source| add(&field.key, source));
                }
                Some(source) => add(&field.key, source),
                None => {}
            }
        }
        keys
    }

    /// The keys of entries whose values are secrets because of their source: cookies, bearer
    /// tokens, headers and parameters with API keys, and callers identified by one of them. Pass
    /// them to the rules ([`Options::secrets`](ratekeeper_rules::Options::secrets)), so that such
    /// values are shown as fingerprints.
    #[must_use]
    pub fn secret_keys(&self) -> BTreeSet<Box<str>> {
        let mut of_callers = self.identity.secret_keys().peekable();
        let is_secret = |source: &ValueSource, names_secretly: bool| match source {
            ValueSource::Identity => names_secretly,
            source => source.is_secret(),
        };
        let names_secretly = of_callers.peek().is_some();
        let fields = self.mapping.descriptors().iter().flatten();
        let secret = fields.filter(|field| {
            let source = field.source.as_ref();
            source.is_some_and(|source| is_secret(source, names_secretly))
        });
        let of_mapping = secret.map(|field| &*field.key);
        of_mapping.chain(of_callers).map(Into::into).collect()
    }

    /// The places in bodies of JSON that descriptors and callers depend on, each once.
    #[must_use]
    pub fn body_places(&self) -> Arc<[JsonPointer]> {
        let mapped = self.mapping.descriptors().iter().flatten();
        let mapped = mapped.filter_map(|field| field.source.as_ref());
        let mut places: Vec<JsonPointer> = Vec::new();
        for source in mapped.chain(self.identity.sources()) {
            if let ValueSource::Body(place) = source
                && !places.contains(place)
            {
                places.push(place.clone());
            }
        }
        places.into()
    }

    /// Refuses a path that services read in different ways, if a limit depends on it.
    fn check_path(
        &self,
        request: &Original<'_>,
        domain: Option<&str>,
        rules: &RuleSet,
    ) -> Result<(), Malformed> {
        let Some(target) = request
            .target
            .as_ref()
            .filter(|target| target.is_ambiguous())
        else {
            return Ok(());
        };
        let counts = domain.is_some_and(|domain| self.goes_by_path(rules.domain(domain)));
        let method = request.method.unwrap_or_default();
        self.ambiguous_paths.check(target, rules, counts)?;
        self.encoded_slashes
            .check(method, &target.path, rules, counts)
    }

    /// Returns true if a rule of `domain` may depend on the path of a request; None stands for
    /// rules that are not known here.
    fn goes_by_path(&self, domain: Option<&Domain>) -> bool {
        let may_match = |key: &str| domain.is_none_or(|domain| domain.may_begin_with(key));
        let by_path = |source: &ValueSource| match source {
            ValueSource::Identity => self.identity.sources().any(ValueSource::is_of_path),
            source => source.is_of_path(),
        };
        let mut descriptors = self.mapping.descriptors().iter();
        descriptors.any(|fields| {
            let mut sources = fields.iter().filter_map(|field| field.source.as_ref());
            sources.any(by_path) && fields.first().is_some_and(|first| may_match(&first.key))
        })
    }

    /// The service level of a request, if its method and path are known and one matches.
    ///
    /// # Errors
    /// Some services take a segment for a dot segment.
    fn level<'a>(
        &self,
        request: &'a Original<'a>,
        rules: &'a RuleSet,
    ) -> Result<Option<LevelMatch<'a>>, Malformed> {
        let Some(target) = &request.target else {
            return Ok(None);
        };
        let method = request.method.unwrap_or_default();
        if rules.service_levels().is_empty() {
            return Ok(None);
        }
        target.check_segments()?;
        Ok(rules.service_level(method, &target.path))
    }
}

/// A check for the limiter, built from a request.
#[derive(Clone, PartialEq, Debug)]
pub struct RequestCheck<'a> {
    domain: &'a str,
    described: Described<'a>,
    level: Option<LevelMatch<'a>>,
    caller: Option<CallerName<'a>>,
}

impl<'a> RequestCheck<'a> {
    /// The domain of the check.
    #[must_use]
    pub const fn domain(&self) -> &'a str {
        self.domain
    }

    /// The service level that applies.
    #[must_use]
    pub const fn level(&self) -> Option<LevelMatch<'a>> {
        self.level
    }

    /// The caller, if a service level or a descriptor needed it.
    #[must_use]
    pub const fn caller(&self) -> Option<&CallerName<'a>> {
        self.caller.as_ref()
    }

    /// Returns true if there is nothing to check: no descriptor, no service level. The request may
    /// pass.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.described.is_empty()
    }

    /// The check: a hit on each descriptor. The service level's is the last, in the domain [`SERVICE_LEVELS`].
    #[must_use]
    pub fn check(&self) -> Check<'_> {
        let mut check = Check::new(self.domain);
        self.add_to(&mut check);
        check
    }

    /// Adds the descriptors to `check`, as [`Self::check`] has them.
    pub fn add_to<'q>(&'q self, check: &mut Check<'q>) {
        self.described.add_to(check);
        if let (Some(_), Some(last)) = (self.level, check.last_mut()) {
            last.domain = Some(SERVICE_LEVELS);
        }
    }
}

#[cfg(test)]
mod tests;
