//! Sampling, and the queue of spans that wait for the exporter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use ratekeeper_limiter::CheckObserver;
use tokio::sync::mpsc;

use crate::check::CheckSpan;
use crate::context::TraceContext;
use crate::request::RequestSpan;
use crate::span::{SpanKind, TraceSpan, TracedCall};

/// The most spans that wait for the exporter: about 4 MiB.
const QUEUE_MAX: usize = 8_192;

/// Decides which requests are traced, and takes their spans. Clones share the queue.
#[derive(Clone, Debug)]
pub struct Tracer {
    /// A request without a context is traced if a random number is below this.
    threshold: u64,
    spans: mpsc::Sender<TraceSpan>,
    counts: Arc<SpanCounts>,
}

/// Spans by what became of them.
#[derive(Debug, Default)]
pub struct SpanCounts {
    exported: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

impl SpanCounts {
    /// Spans that a collector has taken.
    #[must_use]
    pub fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// Spans that were dropped, because the queue was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Spans that no collector has taken: it was away, or refused them.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    #[cfg(feature = "otlp")]
    pub(crate) fn count_exported(&self, spans: usize) {
        self.exported.fetch_add(spans as u64, Ordering::Relaxed);
    }

    #[cfg(feature = "otlp")]
    pub(crate) fn count_failed(&self, spans: usize) {
        self.failed.fetch_add(spans as u64, Ordering::Relaxed);
    }
}

/// The spans that wait for the exporter.
#[derive(Debug)]
pub struct SpanQueue {
    pub(crate) spans: mpsc::Receiver<TraceSpan>,
    #[cfg_attr(
        not(feature = "otlp"),
        expect(dead_code, reason = "the exporter counts")
    )]
    pub(crate) counts: Arc<SpanCounts>,
}

impl SpanQueue {
    /// Takes all spans that wait.
    pub fn take(&mut self) -> Vec<TraceSpan> {
        std::iter::from_fn(|| self.spans.try_recv().ok()).collect()
    }
}

/// The place of a new span in its trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SpanPlace {
    pub(crate) trace_id: u128,
    pub(crate) parent: Option<u64>,
    pub(crate) parent_is_remote: bool,
}

impl Tracer {
    /// A tracer of a share of the requests that come without a context, from 0 to 1, and its queue.
    #[must_use]
    pub fn new(sample_ratio: f64) -> (Self, SpanQueue) {
        let (spans, queue) = mpsc::channel(QUEUE_MAX);
        let counts = Arc::new(SpanCounts::default());
        let tracer = Self {
            threshold: threshold(sample_ratio),
            spans,
            counts: Arc::clone(&counts),
        };
        let queue = SpanQueue {
            spans: queue,
            counts,
        };
        (tracer, queue)
    }

    /// Spans by what became of them.
    #[must_use]
    pub fn counts(&self) -> &SpanCounts {
        &self.counts
    }

    /// A span for a request with these headers; [`None`] if it is not traced.
    #[must_use]
    pub fn request(&self, headers: &HeaderMap, name: &'static str) -> Option<RequestSpan> {
        let place = self.sample(Some(headers))?;
        Some(RequestSpan::begin(self.clone(), place, name))
    }

    /// A span for a batch of checks that a call with these headers or metadata asks for, likewise.
    #[must_use]
    pub fn batch(&self, headers: Option<&HeaderMap>) -> Option<RequestSpan> {
        let place = self.sample(headers)?;
        Some(RequestSpan::begin(self.clone(), place, "checks"))
    }

    /// An observer for a check that is asked for by `call`, with these headers or metadata; [`None`] if it is not
    /// traced.
    #[inline]
    #[must_use]
    pub fn check(
        &self,
        headers: Option<&HeaderMap>,
        call: TracedCall,
    ) -> Option<Arc<dyn CheckObserver>> {
        let place = self.sample(headers)?;
        Some(self.observer(place, SpanKind::Server, call))
    }

    #[cold] // Few requests are traced.
    pub(crate) fn observer(
        &self,
        place: SpanPlace,
        kind: SpanKind,
        call: TracedCall,
    ) -> Arc<dyn CheckObserver> {
        Arc::new(CheckSpan::begin(self.clone(), place, kind, call))
    }

    /// The decision, before there is any span: that of the caller if it brought a context, else by chance. Nearly all
    /// requests are not traced, and are done after a random number and a look for the flag in a context.
    #[inline]
    fn sample(&self, headers: Option<&HeaderMap>) -> Option<SpanPlace> {
        let is_drawn = fastrand::u64(..) < self.threshold;
        if !is_drawn && !headers.is_some_and(TraceContext::may_be_sampled) {
            return None;
        }
        place(headers, is_drawn)
    }

    /// Queues a span, or drops and counts it if there is no room.
    pub(crate) fn record(&self, span: TraceSpan) {
        if self.spans.try_send(span).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The place of a request that may be traced; `is_drawn` is the decision if it brings no context.
#[cold]
fn place(headers: Option<&HeaderMap>, is_drawn: bool) -> Option<SpanPlace> {
    if let Some(context) = headers.and_then(TraceContext::of) {
        return context.is_sampled.then_some(SpanPlace {
            trace_id: context.trace_id,
            parent: Some(context.span_id),
            parent_is_remote: true,
        });
    }
    is_drawn.then(|| SpanPlace {
        trace_id: fastrand::u128(1..),
        parent: None,
        parent_is_remote: false,
    })
}

/// A new id of a span.
pub(crate) fn span_id() -> u64 {
    fastrand::u64(1..)
}

/// The share `ratio` of all 64-bit numbers. 1 is all but the last of them.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of all numbers, which saturates at both ends; a few of them more or less do not count"
)]
fn threshold(ratio: f64) -> u64 {
    (ratio * u64::MAX as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::TRACEPARENT;
    use http::HeaderValue;

    fn headers(context: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(&TRACEPARENT, HeaderValue::from_static(context));
        headers
    }

    #[test]
    fn the_callers_decision_counts() {
        let sampled = headers("00-000000000000000000000000000000ab-00000000000000cd-01");
        let place = Tracer::new(0.0).0.sample(Some(&sampled));
        let expected = SpanPlace {
            trace_id: 0xab,
            parent: Some(0xcd),
            parent_is_remote: true,
        };
        assert_eq!(place, Some(expected));
        let unsampled = headers("00-000000000000000000000000000000ab-00000000000000cd-00");
        assert_eq!(Tracer::new(1.0).0.sample(Some(&unsampled)), None);
    }

    #[test]
    fn without_a_context_chance_decides() {
        let (none, all, half) = (Tracer::new(0.0).0, Tracer::new(1.0).0, Tracer::new(0.5).0);
        let malformed = headers("00-nonsense");
        for _ in 0..1_000 {
            assert_eq!(none.sample(None), None);
            assert!(all.sample(Some(&malformed)).is_some());
        }
        let sampled = (0..10_000).filter(|_| half.sample(None).is_some()).count();
        assert!((4_500..5_500).contains(&sampled), "{sampled}");
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let (tracer, mut queue) = Tracer::new(1.0);
        for _ in 0..QUEUE_MAX + 3 {
            drop(tracer.request(&HeaderMap::new(), "GET"));
        }
        assert_eq!(tracer.counts().dropped(), 3);
        assert_eq!(queue.take().len(), QUEUE_MAX);
    }
}
