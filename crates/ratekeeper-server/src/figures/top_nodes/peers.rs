//! The place where nodes lay out their lists.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

/// The place where nodes lay out their lists. A trait, because the server must not know the kind of store that has it.
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
