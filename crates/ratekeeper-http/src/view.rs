//! One request while it is being described.

use std::cell::OnceCell;

use crate::{Caller, Identity, Malformed, Original};

/// A request, and what has been found out about it so far.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) request: &'a Original<'a>,
    identity: &'a Identity,
    caller: OnceCell<Caller<'a>>,
}

impl<'a> View<'a> {
    pub(crate) const fn new(request: &'a Original<'a>, identity: &'a Identity) -> Self {
        Self {
            request,
            identity,
            caller: OnceCell::new(),
        }
    }

    /// Who calls; looked for once.
    pub(crate) fn caller(&self) -> Result<Caller<'a>, Malformed> {
        if let Some(caller) = self.caller.get() {
            return Ok(caller.clone());
        }
        let caller = self.identity.caller(self)?;
        Ok(self.caller.get_or_init(|| caller).clone())
    }

    /// Who calls, if anybody asked.
    pub(crate) fn into_caller(self) -> Option<Caller<'a>> {
        self.caller.into_inner()
    }
}
