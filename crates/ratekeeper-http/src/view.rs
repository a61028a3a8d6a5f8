//! The state of a request while it is being described.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

use ratekeeper_rules::PathFolding;

use crate::credentials::bearer_token;
use crate::describer::Refused;
use crate::identity::{Claims, claim};
use crate::{CallerName, Identity, Malformed, Original};

/// A request, with the facts found out about it so far.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) request: &'a Original<'a>,
    identity: &'a Identity,
    /// The differences in paths that do not count.
    pub(crate) folding: PathFolding,
    claims: Option<Arc<Claims>>,
    caller: OnceCell<CallerName<'a>>,
}

impl<'a> View<'a> {
    /// Verifies the request's bearer token, if tokens are verified.
    pub(crate) fn new(
        request: &'a Original<'a>,
        identity: &'a Identity,
        folding: PathFolding,
    ) -> Result<Self, Refused> {
        let claims = match identity.checks_tokens() {
            true => bearer_token(request.headers)?,
            false => None,
        };
        let claims = claims.map(|token| identity.claims(token, request.client));
        Ok(Self {
            request,
            identity,
            folding,
            claims: claims.transpose()?.flatten(),
            caller: OnceCell::new(),
        })
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
        let caller = self.identity.caller(self)?;
        Ok(self.caller.get_or_init(|| caller).clone())
    }

    /// The caller, if it was identified.
    pub(crate) fn into_caller(self) -> Option<CallerName<'a>> {
        self.caller.into_inner()
    }
}
