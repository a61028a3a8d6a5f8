//! The span of a request that has other spans inside: a batch of checks, or a request through the gateway.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use ratekeeper_limiter::CheckObserver;

use crate::context::{TRACEPARENT, TRACESTATE, TraceContext};
use crate::span::{SpanClock, SpanKind, SpanValue, TraceSpan, TracedCall};
use crate::tracer::{SpanPlace, Tracer, span_id};

/// The span of a request. It ends, and is recorded, when it is dropped.
#[derive(Debug)]
pub struct RequestSpan {
    tracer: Tracer,
    place: SpanPlace,
    span_id: u64,
    /// The span of the upstream's part, which the upstream is told before there is one.
    upstream_id: u64,
    name: &'static str,
    clock: SpanClock,
    facts: Mutex<Facts>,
}

#[derive(Debug, Default)]
struct Facts {
    attributes: Vec<(&'static str, SpanValue)>,
    is_error: bool,
}

impl RequestSpan {
    pub(crate) fn begin(tracer: Tracer, place: SpanPlace, name: &'static str) -> Self {
        Self {
            tracer,
            place,
            span_id: span_id(),
            upstream_id: span_id(),
            name,
            clock: SpanClock::start(),
            facts: Mutex::default(),
        }
    }

    /// The context of what belongs to the span.
    #[must_use]
    pub fn context(&self) -> TraceContext {
        TraceContext {
            trace_id: self.place.trace_id,
            span_id: self.span_id,
            is_sampled: true,
        }
    }

    /// Puts the context of the [upstream's part](Self::upstream) into the headers that the upstream gets. What other
    /// tracing systems have added stays, unless their trace is not this one.
    pub fn pass_on(&self, headers: &mut HeaderMap) {
        let context = TraceContext {
            span_id: self.upstream_id,
            ..self.context()
        };
        headers.insert(&TRACEPARENT, context.header_value());
        if self.place.parent.is_none() {
            headers.remove(&TRACESTATE);
        }
    }

    /// Adds a fact.
    pub fn record(&self, name: &'static str, value: SpanValue) {
        self.facts.lock().attributes.push((name, value));
    }

    /// Adds the status that answers the request: 5xx is an error.
    pub fn record_status(&self, status: StatusCode) {
        let mut facts = self.facts.lock();
        let number = SpanValue::Number(status.as_u16().into());
        facts.attributes.push(("http.response.status_code", number));
        facts.is_error = status.is_server_error();
    }

    /// An observer for a check that is a part of the request.
    #[must_use]
    pub fn check(&self, call: TracedCall) -> Arc<dyn CheckObserver> {
        let place = SpanPlace {
            trace_id: self.place.trace_id,
            parent: Some(self.span_id),
            parent_is_remote: false,
        };
        self.tracer.observer(place, SpanKind::Internal, call)
    }

    /// Records the upstream's part of the request, which began at `begun` and has ended; `status` is that of its answer,
    /// if one came.
    pub fn upstream(&self, name: &str, begun: Instant, status: Option<StatusCode>) {
        let mut attributes = vec![("ratekeeper.upstream", SpanValue::text(name))];
        let number = status.map(|status| SpanValue::Number(status.as_u16().into()));
        attributes.extend(number.map(|number| ("http.response.status_code", number)));
        self.tracer.record(TraceSpan {
            trace_id: self.place.trace_id,
            span_id: self.upstream_id,
            parent: Some(self.span_id),
            parent_is_remote: false,
            kind: SpanKind::Client,
            name: "upstream",
            start: self.clock.at_instant(begun),
            end: self.clock.at(self.clock.elapsed()),
            is_error: status.is_none_or(|status| status.is_server_error()),
            attributes,
        });
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        let Facts {
            attributes,
            is_error,
        } = std::mem::take(self.facts.get_mut());
        self.tracer.record(TraceSpan {
            trace_id: self.place.trace_id,
            span_id: self.span_id,
            parent: self.place.parent,
            parent_is_remote: self.place.parent_is_remote,
            kind: SpanKind::Server,
            name: self.name,
            start: self.clock.at(Duration::ZERO),
            end: self.clock.at(self.clock.elapsed()),
            is_error,
            attributes,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn an_upstream_belongs_to_the_span_that_waits_for_it() {
        let mut headers = HeaderMap::new();
        let caller = "00-000000000000000000000000000000ab-00000000000000cd-01";
        headers.insert(&TRACEPARENT, HeaderValue::from_static(caller));
        headers.insert(&TRACESTATE, HeaderValue::from_static("other=1"));
        let (tracer, mut queue) = Tracer::new(0.0);
        let span = tracer
            .request(&headers, "GET")
            .expect("the caller wants it");
        span.pass_on(&mut headers);
        assert_eq!(
            headers.get(&TRACESTATE).map(HeaderValue::as_bytes),
            Some(&b"other=1"[..])
        );
        let told = TraceContext::of(&headers).expect("it is told");
        span.upstream("shop", Instant::now(), Some(StatusCode::OK));
        drop(span);
        let [upstream, request] = &queue.take()[..] else {
            panic!("two spans")
        };
        assert_eq!((told.trace_id, told.span_id), (0xab, upstream.span_id));
        assert_eq!(upstream.parent, Some(request.span_id));
        assert_eq!(request.parent, Some(0xcd));
        assert!(request.parent_is_remote && !upstream.parent_is_remote);
    }

    #[test]
    fn a_new_trace_does_not_keep_the_state_of_another() {
        let mut headers = HeaderMap::new();
        headers.insert(&TRACEPARENT, HeaderValue::from_static("nonsense"));
        headers.insert(&TRACESTATE, HeaderValue::from_static("other=1"));
        let span = Tracer::new(1.0).0.request(&headers, "GET");
        let span = span.expect("all are traced");
        span.pass_on(&mut headers);
        assert!(TraceContext::of(&headers).is_some());
        assert!(!headers.contains_key(&TRACESTATE));
    }
}
