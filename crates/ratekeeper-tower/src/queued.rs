//! The state of a request that waits for its turn.

use std::sync::Arc;

use ratekeeper_http::answer::{Bound, HeaderLines, RequestStatus};
use ratekeeper_limiter::{DeferredPermits, Limiter, Receipt};
use ratekeeper_store::Store;

use crate::embedded::{Scopes, undo};
use crate::permit::{Permit, send};
use crate::{Admission, AdmissionVerdict, EnforceOptions, Payment};

/// The hits that a waiting request took from its rate limits: given back if it is dropped before
/// the request went on.
#[derive(Debug)]
pub struct QueuedRequest<S: Store> {
    limiter: Arc<Limiter<S>>,
    /// None once the request went on.
    receipt: Option<Receipt>,
    report: LimitReport,
    /// Its concurrency limits, which are decided at its turn.
    permits: Option<(DeferredPermits, Scopes, EnforceOptions)>,
    /// True if it may still be shed once it went on.
    pub(crate) may_be_shed: bool,
    /// Pays its budgets.
    pub(crate) payment: Option<Payment>,
}

impl<S: Store> QueuedRequest<S> {
    pub(crate) const fn new(
        limiter: Arc<Limiter<S>>,
        receipt: Receipt,
        report: LimitReport,
        permits: Option<(DeferredPermits, Scopes, EnforceOptions)>,
    ) -> Self {
        Self {
            limiter,
            receipt: Some(receipt),
            report,
            permits,
            may_be_shed: false,
            payment: None,
        }
    }

    pub(crate) const fn take_permits(
        &mut self,
    ) -> Option<(DeferredPermits, Scopes, EnforceOptions)> {
        self.permits.take()
    }

    /// Reports the permits to the client instead, if fewer of those are left.
    pub(crate) fn replace_report(&mut self, report: LimitReport) {
        let fewer = match (report.remaining, self.report.remaining) {
            (Some(permits), Some(rates)) => permits < rates,
            (permits, None) => permits.is_some(),
            (None, Some(_)) => false,
        };
        let degraded = report.degraded || self.report.degraded;
        if fewer {
            self.report = report;
        }
        self.report.degraded = degraded;
    }

    /// Lets the request go on and keep its hits.
    pub(crate) fn pass<Q>(mut self, permit: Option<Permit<S>>) -> Admission<Permit<S>, Q> {
        let receipt = self.receipt.take().filter(|_| self.may_be_shed);
        Admission {
            undo: receipt.map(|receipt| undo(&self.limiter, receipt)),
            payment: self.payment.take(),
            ..std::mem::take(&mut self.report).admission(AdmissionVerdict::Pass(permit))
        }
    }
}

impl<S: Store> Drop for QueuedRequest<S> {
    fn drop(&mut self) {
        if let Some(receipt) = self.receipt.take() {
            send(receipt.give_back(&self.limiter));
        }
    }
}

/// The report to the client on its limits.
#[derive(Debug, Default)]
pub(crate) struct LimitReport {
    headers: HeaderLines,
    degraded: bool,
    /// The remaining hits of the most restrictive limit.
    remaining: Option<u64>,
}

impl LimitReport {
    pub(crate) fn new(limits: &RequestStatus<'_>, terms: EnforceOptions) -> Self {
        Self {
            headers: terms.headers.lines(limits),
            degraded: limits.degraded,
            remaining: limits.binding.as_ref().map(Bound::remaining),
        }
    }

    pub(crate) fn admission<P, Q>(self, verdict: AdmissionVerdict<P, Q>) -> Admission<P, Q> {
        Admission {
            headers: self.headers,
            degraded: self.degraded,
            verdict,
            undo: None,
            payment: None,
        }
    }
}
