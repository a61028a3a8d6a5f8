//! The trace context of a request, as W3C Trace Context has it.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The header, or the key of gRPC metadata, with the context.
pub static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The header with what other tracing systems add to it.
pub static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The length of a context of version 00.
const LENGTH: usize = 55;

/// The flag of a trace that is recorded.
const SAMPLED: u8 = 1;

/// The most headers that are compared one by one, which takes less time than to hash the name.
const COMPARED_MAX: usize = 8;

/// A position in a trace: `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceContext {
    /// The trace; never 0.
    pub trace_id: u128,
    /// The span that the request belongs to; never 0.
    pub span_id: u64,
    /// True if the caller records the trace.
    pub is_sampled: bool,
}

impl TraceContext {
    /// The context in `headers`; [`None`] if there is none, more than one, or one that is malformed.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(&TRACEPARENT).iter();
        let first = lines.next()?;
        if lines.next().is_some() {
            return None;
        }
        Self::parse(first.as_bytes())
    }

    /// Returns false if no context in `headers` can be one that its caller records. Reads one digit of it, so that a
    /// request that is not traced costs next to nothing; if true, [`TraceContext::of`] says what there is.
    #[inline]
    pub(crate) fn may_be_sampled(headers: &HeaderMap) -> bool {
        if headers.keys_len() > COMPARED_MAX {
            let mut contexts = headers.get_all(&TRACEPARENT).iter();
            return contexts.any(|context| ends_odd(context.as_bytes()));
        }
        let mut all = headers.iter();
        all.any(|(name, context)| *name == TRACEPARENT && ends_odd(context.as_bytes()))
    }

    /// Parses a context. Later versions may have more after the flags; version ff does not exist.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (known, rest) = text.split_at_checked(LENGTH)?;
        let version = hex(&known[..2])?;
        let ends = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => matches!(rest, [] | [b'-', ..]),
        };
        if !ends || [2, 35, 52].into_iter().any(|at| known[at] != b'-') {
            return None;
        }
        let trace_id = hex(&known[3..35])?;
        let span_id = u64::try_from(hex(&known[36..52])?).ok()?;
        let flags = u8::try_from(hex(&known[53..55])?).ok()?;
        (trace_id != 0 && span_id != 0).then_some(Self {
            trace_id,
            span_id,
            is_sampled: flags & SAMPLED != 0,
        })
    }

    /// The context for the next service.
    #[must_use]
    pub fn header_value(self) -> HeaderValue {
        // Cannot fail: digits and dashes.
        HeaderValue::try_from(self.text()).unwrap_or(HeaderValue::from_static(""))
    }

    /// The context as headers and gRPC metadata have it.
    pub(crate) fn text(self) -> String {
        let Self {
            trace_id,
            span_id,
            is_sampled,
        } = self;
        let flags = u8::from(is_sampled);
        format!("00-{trace_id:032x}-{span_id:016x}-{flags:02x}")
    }
}

/// Returns true if the last digit of the flags may be odd, which it is with [`SAMPLED`].
fn ends_odd(context: &[u8]) -> bool {
    let digit = context.get(LENGTH - 1);
    digit
        .is_some_and(|digit| matches!(digit, b'1' | b'3' | b'5' | b'7' | b'9' | b'b' | b'd' | b'f'))
}

/// Reads up to 32 hexadecimal digits, in lower case as the standard wants them.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_context_is_read_and_written_alike() {
        let context = TraceContext::parse(GOOD.as_bytes()).expect("the standard's example");
        assert_eq!(context.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(context.span_id, 0x00f0_67aa_0ba9_02b7);
        assert!(context.is_sampled);
        assert_eq!(context.header_value(), GOOD);
    }

    #[test]
    fn malformed_contexts_are_none() {
        for bad in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.",
            "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::parse(bad.as_bytes()), None, "{bad}");
        }
        let later = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-more";
        let later = TraceContext::parse(later.as_bytes()).expect("later versions may have more");
        assert!(!later.is_sampled);
    }

    #[test]
    fn two_contexts_are_none() {
        let mut headers = HeaderMap::new();
        headers.append(&TRACEPARENT, HeaderValue::from_static(GOOD));
        assert!(TraceContext::of(&headers).is_some());
        headers.append(&TRACEPARENT, HeaderValue::from_static(GOOD));
        assert_eq!(TraceContext::of(&headers), None);
    }
    /// The short look agrees with the parser wherever that finds a sampled context, among few headers and many.
    #[test]
    fn a_short_look_misses_no_sampled_context() {
        let filler = |count: usize| {
            let mut headers = HeaderMap::new();
            for number in 0..count {
                let name = HeaderName::try_from(format!("x-filler-{number}")).expect("a name");
                headers.insert(name, HeaderValue::from_static("1"));
            }
            headers
        };
        for count in [0, 5, COMPARED_MAX, COMPARED_MAX + 1, 40] {
            assert!(!TraceContext::may_be_sampled(&filler(count)), "{count}");
            for flags in 0..=u8::MAX {
                let context = TraceContext::parse(GOOD.as_bytes()).expect("it is good");
                let text = format!("{}{flags:02x}", &GOOD[..53]);
                let mut headers = filler(count);
                headers.insert(&TRACEPARENT, HeaderValue::try_from(text).expect("ASCII"));
                let parsed = TraceContext::of(&headers).expect("any flags are good");
                assert_eq!(parsed.trace_id, context.trace_id);
                assert_eq!(
                    TraceContext::may_be_sampled(&headers),
                    parsed.is_sampled,
                    "{flags}"
                );
            }
        }
    }

    #[test]
    fn the_second_of_two_contexts_is_looked_at_too() {
        let mut headers = HeaderMap::new();
        let not = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        headers.append(&TRACEPARENT, HeaderValue::from_static(not));
        headers.append(&TRACEPARENT, HeaderValue::from_static(GOOD));
        assert!(TraceContext::may_be_sampled(&headers));
        assert_eq!(TraceContext::of(&headers), None);
    }
}
