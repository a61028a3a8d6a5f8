//! The future of a decision under way.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use ratekeeper_store::across;

use crate::lease::Rest;
use crate::reply::Decided;
use crate::slots::Slots;

/// A decision under way in Redis. Dropped before it was sent, it is never sent; one that several
/// slots of a cluster decide is seen through.
#[derive(Debug)]
pub struct Ticket(Way);

#[derive(Debug)]
enum Way {
    /// Redis decides the whole.
    Asked(across::Ticket<Slots>),
    /// A part was taken from leases.
    Leased(Box<Rest>),
}

impl Ticket {
    pub(crate) const fn asked(ticket: across::Ticket<Slots>) -> Self {
        Self(Way::Asked(ticket))
    }

    pub(crate) fn leased(rest: Rest) -> Self {
        Self(Way::Leased(Box::new(rest)))
    }

    /// The ticket of a late answer. None is told of a request of which a part was taken from leases: that part is in its
    /// lease again.
    pub(crate) fn late(self) -> Option<Self> {
        match self.0 {
            Way::Asked(ticket) => ticket.late().map(Self::asked),
            Way::Leased(_) => None,
        }
    }
}

impl Future for Ticket {
    type Output = Decided;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decided> {
        match &mut self.0 {
            Way::Asked(ticket) => Pin::new(ticket).poll(cx),
            Way::Leased(rest) => Pin::new(rest).poll(cx),
        }
    }
}
