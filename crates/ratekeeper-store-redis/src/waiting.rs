//! Requests that wait for an answer, in the groups that they are decided in.

use std::time::Instant;

use ratekeeper_core::Timestamp;
use ratekeeper_store::StoreError;
use ratekeeper_stores::{Decided, ReplySender};

use crate::script::Group;
use crate::stall::Mark;

/// One request of a group.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) queued_at: Instant,
    deadline: Instant,
    /// The time that the process had stood still when the deadline was set.
    mark: Mark,
    reply: ReplySender,
}

impl Member {
    pub(crate) fn new(
        reply: ReplySender,
        queued_at: Instant,
        deadline: Instant,
        mark: Mark,
    ) -> Self {
        Self {
            queued_at,
            deadline,
            mark,
            reply,
        }
    }

    /// The end of its time, not counting what the process has stood still since.
    pub(crate) fn deadline(&self, stood: Mark) -> Instant {
        self.mark.moved(self.deadline, stood)
    }

    /// Sends the answer, unless one was sent before or the caller has gone.
    pub(crate) fn answer(&mut self, decided: Decided) {
        self.reply.answer(decided);
    }

    /// Returns true if no caller waits for it any more.
    pub(crate) fn is_answered(&self) -> bool {
        self.reply.is_answered()
    }
}

/// The callers waiting for the requests of a group, in the same order.
#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) list: Vec<Member>,
    /// The signature by which the group is found: see [`signature`](crate::queue::signature).
    pub(crate) signature: u64,
    /// The time of the first request, for servers that are told the time.
    pub(crate) now: Timestamp,
    /// The number of times a server has said that it did not carry this out.
    pub(crate) attempts: u16,
    /// Asks the server to answer although the counters' slot is still being imported.
    pub(crate) is_asking: bool,
}

impl Members {
    /// The one caller of a new group.
    pub(crate) fn one(member: Member, signature: u64, now: Timestamp) -> Self {
        Self {
            list: vec![member],
            signature,
            now,
            attempts: 0,
            is_asking: false,
        }
    }

    /// Fails every request still waiting, and returns how many there were.
    pub(crate) fn fail(&mut self, error: StoreError) -> usize {
        let waiting = self.list.iter_mut().filter(|it| !it.is_answered());
        waiting.fold(0, |failed, member| {
            member.answer(Err(error));
            failed + 1
        })
    }

    /// Fails the members of a group that was sent whose deadline has come by `now`. Returns how many, and the earliest
    /// deadline of the others.
    pub(crate) fn expire(&mut self, now: Instant, stood: Mark) -> (usize, Option<Instant>) {
        let (mut expired, mut next) = (0, None);
        for member in self.list.iter_mut().filter(|it| !it.is_answered()) {
            let deadline = member.deadline(stood);
            if deadline <= now {
                member.reply.time_out();
                expired += 1;
            } else {
                next = earliest(next, Some(deadline));
            }
        }
        (expired, next)
    }

    /// Fails the first members of a group that waits, up to one whose deadline has not come by `now`: those behind it go
    /// when it goes. Returns how many, and that deadline.
    ///
    /// A member that fails is told that nothing was carried out, and only the first ones can leave the group.
    pub(crate) fn expire_first(
        &mut self,
        now: Instant,
        stood: Mark,
        error: StoreError,
    ) -> (usize, Option<Instant>) {
        let mut expired = 0;
        for member in self.list.iter_mut().filter(|it| !it.is_answered()) {
            let deadline = member.deadline(stood);
            if deadline > now {
                return (expired, Some(deadline));
            }
            member.answer(Err(error));
            expired += 1;
        }
        (expired, None)
    }

    /// Says that nothing was carried out to whoever waits for a late answer.
    pub(crate) fn forgo_late(&mut self) {
        let members = self.list.iter_mut();
        members.for_each(|member| member.reply.forgo_late());
    }
}

/// A waiting group.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) group: Group,
    pub(crate) members: Members,
}

impl Waiting {
    /// Removes the oldest requests that no caller waits for any more, and returns how many. One among
    /// others stays: it is decided in vain.
    pub(crate) fn prune(&mut self) -> usize {
        let answered = self.members.list.iter().take_while(|it| it.is_answered());
        let answered = answered.count();
        if answered > 0 {
            self.members.list.drain(..answered);
            self.group.forget_first(answered);
        }
        answered
    }

    pub(crate) fn is_over(&self) -> bool {
        self.members.list.iter().all(Member::is_answered)
    }
}

pub(crate) fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
