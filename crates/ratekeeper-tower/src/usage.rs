//! Reads what a request used out of its response, and pays its budgets.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, HeaderValue};
use http::{HeaderMap, Request, StatusCode};
use http_body::Frame;
use parking_lot::Mutex;
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

/// Counts the bytes of a request's body while it comes. A response that does not tell its usage is estimated by them, where
/// no `Content-Length` tells.
///
/// A service outside the layer that wraps the body of its requests puts one among their extensions, and keeps a clone to add
/// what comes. Without one, a body of unknown length counts as an empty one.
#[derive(Clone, Debug, Default)]
pub struct RequestBytes(Arc<AtomicU64>);

impl RequestBytes {
    /// Adds the length of a piece.
    pub fn add(&self, bytes: usize) {
        // Relaxed: it is the only thing that is told.
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
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

/// A share in reading what a request used: among the extensions of every request whose usage is read, until it reaches the
/// inner service.
///
/// A service that finishes a request although its client is gone keeps a clone, and tells it of the response that nobody else
/// reads any more. The request pays when it is told that the response [is whole](Self::whole), or for what has come when the
/// last share is dropped.
#[derive(Clone, Debug)]
pub struct UsageReading(Arc<Mutex<Option<Reading>>>);

impl UsageReading {
    /// Reads the head of the response.
    pub fn head(&self, status: StatusCode, headers: &HeaderMap) {
        if let Some(reading) = &mut *self.0.lock() {
            reading.head(status, headers);
        }
    }

    /// Reads a piece of the response.
    #[inline]
    pub fn frame(&self, frame: &Frame<Bytes>) {
        if let Some(reading) = &mut *self.0.lock() {
            reading.frame(frame);
        }
    }

    /// Pays for a response that has come whole.
    pub fn whole(&self) {
        self.end(Some(End::Whole));
    }

    /// Pays for a response that failed, or that there is none of.
    pub(crate) fn failed(&self) {
        self.end(Some(End::Failed));
    }

    /// Pays nothing: what the request took is given back by other means.
    pub(crate) fn undone(&self) {
        self.end(None);
    }

    fn end(&self, end: Option<End>) {
        // Paying asks the limiter: not under the lock.
        let reading = self.0.lock().take();
        if let Some(mut reading) = reading {
            match end {
                Some(end) => reading.end(end),
                None => reading.payment = None,
            }
        }
    }
}

/// Reads the usage of one request. Dropped, it pays for what has come by then.
#[derive(Debug)]
struct Reading {
    scanner: UsageScanner,
    /// None once it is paid.
    payment: Option<Payment>,
    slot: Option<SpentSlot>,
    /// The bytes of the request's body that have come; None if nobody counts them.
    sent: Option<RequestBytes>,
    counts: Arc<UsageCounts>,
    /// The length of the body that the head tells.
    length: Option<u64>,
    received: u64,
}

impl UsageReading {
    /// Begins to read the usage of `request`, and asks for a response that can be read.
    pub(crate) fn begin<B>(
        payment: Payment,
        request: &mut Request<B>,
        counts: &Arc<UsageCounts>,
    ) -> Option<Self> {
        let RequestUsage(rules) = request.extensions_mut().remove::<RequestUsage>()?;
        if rules.reads_bodies() {
            let identity = HeaderValue::from_static("identity");
            request.headers_mut().insert(ACCEPT_ENCODING, identity);
        }
        let sent = length(request.headers()).unwrap_or(0);
        let reading = Reading {
            scanner: UsageScanner::new(rules, request.method(), sent),
            payment: Some(payment),
            slot: request.extensions().get().cloned(),
            sent: request.extensions().get().cloned(),
            counts: Arc::clone(counts),
            length: None,
            received: 0,
        };
        let reading = Self(Arc::new(Mutex::new(Some(reading))));
        request.extensions_mut().insert(reading.clone());
        Some(reading)
    }
}

impl Reading {
    fn head(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.length = length(headers);
        self.scanner.head(status, headers);
    }

    #[inline]
    fn frame(&mut self, frame: &Frame<Bytes>) {
        if let Some(data) = frame.data_ref() {
            self.received = self.received.saturating_add(data.len() as u64);
            self.scanner.feed(data);
        } else if let Some(trailers) = frame.trailers_ref() {
            self.scanner.fields(trailers);
        }
    }

    fn end(&mut self, end: End) {
        let Some(payment) = self.payment.take() else {
            return;
        };
        if let Some(sent) = &self.sent {
            self.scanner.sent(sent.get());
        }
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
