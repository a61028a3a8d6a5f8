//! The tokens that count on a node: those of all nodes, from the quota database or the node's copy of it, or those of the
//! node's own file; and in either case those that were made for the node alone.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use ratekeeper_quota::{FleetRecord, QuotaStatus};

use super::callers::is_equal;
use super::tokens::{Tokens, from_hex};
use super::{AdminToken, Role};

/// The tokens that count on this node.
#[derive(Debug)]
pub(crate) struct KnownTokens {
    /// Those of a node without a quota database.
    own: Option<Tokens>,
    /// Those that were made for this node alone.
    local: Option<Tokens>,
    fleet: Option<FleetTokens>,
}

/// The tokens of all nodes.
#[derive(Debug)]
struct FleetTokens {
    status: QuotaStatus,
    read: Mutex<ReadState>,
}

/// The last state that was seen, with its hashes decoded.
#[derive(Debug, Default)]
struct ReadState {
    state: Option<Arc<FleetRecord>>,
    tokens: Vec<([u8; 32], Box<str>, Role)>,
}

impl KnownTokens {
    /// Those of a node with this data folder; with `fleet`, those of the quota database that it follows.
    pub(crate) fn new(data_dir: Option<&Path>, fleet: Option<QuotaStatus>) -> Self {
        Self {
            own: data_dir.filter(|_| fleet.is_none()).map(Tokens::new),
            local: data_dir.map(Tokens::local),
            fleet: fleet.map(|status| FleetTokens {
                status,
                read: Mutex::default(),
            }),
        }
    }

    /// Returns true if requests without a token are refused: there is one or was one, or nothing is known of them.
    pub(crate) fn are_required(&self) -> bool {
        let files = self.own.iter().chain(&self.local);
        let fleet = self.fleet.as_ref();
        // Unknown tokens are no open door.
        fleet.is_some_and(|it| {
            let state = it.status.fleet();
            state.is_none_or(|state| state.tokens_required)
        }) || { files }.any(Tokens::is_required)
    }

    /// The holder of the token with this hash.
    pub(super) fn find(&self, hash: &[u8; 32]) -> Option<(Box<str>, Role)> {
        let files = self.own.iter().chain(&self.local);
        let of_files = files.filter_map(|tokens| tokens.find(hash));
        let of_fleet = self.fleet.as_ref().and_then(|fleet| fleet.find(hash));
        // Each is looked at: the time tells nothing of how near a guess was.
        of_files.fold(of_fleet, |_, found| Some(found))
    }

    /// The reason why a token is not known here, for its holder.
    pub(super) fn why_unknown(&self) -> &'static str {
        match &self.fleet {
            Some(fleet) if fleet.status.fleet().is_none() => {
                "this token cannot be checked: the quota database does not answer, and this node has no copy of its \
                 tokens. Only tokens of this node alone count until then (`ratekeeper token create --local`)"
            }
            Some(_) => {
                "no such token: it was revoked, or belongs to nodes with another quota database; `ratekeeper token list` \
                 shows those that count"
            }
            None => {
                "no such token: it was revoked, or belongs to another node (without a quota database each node has its \
                 own); `ratekeeper token list` shows those that count"
            }
        }
    }

    /// The number of tokens that count on this node alone.
    pub(crate) fn local_count(&self) -> usize {
        let files = self.own.iter().chain(&self.local);
        let counts = files.map(|tokens| tokens.list().map_or(0, |list| list.len()));
        counts.sum()
    }
}

impl FleetTokens {
    fn find(&self, hash: &[u8; 32]) -> Option<(Box<str>, Role)> {
        let state = self.status.fleet()?;
        let mut read = self.read.lock();
        let is_read = |known: &Arc<FleetRecord>| Arc::ptr_eq(known, &state);
        if !read.state.as_ref().is_some_and(is_read) {
            let tokens = state.tokens.iter().filter_map(AdminToken::of_fleet);
            let tokens = tokens.filter_map(|it| Some((from_hex(&it.sha256)?, it.name, it.role)));
            read.tokens = tokens.collect();
            read.state = Some(state);
        }
        let mut found = None;
        for (known, name, role) in &read.tokens {
            if is_equal(known, hash) {
                found = Some((name.clone(), *role));
            }
        }
        found
    }
}
