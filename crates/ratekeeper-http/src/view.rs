//! The state of a request while it is being described.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

use crate::credentials::bearer_token;
use crate::describer::Refused;
use crate::identity::{Claims, claim};
use crate::{CallerName, Identity, Malformed, Original};

/// A request, with the facts found out about it so far.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) request: &'a Original<'a>,
    identity: &'a Identity,
    claims: Option<Arc<Claims>>,
    caller: OnceCell<CallerName<'a>>,
}

impl<'a> View<'a> {
    /// Verifies the request's bearer token, if tokens are verified.
    pub(crate) fn new(request: &'a Original<'a>, identity: &'a Identity) -> Result<Self, Refused> {
        let mut view = Self::unchecked(request, identity);
        if identity.checks_tokens()
            && let Some(token) = bearer_token(request.headers)?
        {
            view.claims = identity.claims(token, request.client)?;
        }
        Ok(view)
    }

    /// A request whose token is not verified: it has no claims.
    pub(crate) const fn unchecked(request: &'a Original<'a>, identity: &'a Identity) -> Self {
        Self {
            request,
            identity,
            claims: None,
            caller: OnceCell::new(),
        }
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
