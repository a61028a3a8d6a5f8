//! What a fault is, and where it happens.

use std::time::Duration;

/// The servers that nodes ask.
pub(super) trait Scene: Sized {
    /// Servers with these options, which a fault befalls for so long, or until they have dealt with it.
    fn new(options: &[&str], lasting: Duration) -> Self;

    /// Where nodes ask.
    fn url(&self) -> String;

    /// How many keys a part that is lost has taken with it: all others are to be decided as ever.
    fn lost(&self) -> Option<u64> {
        None
    }
}

/// What a fault makes of a limit, besides what passes by the nodes' own count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counters {
    /// The server keeps them.
    Kept,
    /// They start afresh, once.
    Lost,
}

/// A way to fail.
pub(super) struct Fault<S> {
    pub(super) name: &'static str,
    /// What the server is started with.
    pub(super) options: &'static [&'static str],
    pub(super) counters: Counters,
    /// Begins it, and returns when it has lasted long enough.
    pub(super) strike: fn(&mut S),
    /// Ends it.
    pub(super) heal: fn(&mut S),
    /// Whether it needs little time, and is lived through in the short form too.
    pub(super) is_brief: bool,
}

impl<S> Fault<S> {
    /// What may pass of `limit`: by the server, and by each of the nodes that ever decided alone.
    pub(super) fn admits_at_most(&self, limit: u64, alone: u64) -> u64 {
        let shared = match self.counters {
            Counters::Kept => 1,
            Counters::Lost => 2,
        };
        (shared + alone) * limit
    }
}
