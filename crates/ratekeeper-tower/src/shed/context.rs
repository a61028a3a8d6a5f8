//! The class, tenant and deadline of a request, for shedders.

use std::sync::Arc;
use std::time::Instant;

use ratekeeper_http::Original;
use ratekeeper_rules::ShedRules;
use ratekeeper_shed::{Class, ClassCount};

use super::deadline::patience;

/// The class, the tenant and the deadline of a request, and the rules by which it may be shed. A
/// [`RateLimit`](crate::RateLimit) puts it into the extensions of a request while its rules have shedders.
#[derive(Clone, Debug)]
pub struct ShedContext {
    pub(crate) rules: Arc<ShedRules>,
    pub(crate) class: Class,
    /// A hash of the caller, under a key of this process.
    pub(crate) tenant: u64,
    /// The time at which the client gives up, if it says so.
    pub(crate) deadline: Option<Instant>,
}

impl ShedContext {
    /// The context of `request`, which has just arrived, by the tenant with this hash and on this plan, if known.
    #[must_use]
    pub fn new(
        rules: Arc<ShedRules>,
        request: &Original<'_>,
        tenant: u64,
        plan: Option<&str>,
    ) -> Self {
        let header = |name: &str| request.headers.get(name).map(|value| value.as_bytes());
        let path = request.target.as_ref().map_or("", |target| &target.path);
        let method = request.method.unwrap_or_default();
        let (class, _) = rules.classify(method, path, header, plan);
        Self {
            class: Class::new(class),
            rules,
            tenant,
            deadline: patience(request.headers).and_then(|it| Instant::now().checked_add(it)),
        }
    }

    pub(crate) fn classes(&self) -> ClassCount {
        ClassCount::new(self.rules.priorities.len())
    }
}
