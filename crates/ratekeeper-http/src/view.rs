//! The state of a request while it is being described.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use http::header::AUTHORIZATION;
use ratekeeper_rules::PathFolding;

use crate::address::push_address;
use crate::credentials::{self, bearer_token};
use crate::identity::{ApiKeyError, CallerName, Claims, Identity, claim};
use crate::malformed::Malformed;
use crate::original::Original;
use crate::refused::{Refused, Unauthenticated};
use crate::source::{ValueSource, name_in_path};

/// The bytes of `255.255.255.255`.
const IPV4_BYTES_MAX: usize = 15;

/// A request, with the facts found out about it so far.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) request: &'a Original<'a>,
    identity: &'a Identity,
    /// The differences in paths that do not count.
    pub(crate) folding: PathFolding,
    claims: Option<Arc<Claims>>,
    /// The name of the API key.
    client: Option<&'a str>,
    caller: OnceCell<CallerName<'a>>,
}

impl<'a> View<'a> {
    /// Verifies the request's bearer token, if tokens are verified, and its API key, if it needs one.
    pub(crate) fn new(
        request: &'a Original<'a>,
        identity: &'a Identity,
        folding: PathFolding,
    ) -> Result<Self, Refused> {
        let claims = match identity.checks_tokens() {
            true => bearer_token(request.headers)?,
            false => None,
        };
        let claims = claims.map(|token| identity.claims(token, request.client, request.at));
        let mut view = Self {
            request,
            identity,
            folding,
            claims: claims.transpose()?.flatten(),
            client: None,
            caller: OnceCell::new(),
        };
        view.client = view.key_owner()?;
        Ok(view)
    }

    /// The name of the API key. Where keys are needed, a request without a known one is refused, unless its path is public
    /// however services read it.
    fn key_owner(&self) -> Result<Option<&'a str>, Refused> {
        let Some(keys) = self.identity.api_keys() else {
            return Ok(None);
        };
        let Some(key) = self.value(keys.source(), 0)? else {
            let target = self.request.target.as_ref();
            let target = target.filter(|target| !target.is_ambiguous());
            return match target.is_some_and(|target| keys.is_public(&target.path)) {
                true => Ok(None),
                false => Err(Unauthenticated::ApiKey(ApiKeyError::Missing).into()),
            };
        };
        let owner = keys.owner(&key);
        let owner = owner.ok_or(Unauthenticated::ApiKey(ApiKeyError::Unknown))?;
        Ok(Some(owner))
    }

    pub(crate) fn claim(&self, name: &str) -> Option<String> {
        claim(self.claims.as_deref()?, name)
    }

    pub(crate) fn country(&self) -> Option<Cow<'a, str>> {
        self.identity.country(self.request)
    }

    /// The caller; identified once.
    pub(crate) fn caller(&self) -> Result<CallerName<'a>, Malformed> {
        if let Some(caller) = self.caller.get() {
            return Ok(caller.clone());
        }
        let value = |source: &ValueSource, ipv6_prefix| self.value(source, ipv6_prefix);
        let caller = self.identity.caller(self.folding, value)?;
        Ok(self.caller.get_or_init(|| caller).clone())
    }

    /// The value of `source` in the request, None if it is missing or empty; `ipv6_prefix` is for
    /// [`ValueSource::RemoteAddress`].
    ///
    /// # Errors
    /// The request has two different values: since the upstream may use either, neither is counted.
    pub(crate) fn value(
        &self,
        source: &ValueSource,
        ipv6_prefix: u8,
    ) -> Result<Option<Cow<'a, str>>, Malformed> {
        let request = self.request;
        let target = request.target.as_ref();
        let value = match source {
            ValueSource::RemoteAddress => match (request.client_name, request.client) {
                (Some(name), _) => Some(Cow::Borrowed(name)),
                (None, client) => client.map(|client| network(client, ipv6_prefix).into()),
            },
            ValueSource::Method => request.method.map(Cow::Borrowed),
            ValueSource::Path => target.map(|target| Cow::Borrowed(&*target.path)),
            ValueSource::Endpoint => request
                .method
                .zip(target)
                .map(|(method, target)| format!("{method} {}", target.path).into()),
            ValueSource::PathSegment(number) => target
                .and_then(|target| target.segment(*number))
                .map(Cow::Borrowed),
            ValueSource::Host => request.host.as_deref().map(Cow::Borrowed),
            ValueSource::Scheme => request.scheme.map(Cow::Borrowed),
            ValueSource::Header(name) if *name == AUTHORIZATION => {
                credentials::authorization(request.headers)?
            }
            ValueSource::Header(name) => {
                credentials::header(request.headers, name)?.map(Cow::Borrowed)
            }
            ValueSource::Query(name) => match target {
                Some(target) => credentials::parameter(target.query, name)?.map(Cow::Owned),
                None => None,
            },
            ValueSource::Cookie(name) => {
                credentials::cookie(request.headers, name, self.identity.ambiguous_cookies())?
            }
            ValueSource::Body(pointer) => {
                let values = request.body.and_then(|values| values.get(pointer));
                values.map(Cow::Borrowed)
            }
            ValueSource::Bearer => credentials::bearer_token(request.headers)?.map(Cow::Borrowed),
            ValueSource::PathVariable(pattern) => target
                .and_then(|target| pattern.capture(&target.path, self.folding))
                .map(name_in_path)
                .transpose()?
                .map(Cow::Borrowed),
            ValueSource::Claim(name) => self.claim(name).map(Cow::Owned),
            ValueSource::Country => self.country(),
            ValueSource::Client => self.client.map(Cow::Borrowed),
            ValueSource::Identity => Some(self.caller()?.name),
        };
        Ok(value.filter(|value| !value.is_empty()))
    }

    /// The caller, if it was identified.
    pub(crate) fn into_caller(self) -> Option<CallerName<'a>> {
        self.caller.into_inner()
    }
}

/// The part of an address that counts: a holder of one address in an IPv6 network has as many as
/// they like.
fn network(client: IpAddr, ipv6_prefix: u8) -> String {
    match client {
        IpAddr::V6(address) if ipv6_prefix < 128 => {
            let mask = u128::MAX
                .checked_shl(128 - u32::from(ipv6_prefix))
                .unwrap_or(0);
            format!(
                "{}/{ipv6_prefix}",
                Ipv6Addr::from_bits(address.to_bits() & mask)
            )
        }
        address => {
            let mut text = String::with_capacity(IPV4_BYTES_MAX);
            push_address(&mut text, address);
            text
        }
    }
}
