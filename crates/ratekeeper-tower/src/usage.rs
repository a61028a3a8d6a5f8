//! Reads what a request used out of its response, and pays its budgets.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, HeaderValue};
use http::{HeaderMap, Request, StatusCode};
use http_body::Frame;
use ratekeeper_http::{Spent, SpentFrom, UsageScanner};
use ratekeeper_rules::UsageRules;

/// Pays the budgets of a request, by the [enforcer](crate::Enforcer) that let it pass. Dropped unpaid, it costs what it
/// reserved.
pub struct Payment(Box<dyn FnOnce(u64) + Send + Sync>);

impl Payment {
    /// A payment that calls `pay` with the hits that the request used.
    pub fn new(pay: impl FnOnce(u64) + Send + Sync + 'static) -> Self {
        Self(Box::new(pay))
    }

    /// Pays so many hits.
    pub fn pay(self, hits: u64) {
        (self.0)(hits);
    }
}

impl fmt::Debug for Payment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Payment(..)")
    }
}

/// A place in a request's extensions into which the layer writes what the request used, once its response has ended.
///
/// A service outside the layer that wants to log it puts an empty slot there and keeps a clone. It stays empty if the
/// rules read no usage, and for a request that does not pass.
#[derive(Clone, Debug, Default)]
pub struct SpentSlot(Arc<OnceLock<Spent>>);

impl SpentSlot {
    /// The hits and tokens that the request used.
    #[must_use]
    pub fn get(&self) -> Option<&Spent> {
        self.0.get()
    }
}

/// Responses by what told their usage, and the hits charged for them.
#[derive(Debug, Default)]
pub(crate) struct UsageCounts {
    responses: [AtomicU64; SpentFrom::ALL.len()],
    hits: [AtomicU64; SpentFrom::ALL.len()],
}

/// The counts of responses whose usage was read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct UsageTotals {
    /// Responses, in the order of [`SpentFrom::ALL`].
    pub responses: [u64; SpentFrom::ALL.len()],
    /// The hits charged for them.
    pub hits: [u64; SpentFrom::ALL.len()],
}

impl UsageCounts {
    fn add(&self, spent: &Spent) {
        // Relaxed: the counts are independent.
        self.responses[spent.from as usize].fetch_add(1, Ordering::Relaxed);
        self.hits[spent.from as usize].fetch_add(spent.hits, Ordering::Relaxed);
    }

    pub(crate) fn totals(&self) -> UsageTotals {
        let load = |counts: &[AtomicU64; SpentFrom::ALL.len()]| {
            std::array::from_fn(|index| counts[index].load(Ordering::Relaxed))
        };
        UsageTotals {
            responses: load(&self.responses),
            hits: load(&self.hits),
        }
    }
}

/// The rules by which the usage of one request is read, among its extensions until it passes.
///
/// A service outside the layer puts them there if they are others than those of the layer and of the request's domain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestUsage(pub Arc<UsageRules>);

/// The end of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// All of it was sent.
    Whole,
    /// It failed.
    Failed,
    /// The rest was not wanted.
    Left,
}

/// Reads the usage of one request. Dropped, it pays for what has come by then.
#[derive(Debug)]
pub(crate) struct Reading {
    scanner: UsageScanner,
    /// None once it is paid.
    payment: Option<Payment>,
    slot: Option<SpentSlot>,
    counts: Arc<UsageCounts>,
    /// The length of the body that the head tells.
    length: Option<u64>,
    received: u64,
}

impl Reading {
    /// Begins to read the usage of `request`, and asks for a response that can be read.
    pub(crate) fn begin<B>(
        payment: Payment,
        request: &mut Request<B>,
        counts: &Arc<UsageCounts>,
    ) -> Option<Box<Self>> {
        let RequestUsage(rules) = request.extensions_mut().remove::<RequestUsage>()?;
        if rules.reads_bodies() {
            let identity = HeaderValue::from_static("identity");
            request.headers_mut().insert(ACCEPT_ENCODING, identity);
        }
        let sent = length(request.headers()).unwrap_or(0);
        Some(Box::new(Self {
            scanner: UsageScanner::new(rules, request.method(), sent),
            payment: Some(payment),
            slot: request.extensions().get().cloned(),
            counts: Arc::clone(counts),
            length: None,
            received: 0,
        }))
    }

    /// Reads the head of the response.
    pub(crate) fn head(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.length = length(headers);
        self.scanner.head(status, headers);
    }

    /// Reads a piece of the response.
    #[inline]
    pub(crate) fn frame(&mut self, frame: &Frame<Bytes>) {
        if let Some(data) = frame.data_ref() {
            self.received = self.received.saturating_add(data.len() as u64);
            self.scanner.feed(data);
        } else if let Some(trailers) = frame.trailers_ref() {
            self.scanner.fields(trailers);
        }
    }

    /// Pays for a response that was sent whole.
    pub(crate) fn whole(mut self: Box<Self>) {
        self.end(End::Whole);
    }

    /// Pays for a response that failed, or that there is none of.
    pub(crate) fn failed(mut self: Box<Self>) {
        self.end(End::Failed);
    }

    /// Pays nothing: what the request took is given back by other means.
    pub(crate) fn undone(mut self: Box<Self>) {
        self.payment = None;
    }

    fn end(&mut self, end: End) {
        let Some(payment) = self.payment.take() else {
            return;
        };
        let spent = match (end, self.received) {
            // It failed before its first byte.
            (End::Failed, 0) => self.scanner.told_only(),
            _ => self.scanner.spent(end == End::Whole),
        };
        self.counts.add(&spent);
        payment.pay(spent.hits);
        if let Some(slot) = &self.slot {
            // There is one response.
            let _ = slot.0.set(spent);
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        // A server that knows the length of a body does not ask for its end.
        match self.length == Some(self.received) && self.received > 0 {
            true => self.end(End::Whole),
            false => self.end(End::Left),
        }
    }
}

fn length(headers: &HeaderMap) -> Option<u64> {
    let length = headers.get(CONTENT_LENGTH)?;
    length.to_str().ok()?.trim().parse().ok()
}
