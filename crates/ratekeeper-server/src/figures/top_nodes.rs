//! The keys that are denied and allowed most on all nodes.
//!
//! Every two seconds each node lays out its own lists, of fixed length, where the others find them. They are read, and
//! merged, when somebody asks.

mod cases;
mod list;
mod merge;
mod peers;

use std::time::Duration;

use ratekeeper_limiter::Limiter;
use ratekeeper_stores::Stores;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

pub(crate) use cases::CaseEntry;
pub use list::KeyList;
pub(crate) use list::TopOfNode;
pub use merge::merge_keys;
pub use peers::{PeerLists, TopAnswer, TopPeers, TopUnknown};

/// The interval at which a node lays out its lists.
const EVERY: Duration = Duration::from_secs(2);

/// Lays out the lists of this `node` at the place of `peers`, as long as the server runs.
pub(crate) async fn share(limiter: &Limiter<Stores>, peers: &dyn TopPeers, node: &str) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_known = true;
    loop {
        ticks.tick().await;
        let (top, now) = (limiter.top(), limiter.clock().now());
        let list = TopOfNode::read(top, node, now).into_text();
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
