//! Reads out of a response what its request used of budgets, while the response passes by.
//!
//! ```text
//!   head    -> header
//!   chunks  -> [event stream -> the data of events] -> JSON -> numbers at pointers -> sum
//!   the end -> Spent: what was read, else the estimate
//! ```
//!
//! Nothing is kept but numbers and the text of one key or number, so a body of any size and shape takes the same few
//! hundred bytes. Nothing is decompressed.

mod events;
pub(crate) mod json;
mod number;
mod slots;

use std::sync::Arc;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Method, StatusCode};
use ratekeeper_core::MAX_COUNT;
use ratekeeper_rules::{UsageEstimate, UsageKind, UsageRules};

use self::events::EventScanner;
use self::json::JsonScanner;
use self::slots::{Slots, UsageTarget, places};

/// Millionths in one hit.
const MILLION: i128 = 1_000_000;

/// Billionths in one of the numbers that responses tell.
const BILLION: i128 = 1_000_000_000;

/// Reads what a request used out of its response, piece by piece.
///
/// ```
/// use http::{HeaderMap, Method, StatusCode};
/// use ratekeeper_http::{SpentFrom, UsageScanner};
/// use ratekeeper_rules::{TokenWeights, UsageRules};
///
/// let rules = UsageRules::tokens(TokenWeights::default()).into();
/// let mut scanner = UsageScanner::new(rules, &Method::POST, 80);
/// scanner.head(StatusCode::OK, &HeaderMap::new());
/// scanner.feed(br#"{"choices":[],"usage":{"prompt_"#);
/// scanner.feed(br#"tokens":20,"completion_tokens":5}}"#);
/// let spent = scanner.spent(true);
/// assert_eq!((spent.hits, spent.input, spent.output), (25, Some(20), Some(5)));
/// assert_eq!(spent.from, SpentFrom::Response);
/// ```
#[derive(Clone, Debug)]
pub struct UsageScanner {
    rules: Arc<UsageRules>,
    body: Body,
    slots: Slots,
    /// The number that a header or trailer told, in billionths.
    told: Option<u128>,
    request_bytes: u64,
    response_bytes: u64,
    /// True if bodies are read.
    reads_body: bool,
    /// True if a response that does not tell is estimated.
    may_estimate: bool,
}

#[derive(Clone, Debug)]
enum Body {
    /// Nothing can be read.
    Closed,
    Json(JsonScanner),
    Events(EventScanner),
}

/// The hits and tokens that a request used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spent {
    /// The hits to charge.
    pub hits: u64,
    /// The source of the number.
    pub from: SpentFrom,
    /// Tokens of the prompt, those from a cache included, if the response tells.
    pub input: Option<u64>,
    /// Tokens of the prompt that came from a cache, if the response tells.
    pub cached_input: Option<u64>,
    /// Tokens of the answer, if the response tells.
    pub output: Option<u64>,
}

/// The source of the hits that a request is charged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SpentFrom {
    /// The response told them.
    Response,
    /// The response did not tell, and they were estimated.
    Estimate,
    /// The response told something that is no usage, and they were estimated.
    Unreadable,
    /// The response broke off or its client left: what it told of the prompt, else an estimate, and of the answer what it told
    /// or what had come, if that is more.
    Partial,
    /// The request cost nothing, and the response told nothing.
    Nothing,
}

impl SpentFrom {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Response,
        Self::Estimate,
        Self::Unreadable,
        Self::Partial,
        Self::Nothing,
    ];

    /// Its name in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Response => "response",
            Self::Estimate => "estimate",
            Self::Unreadable => "unreadable",
            Self::Partial => "partial",
            Self::Nothing => "nothing",
        }
    }
}

impl UsageScanner {
    /// A scanner for the response to a request with this method, and a body of so many bytes, as far as known.
    #[must_use]
    pub fn new(rules: Arc<UsageRules>, method: &Method, request_bytes: u64) -> Self {
        // No model spends tokens on a GET. APIs that keep answers tell there, each time, the usage of the call that made one.
        let is_free = method.is_safe() && rules.reads_tokens();
        Self {
            reads_body: rules.reads_bodies() && !is_free,
            rules,
            body: Body::Closed,
            slots: Slots::default(),
            told: None,
            request_bytes,
            response_bytes: 0,
            may_estimate: !method.is_safe(),
        }
    }

    /// Corrects the length of the request's body: more of it has come than was known.
    pub fn sent(&mut self, request_bytes: u64) {
        self.request_bytes = self.request_bytes.max(request_bytes);
    }

    /// Reads the head of the response.
    pub fn head(&mut self, status: StatusCode, headers: &HeaderMap) {
        // A failure costs what it tells, else nothing. So does a redirect: the request that follows it pays. Nobody reads what
        // passes behind an upgrade, though it begins with a GET: the connection costs the estimate.
        self.may_estimate &= status.is_success();
        self.may_estimate |= status == StatusCode::SWITCHING_PROTOCOLS;
        self.fields(headers);
        if !self.reads_body || is_encoded(headers) {
            return;
        }
        self.body = match is_event_stream(headers) {
            true => Body::Events(EventScanner::new(places(&self.rules, true))),
            false => Body::Json(JsonScanner::new(places(&self.rules, false))),
        };
    }

    /// Reads the header that tells the usage, from a head or from trailers.
    pub fn fields(&mut self, fields: &HeaderMap) {
        let Some(name) = &self.rules.header else {
            return;
        };
        // As in bodies, the last one counts.
        let Some(value) = fields.get_all(&**name).iter().next_back() else {
            return;
        };
        match number::billionths(value.as_bytes().trim_ascii()) {
            Some(number) => self.told = Some(number),
            None => self.slots.is_unreadable = true,
        }
    }

    /// Reads the next piece of the body.
    #[inline]
    pub fn feed(&mut self, piece: &[u8]) {
        self.response_bytes = self.response_bytes.saturating_add(piece.len() as u64);
        let mut target = UsageTarget {
            rules: &self.rules,
            slots: &mut self.slots,
        };
        match &mut self.body {
            Body::Closed => {}
            Body::Json(json) => json.feed(piece, &mut target),
            Body::Events(events) => events.feed(piece, &mut target),
        }
    }

    /// Returns what the request used. The response `is_whole` if it ended as it should.
    #[must_use]
    pub fn spent(&self, is_whole: bool) -> Spent {
        let told = self.told();
        let estimate = || self.estimate(told);
        // Clients of event streams leave when they have seen the last one. A head comes before everything.
        let is_whole = is_whole
            || match &self.body {
                Body::Closed | Body::Json(_) => self.told.is_some(),
                Body::Events(events) => events.is_told_at_end(),
            };
        let (hits, from) = match (told, self.slots.is_unreadable, is_whole) {
            (Some(told), false, true) => (told, SpentFrom::Response),
            (_, true, _) => (estimate(), SpentFrom::Unreadable),
            (_, false, false) => match estimate() {
                0 => (0, SpentFrom::Nothing),
                hits => (hits, SpentFrom::Partial),
            },
            (None, false, true) => match estimate() {
                0 => (0, SpentFrom::Nothing),
                hits => (hits, SpentFrom::Estimate),
            },
        };
        let sum = |kinds: &[UsageKind], only_parts: bool| {
            self.slots.whole(&self.rules, |sum| {
                kinds.contains(&sum.kind) && (only_parts || !sum.is_part)
            })
        };
        Spent {
            hits,
            from,
            input: sum(&[UsageKind::Input, UsageKind::CachedInput], false),
            cached_input: sum(&[UsageKind::CachedInput], true),
            output: sum(&[UsageKind::Output], false),
        }
    }

    /// Returns what the response told, and no estimate: for one that failed before its first byte.
    #[must_use]
    pub fn told_only(&self) -> Spent {
        let told = Self {
            may_estimate: false,
            ..self.clone()
        };
        told.spent(false)
    }

    /// The hits that the response told.
    fn told(&self) -> Option<u64> {
        let body = self.slots.weighted(&self.rules, |_| true);
        let header = self.told.map(|billionths| {
            let billionths = i128::try_from(billionths).unwrap_or(i128::MAX);
            billionths.saturating_mul(MILLION)
        });
        let told = match (body, header) {
            (None, None) => return None,
            (body, header) => body.unwrap_or(0).saturating_add(header.unwrap_or(0)),
        };
        Some(hits(told, MILLION * BILLION))
    }

    /// The hits that are charged if the response does not tell all: what it `told`, and an estimate of the rest.
    fn estimate(&self, told: Option<u64>) -> u64 {
        let told = told.unwrap_or(0);
        if !self.may_estimate {
            return told;
        }
        let bytes = match self.rules.estimate {
            UsageEstimate::Hits(hits) => return told.max(hits),
            UsageEstimate::Bytes(bytes) => u64::from(bytes.get()),
        };
        let streamed = match &self.body {
            Body::Events(events) => events.count(),
            Body::Json(_) | Body::Closed => self.response_bytes.div_ceil(bytes),
        };
        let weights = self.rules.weights;
        let weigh = |number: u64, weight: i64| {
            let number = i128::from(number) * i128::from(weight);
            number.saturating_mul(BILLION)
        };
        let output = weigh(streamed, weights.output).max(self.told_output());
        // The first event may tell the prompt, and knows it better than the length of a request that has pictures in it.
        let input = self.told_input();
        let input =
            input.unwrap_or_else(|| weigh(self.request_bytes.div_ceil(bytes), weights.input));
        hits(input.saturating_add(output), MILLION * BILLION).max(told)
    }

    /// The weighted tokens of the prompt that the response told, in millionths of billionths; None if it told none but those
    /// from a cache.
    fn told_input(&self) -> Option<i128> {
        let is_told = self
            .slots
            .whole(&self.rules, |sum| sum.kind == UsageKind::Input);
        is_told.and_then(|_| {
            self.slots.weighted(&self.rules, |sum| {
                matches!(sum.kind, UsageKind::Input | UsageKind::CachedInput)
            })
        })
    }

    /// The weighted tokens of the answer that the response told, in millionths of billionths.
    fn told_output(&self) -> i128 {
        let told = self
            .slots
            .weighted(&self.rules, |sum| sum.kind == UsageKind::Output);
        told.unwrap_or(0)
    }
}

/// A sum in parts of a hit, as whole hits: rounded up, and no more than a counter holds.
fn hits(sum: i128, parts: i128) -> u64 {
    let sum = sum.max(0);
    let hits = sum / parts + i128::from(sum % parts > 0);
    u64::try_from(hits).unwrap_or(MAX_COUNT).min(MAX_COUNT)
}

fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|value| {
        !value
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(b"identity")
    })
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    const EVENTS: &[u8] = b"text/event-stream";
    let Some(value) = headers.get(CONTENT_TYPE) else {
        return false;
    };
    let value = value.as_bytes();
    let media_type = value.split(|byte| *byte == b';').next().unwrap_or_default();
    media_type.trim_ascii().eq_ignore_ascii_case(EVENTS)
}
