//! The keys that are denied and allowed most on all nodes.
//!
//! Every two seconds each node lays out its own lists, of fixed length, where the others find them. They are read, and
//! merged, when somebody asks.

mod cases;
mod list;
mod merge;
mod peers;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::app::App;
pub(crate) use cases::CaseEntry;
pub use list::KeyList;
pub(crate) use list::TopOfNode;
pub use merge::merge_keys;
pub use peers::{PeerLists, TopAnswer, TopPeers, TopUnknown};

/// The interval at which a node lays out its lists.
const EVERY: Duration = Duration::from_secs(2);

/// Lays out this node's lists as long as the server runs, if there is a place for them.
pub(crate) async fn share(app: Arc<App>) {
    let Some(peers) = &app.config.top_peers else {
        return std::future::pending().await;
    };
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_known = true;
    loop {
        ticks.tick().await;
        let (top, now) = (app.limiter.top(), app.limiter.clock().now());
        let list = TopOfNode::read(top, app.config.denials.node(), now).into_text();
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
