//! Traces of requests: the context that callers bring along, sampling, and spans.
//!
//! A [`Tracer`] decides if a request is traced before anything else is done about it: by the caller's context (W3C
//! `traceparent`), else by chance. A request that is not traced costs no allocation. Spans of the others go into a
//! bounded queue; one that does not fit is dropped and counted, and no request waits for it. With the feature `otlp`,
//! `OtlpExport` sends the queue to an OpenTelemetry collector.
//!
//! ```
//! use ratekeeper_trace::{TraceContext, Tracer};
//!
//! let (tracer, mut queue) = Tracer::new(1.0);
//! let span = tracer.request(&http::HeaderMap::new(), "GET").expect("all requests are traced");
//! let told = TraceContext::parse(span.context().header_value().as_bytes());
//! assert_eq!(told, Some(span.context()));
//! drop(span);
//! assert_eq!(queue.take().len(), 1);
//! ```
//!
//! It decides nothing about limits, and knows no protocol but that of the collector.

#![forbid(unsafe_code)]

mod check;
mod context;
#[cfg(feature = "otlp")]
mod otlp;
mod request;
mod span;
mod tracer;

pub use context::{TRACEPARENT, TRACESTATE, TraceContext};
#[cfg(feature = "otlp")]
pub use otlp::{OtlpConfig, OtlpError, OtlpExport, OtlpProtocol};
pub use request::RequestSpan;
pub use span::{SpanKind, SpanValue, TraceSpan, TracedCall, TracedMethod};
pub use tracer::{SpanCounts, SpanQueue, Tracer};
