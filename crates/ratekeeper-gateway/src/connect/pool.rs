//! The connections of one worker to its upstreams. They stay on one thread, so the lock is never
//! contended.

use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::client::conn::http1;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::sleep;

use super::ConnectError;
use super::shared::{Shared, Stream};
use crate::body::RequestBody;

/// The time for which an unused connection is kept. It is shorter than servers usually wait for
/// another request (5 s), so that none is chosen at the moment the server closes it.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(4);

/// The most unused connections kept for one address.
const KEPT_MAX: usize = 256;

/// The most HTTP/2 connections to one address. Requests beyond what these take at once share them.
const SHARED_MAX: usize = 16;

/// The id of an upstream and the index of one of its addresses.
type Key = (u64, usize);

/// The outcome of opening a connection.
type Outcome = Result<(), ConnectError>;

/// The kept connections.
#[derive(Clone, Default)]
pub(crate) struct Pool(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// Few, and looked up twice for each request: hashing would cost more.
    kept: BTreeMap<Key, Kept>,
    /// Connections being opened that may serve all requests.
    opening: HashMap<Key, watch::Receiver<Option<Outcome>>>,
    /// True if a task sweeps connections that were kept for long enough.
    is_swept: bool,
}

#[derive(Default)]
struct Kept {
    /// Connections in order of use, the most recent last.
    idle: VecDeque<(http1::SendRequest<RequestBody>, Instant)>,
    /// The first one that takes another request at once has it, so that the last ones become idle.
    shared: Vec<(Shared, Instant)>,
}

impl Kept {
    /// A share of an HTTP/2 connection with room for another request, or, if there can be no more connections, of the
    /// one with the fewest.
    fn share(&mut self) -> Option<Shared> {
        self.shared.retain(|(shared, _)| shared.sender.is_ready());
        let roomy = self.shared.iter().position(|(it, _)| it.has_room());
        let (shared, used) = match roomy {
            Some(index) => self.shared.get_mut(index)?,
            None if self.shared.len() < SHARED_MAX => return None,
            None => self.shared.iter_mut().min_by_key(|(it, _)| it.streams())?,
        };
        *used = Instant::now();
        Some(shared.clone())
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

/// A connection that a request may be sent on.
pub(crate) enum Connection {
    /// HTTP/1, for one request at a time.
    Http1(Http1Lease),
    /// HTTP/2, for many requests at once.
    Http2(Shared),
}

/// The part that an answer has in its connection until it has been read.
#[derive(Debug)]
pub(crate) enum Lease {
    Http1(Http1Lease),
    Http2 {
        /// Counted until dropped.
        _stream: Stream,
    },
}

/// An HTTP/1 connection that is in use, and is given back once its answer has been read. If dropped
/// instead, it is closed.
pub(crate) struct Http1Lease {
    pub(crate) sender: http1::SendRequest<RequestBody>,
    key: Key,
    pool: Pool,
}

impl fmt::Debug for Http1Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http1Lease").finish_non_exhaustive()
    }
}

/// The right to open a connection that others wait for. If dropped, the next one opens it.
pub(crate) struct FirstToOpen {
    outcome: watch::Sender<Option<Outcome>>,
    key: Key,
    pool: Pool,
}

impl FirstToOpen {
    /// Tells the outcome to those who wait.
    pub(crate) fn tell(self, outcome: Outcome) {
        self.outcome.send_replace(Some(outcome));
    }
}

impl Drop for FirstToOpen {
    fn drop(&mut self) {
        self.pool.0.lock().opening.remove(&self.key);
    }
}

/// A wait for a connection that another request opens.
pub(crate) struct OthersOpen(watch::Receiver<Option<Outcome>>);

impl OthersOpen {
    /// The outcome; None if the request that was opening it has gone away.
    pub(crate) async fn outcome(mut self) -> Option<Outcome> {
        let told = self.0.wait_for(Option::is_some).await.ok()?;
        told.clone()
    }
}

impl Pool {
    /// Returns the right to open a connection, or the wait for one that is already being opened.
    pub(crate) fn first_to_open(&self, key: Key) -> Result<FirstToOpen, OthersOpen> {
        match self.0.lock().opening.entry(key) {
            Entry::Occupied(others) => Err(OthersOpen(others.get().clone())),
            Entry::Vacant(entry) => {
                let (outcome, waited_for) = watch::channel(None);
                entry.insert(waited_for);
                let pool = self.clone();
                Ok(FirstToOpen { outcome, key, pool })
            }
        }
    }

    /// Takes a connection that was used before, is still open and has room for a request.
    pub(crate) fn take(&self, key: Key) -> Option<Connection> {
        let mut inner = self.0.lock();
        let kept = inner.kept.get_mut(&key)?;
        if let Some(shared) = kept.share() {
            return Some(Connection::Http2(shared));
        }
        let now = Instant::now();
        while let Some((sender, used)) = kept.idle.pop_back() {
            if sender.is_ready() && now.duration_since(used) < KEPT_FOR {
                let pool = self.clone();
                return Some(Connection::Http1(Http1Lease { sender, key, pool }));
            }
        }
        None
    }

    /// Leases a new HTTP/1 connection at once.
    pub(crate) fn lease(&self, key: Key, sender: http1::SendRequest<RequestBody>) -> Http1Lease {
        let pool = self.clone();
        Http1Lease { sender, key, pool }
    }

    /// Takes a share of an HTTP/2 connection that is open and has room for a request.
    pub(crate) fn take_shared(&self, key: Key) -> Option<Connection> {
        let shared = self.0.lock().kept.get_mut(&key)?.share()?;
        Some(Connection::Http2(shared))
    }

    /// Keeps a new HTTP/2 connection for all requests.
    pub(crate) fn share(&self, key: Key, shared: Shared) {
        let mut inner = self.0.lock();
        let all = &mut inner.kept.entry(key).or_default().shared;
        all.push((shared, Instant::now()));
        self.see_to_sweeping(&mut inner);
    }

    /// Has no more requests go over a connection.
    pub(crate) fn forget(&self, key: Key, shared: &Shared) {
        if let Some(kept) = self.0.lock().kept.get_mut(&key) {
            kept.shared.retain(|(other, _)| !other.is(shared));
        }
    }

    fn keep(&self, key: Key, sender: http1::SendRequest<RequestBody>) {
        let mut inner = self.0.lock();
        let idle = &mut inner.kept.entry(key).or_default().idle;
        if idle.len() >= KEPT_MAX {
            idle.pop_front();
        }
        idle.push_back((sender, Instant::now()));
        self.see_to_sweeping(&mut inner);
    }

    fn see_to_sweeping(&self, inner: &mut Inner) {
        if std::mem::replace(&mut inner.is_swept, true) {
            return;
        }
        let pool = self.clone();
        tokio::spawn(async move {
            loop {
                sleep(KEPT_FOR).await;
                if !pool.sweep() {
                    return;
                }
            }
        });
    }

    /// Closes connections that were kept for long enough. Returns true if any are left.
    fn sweep(&self) -> bool {
        let now = Instant::now();
        let is_kept = |used: Instant| now.duration_since(used) < KEPT_FOR;
        let mut inner = self.0.lock();
        inner.kept.retain(|_, kept| {
            while let Some((_, used)) = kept.idle.front()
                && !is_kept(*used)
            {
                kept.idle.pop_front();
            }
            // Requests under way keep the connection open themselves.
            kept.shared
                .retain(|(shared, used)| shared.sender.is_ready() && is_kept(*used));
            !kept.idle.is_empty() || !kept.shared.is_empty()
        });
        inner.is_swept = !inner.kept.is_empty();
        inner.is_swept
    }
}

impl Lease {
    /// Makes room on the connection for the next request, if it is to stay open.
    pub(crate) fn give_back(self) {
        if let Self::Http1(lease) = self {
            lease.give_back();
        }
    }
}

impl Http1Lease {
    fn give_back(self) {
        let Self {
            mut sender,
            key,
            pool,
        } = self;
        if sender.is_ready() {
            pool.keep(key, sender);
        } else if !sender.is_closed() {
            // The connection's task has to notice first that the answer is over.
            tokio::spawn(async move {
                if sender.ready().await.is_ok() {
                    pool.keep(key, sender);
                }
            });
        }
    }
}
