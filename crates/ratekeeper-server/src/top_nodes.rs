//! The keys that are denied and allowed most on all nodes.
//!
//! Every two seconds each node lays out its own lists, of fixed length, where the others find them. They are read, and
//! merged, when somebody asks.

mod list;
mod merge;

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::app::App;
use crate::store::ServedStore;
pub(crate) use list::TopOfNode;
pub(crate) use merge::{MergedKey, MergedNode, merge};

/// The interval at which a node lays out its lists.
const EVERY: Duration = Duration::from_secs(2);

/// The place where nodes lay out their lists.
pub trait TopPeers: fmt::Debug + Send + Sync {
    /// Lays out this node's list in place of the one before.
    fn publish<'a>(&'a self, list: &'a str) -> TopAnswer<'a, ()>;

    /// Reads the lists of all other nodes.
    fn read(&self) -> TopAnswer<'_, PeerLists>;
}

/// The answer of the place where nodes lay out their lists.
pub type TopAnswer<'a, T> = Pin<Box<dyn Future<Output = Result<T, TopUnknown>> + Send + 'a>>;

/// The reason why the lists of other nodes are not known.
pub type TopUnknown = Box<dyn Error + Send + Sync>;

/// The lists of the other nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PeerLists {
    /// The lists, each with its age.
    pub lists: Vec<(Duration, String)>,
    /// Nodes whose lists were not read, because there are too many.
    pub left_out: u64,
}

/// Lays out this node's lists as long as the server runs, if there is a place for them.
pub(crate) async fn share<S: ServedStore>(app: Arc<App<S>>) {
    let Some(peers) = &app.top_peers else {
        return std::future::pending().await;
    };
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_known = true;
    loop {
        ticks.tick().await;
        let list = TopOfNode::read(app.limiter.top(), app.denials.node()).into_text();
        let published = peers.publish(&list).await;
        match (&published, is_known) {
            (Ok(()), false) => info!("other nodes are told again which keys are limited most here"),
            (Err(why), true) => {
                warn!(%why, "other nodes are not told which keys are limited most here");
            }
            _ => {}
        }
        is_known = published.is_ok();
    }
}
