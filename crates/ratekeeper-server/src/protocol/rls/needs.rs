//! The permissions that a request of Envoy's protocol needs.

use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitRequest;

use crate::access::callers::{Admitted, Callers, NotPermitted, Power};
use crate::config::EnvoyCallers;
use crate::listen::Peer;

/// The permissions that one request needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequiredPermissions {
    a_sender: bool,
    an_override: bool,
    a_refund: bool,
}

impl RequiredPermissions {
    /// Returns what `request` needs under the rule `callers`.
    #[inline]
    pub(crate) fn of(request: &RateLimitRequest, callers: EnvoyCallers) -> Self {
        let is_held = callers != EnvoyCallers::Any;
        let descriptors = &request.descriptors;
        Self {
            a_sender: callers == EnvoyCallers::Required,
            an_override: is_held && descriptors.iter().any(|asked| asked.limit.is_some()),
            a_refund: is_held && descriptors.iter().any(|asked| asked.is_negative_hits),
        }
    }

    /// Returns what a request needs that has neither limits nor refunds.
    #[inline]
    pub(crate) const fn of_plain(callers: EnvoyCallers) -> Self {
        Self {
            a_sender: matches!(callers, EnvoyCallers::Required),
            an_override: false,
            a_refund: false,
        }
    }

    /// Returns true if anybody may send it, so that the sender need not be looked up.
    #[inline]
    pub(crate) const fn are_none(self) -> bool {
        !(self.a_sender || self.an_override || self.a_refund)
    }

    /// Returns the sender if it has what the request needs.
    ///
    /// # Errors
    /// The sender is not known, or it lacks a permission.
    pub(crate) fn admit<'a>(
        self,
        callers: &'a Callers,
        peer: Option<&Peer>,
        authorization: Option<&[u8]>,
    ) -> Result<Admitted<'a>, NotPermitted> {
        let sender = callers.identify(peer, authorization)?;
        let powers = [
            (self.an_override, Power::Override),
            (self.a_refund, Power::Refund),
        ];
        for (_, power) in powers.into_iter().filter(|(is_needed, _)| *is_needed) {
            sender.may(power)?;
        }
        Ok(sender.admitted())
    }
}
