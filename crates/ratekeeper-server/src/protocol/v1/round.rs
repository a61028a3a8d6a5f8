//! Checks that are decided together, at one reading of the clock.

use std::time::Instant;

use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{Check, Pending, Ruling};
use ratekeeper_store::Answer;
use ratekeeper_stores::StoresTicket;
use ratekeeper_trace::{RequestSpan, TracedCall};

use crate::app::App;
use crate::logs::denials::CheckOrigin;

/// A check that is decided already, or waits for its store.
pub(super) type Asked<'c, R> = Answer<Pending<'c, StoresTicket>, R>;

/// The checks of one message, timed and traced as one. All are asked before any is waited for.
#[derive(Debug)]
pub(super) struct Round<'a> {
    app: &'a App,
    origin: CheckOrigin<'a>,
    span: Option<RequestSpan>,
    start: Instant,
    /// The time as of which all are decided.
    pub(super) now: Timestamp,
}

impl<'a> Round<'a> {
    pub(super) fn begin(app: &'a App, origin: CheckOrigin<'a>) -> Self {
        Self {
            app,
            origin,
            start: Instant::now(),
            span: app.batch_span(origin),
            now: app.limiter.clock().now(),
        }
    }

    /// Asks for one; `read` turns an immediate ruling into an answer in place.
    #[inline]
    pub(super) fn ask<'c, R>(
        &self,
        check: &mut Check<'c>,
        read: impl FnOnce(&Ruling<'_>) -> R,
    ) -> Asked<'c, R> {
        let call = TracedCall::check(self.origin.protocol);
        check.observer = self.span.as_ref().map(|span| span.check(call));
        self.app.limiter.ask(check, self.now, |ruling| {
            self.app.record_ruling(ruling, self.origin);
            read(ruling)
        })
    }

    /// Waits for those that were asked, each beside its request; returns the answers in their order.
    pub(super) async fn end<'c, T, R>(
        self,
        asked: impl ExactSizeIterator<Item = (T, Asked<'c, R>)>,
        mut read: impl FnMut(T, &Ruling<'_>) -> R,
    ) -> Vec<R> {
        let mut answers = Vec::with_capacity(asked.len());
        for (request, asked) in asked {
            answers.push(match asked {
                Answer::Decided(answer) => answer,
                Answer::Pending(pending) => {
                    let read = |ruling: &Ruling<'_>| {
                        self.app.record_ruling(ruling, self.origin);
                        read(request, ruling)
                    };
                    self.app.limiter.finish(pending, read).await
                }
            });
        }
        self.app.durations.add(self.start.elapsed());
        answers
    }
}
