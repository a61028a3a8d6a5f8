//! The layer.

use std::hash::RandomState;
use std::sync::Arc;

use http::Extensions;
use parking_lot::RwLock;
use ratekeeper_http::{Describer, Forwarding, Hop, Identity};
use ratekeeper_rules::ShedRules;
use tower_layer::Layer;

use super::service::ShedService;
use super::{ShedCounts, Shedder, Site, SiteState};
use crate::peer::peer_in_extensions;

/// Sheds requests to the services that it wraps, all of which are one [`Site`]. Clones share its state.
///
/// It may stand alone, with rules of its own. Inside a [`RulesLayer`](crate::RulesLayer) whose rules have `shed:` it follows
/// those, and what a shed request took from its rate limits is given back.
///
/// ```
/// use ratekeeper_rules::{Options, Source, load};
/// use ratekeeper_tower::ShedLayer;
///
/// let source = Source {
///     name: "shed.yaml".to_owned(),
///     text: "shed: { workers: {}, adaptive: { max: 200 } }".to_owned(),
/// };
/// let rules = load(&[source], &Options::default())?.rules;
/// let layer = ShedLayer::new(rules.shed().cloned().unwrap_or_default());
/// assert_eq!(layer.state().limit, 20);
/// # Ok::<(), ratekeeper_rules::Diagnostics>(())
/// ```
#[derive(Clone, Debug)]
pub struct ShedLayer {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) shedder: Arc<Shedder>,
    pub(super) site: Arc<Site>,
    pub(super) rules: RwLock<Arc<ShedRules>>,
    pub(super) describer: Describer,
    pub(super) forwarding: Forwarding,
    pub(super) peer: fn(&Extensions) -> Option<Hop>,
    pub(super) hasher: RandomState,
}

/// A layer without rules of its own: it follows those of the [`RulesLayer`](crate::RulesLayer) around it.
impl Default for ShedLayer {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl ShedLayer {
    /// A layer with these rules. It tells tenants apart by the header `x-api-key`, else by the client's address.
    #[must_use]
    pub fn new(rules: Arc<ShedRules>) -> Self {
        Self::identified(rules, Identity::default(), peer_in_extensions)
    }

    /// A layer that tells tenants apart by `identity`; `peer` finds the address of a request's peer in its extensions.
    #[must_use]
    pub fn identified(
        rules: Arc<ShedRules>,
        identity: Identity,
        peer: fn(&Extensions) -> Option<Hop>,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                shedder: Arc::default(),
                site: Arc::new(Site::of_this_process()),
                rules: RwLock::new(rules),
                describer: Describer {
                    identity,
                    ..Describer::default()
                },
                forwarding: Forwarding::default(),
                peer,
                hasher: RandomState::new(),
            }),
        }
    }

    /// Puts other rules in force. What the controllers have learnt stays.
    pub fn replace_rules(&self, rules: Arc<ShedRules>) {
        *self.shared.rules.write() = rules;
    }

    /// The counts since the layer was made.
    #[must_use]
    pub fn counts(&self) -> ShedCounts {
        self.shared.shedder.counts()
    }

    /// The state of its controllers.
    #[must_use]
    pub fn state(&self) -> SiteState {
        self.shared.site.state(&self.shared.shedder)
    }
}

impl<S> Layer<S> for ShedLayer {
    type Service = ShedService<S>;

    fn layer(&self, inner: S) -> ShedService<S> {
        ShedService::new(inner, Arc::clone(&self.shared))
    }
}
