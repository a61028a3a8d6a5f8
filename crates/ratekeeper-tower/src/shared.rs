//! The state that the services of a layer share.

use std::hash::RandomState;
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use ratekeeper_http::answer::{BodyForm, Headers};
use ratekeeper_http::{Describer, Forwarding, Hop};
use ratekeeper_limiter::CheckObserver;
use ratekeeper_rules::UsageRules;

use crate::Switch;
use crate::observer::DenialObserver;
use crate::pacer::Pacer;
use crate::watch::Watch;

/// The state that the services of a layer share.
#[derive(Clone, Debug)]
pub(crate) struct Shared<E> {
    pub(crate) enforcer: E,
    /// The domain to use if the describer names none and the rules do not determine it.
    pub(crate) domain: Option<Box<str>>,
    pub(crate) describer: Describer,
    pub(crate) forwarding: Forwarding,
    /// The scheme of requests that come from clients: `http` or `https`.
    pub(crate) scheme: &'static str,
    pub(crate) peer: fn(&Extensions) -> Option<Hop>,
    pub(crate) check_observer: Option<FindObserver>,
    /// The rules by which usage is read, in place of those of the domain.
    pub(crate) usage: Option<Arc<UsageRules>>,
    pub(crate) headers: Headers,
    pub(crate) body_form: BodyForm,
    pub(crate) wait_max: Duration,
    pub(crate) waiting_max: u64,
    pub(crate) switch: Switch,
    pub(crate) watch: Arc<Watch>,
    /// Is told of denied requests in place of the log.
    pub(crate) observer: Option<DenialObserver>,
    pub(crate) pacer: Arc<Pacer>,
    /// Names tenants to shedders where the enforcer does not, under a key of this process: a client cannot choose a name
    /// that is taken for another.
    pub(crate) hasher: RandomState,
}

/// Finds the observer of a request's check in the request's extensions.
pub(crate) type FindObserver = fn(&Extensions) -> Option<Arc<dyn CheckObserver>>;
