//! Hits that were admitted without the store, for the store to count afterwards.

use ratekeeper_core::Micros;

use crate::{HashKey, Step};

/// Hits on one counter that a node admitted while the store did not answer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Post {
    /// 128 random bits. The store takes a post once, however often it is sent; it may be repeated
    /// for [`Post::REPEATED`] after it was first sent.
    pub id: u128,
    /// The counter, its limit and the hits, at least 1. They are charged as far as there is room,
    /// and whatever the request's other steps were.
    pub step: Step,
    /// The time since the latest of the hits was admitted. Those that no longer count are not
    /// charged. A window counts them when they were admitted; the default sliding window, buckets
    /// and queues count them when they are posted.
    pub age: Micros,
    /// The secret that the counter was named by, as in [`Request::named_by`](crate::Request::named_by).
    pub named_by: Option<HashKey>,
}

impl Post {
    /// The time for which a post may be repeated.
    pub const REPEATED: Micros = Micros::from_secs(60);
}
