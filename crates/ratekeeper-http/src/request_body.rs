//! Values in the body of a request, found while it comes.

use std::sync::Arc;

use ratekeeper_rules::{JsonPointer, PointerToken};
use serde_json::Value;

use crate::Malformed;
use crate::usage::json::{Found, JsonScanner, Target, set};

/// The most places in bodies that a service reads.
pub const BODY_PLACES_MAX: usize = 32;

/// The values that the body of a request has at the places that are read. A service that reads bodies puts it into the
/// request's extensions.
#[derive(Clone, Debug)]
pub struct BodyValues(Arc<Values>);

#[derive(Clone, Debug)]
struct Values {
    places: Arc<[JsonPointer]>,
    found: Vec<Option<Value>>,
}

impl BodyValues {
    /// The text at `place`, or the number as it is written there; None if it has neither.
    #[must_use]
    pub fn get(&self, place: &JsonPointer) -> Option<&str> {
        let at = self.0.places.iter().position(|known| known == place)?;
        match self.0.found.get(at)?.as_ref()? {
            Value::String(text) => Some(text),
            _ => None,
        }
    }
}

/// The id of a call in JSON-RPC: a text or a number. Put into a request's extensions, it is in the denial of the call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RpcId(pub Value);

/// Reads values out of the body of a request, piece by piece. At most 256 bytes of a value are kept.
///
/// ```
/// use ratekeeper_http::BodyScanner;
/// use ratekeeper_rules::JsonPointer;
///
/// let model = JsonPointer::parse("/model")?;
/// let mut scanner = BodyScanner::new([model.clone()].into());
/// scanner.feed(br#"{"messages":[{"role":"user"}],"mod"#);
/// assert!(!scanner.is_complete());
/// scanner.feed(br#"el":"small""#);
/// assert!(scanner.is_complete());
/// assert_eq!(scanner.values().get(&model), Some("small"));
/// # Ok::<(), ratekeeper_rules::BadPointer>(())
/// ```
#[derive(Clone, Debug)]
pub struct BodyScanner {
    json: JsonScanner,
    target: BodyTarget,
}

#[derive(Clone, Debug)]
struct BodyTarget {
    values: Values,
    /// A place that readers may find two values at.
    twice: Option<usize>,
}

impl Target for BodyTarget {
    const TEXTS: bool = true;

    #[inline]
    fn tokens(&self, place: usize) -> &[PointerToken] {
        self.values
            .places
            .get(place)
            .map_or(&[], JsonPointer::tokens)
    }

    fn found(&mut self, place: usize, value: Found<'_>) {
        let value = match value {
            Found::Text(text) | Found::Number(text) => match std::str::from_utf8(text) {
                Ok(text) => Value::from(text),
                Err(_) => Value::Null,
            },
            Found::Other => Value::Null,
        };
        let Some(slot) = self.values.found.get_mut(place) else {
            return;
        };
        match slot {
            Some(before) if *before != value => self.twice = Some(place),
            _ => *slot = Some(value),
        }
    }

    fn ambiguous(&mut self, place: usize) {
        self.twice = Some(place);
    }
}

impl BodyScanner {
    /// A scanner for these places; those beyond the first 32 are not looked for.
    #[must_use]
    pub fn new(places: Arc<[JsonPointer]>) -> Self {
        let count = places.len().min(BODY_PLACES_MAX);
        Self {
            json: JsonScanner::new(set(0..count)),
            target: BodyTarget {
                values: Values {
                    found: vec![None; count],
                    places,
                },
                twice: None,
            },
        }
    }

    /// Reads the next piece of the body.
    pub fn feed(&mut self, piece: &[u8]) {
        self.json.feed(piece, &mut self.target);
    }

    /// Returns true if something was found at every place.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.target.values.found.iter().all(Option::is_some)
    }

    /// Returns true if the body is no JSON.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.json.is_broken()
    }

    /// Checks that all services find the same value at each place: none has two values, an object on the way to it twice,
    /// or a key in letters of another case.
    ///
    /// # Errors
    /// The place of which that is not true.
    pub fn check(&self) -> Result<(), Malformed> {
        let twice = self.target.twice;
        match twice.and_then(|at| self.target.values.places.get(at)) {
            Some(place) => Err(Malformed::ambiguous(format!("body {place}"))),
            None => Ok(()),
        }
    }

    /// The values found so far.
    #[must_use]
    pub fn values(&self) -> BodyValues {
        BodyValues(Arc::new(self.target.values.clone()))
    }
}

/// The id of a JSON-RPC call of which `piece` is the beginning; None if the id is not in it.
#[must_use]
pub fn rpc_id(piece: &[u8]) -> Option<RpcId> {
    let mut scanner = JsonScanner::new(set(0..1));
    let mut target = IdTarget {
        place: JsonPointer::parse("/id").ok()?,
        id: None,
    };
    scanner.feed(piece, &mut target);
    target.id.map(RpcId)
}

struct IdTarget {
    place: JsonPointer,
    id: Option<Value>,
}

impl Target for IdTarget {
    const TEXTS: bool = true;

    fn tokens(&self, _: usize) -> &[PointerToken] {
        self.place.tokens()
    }

    fn found(&mut self, _: usize, value: Found<'_>) {
        self.id = match value {
            Found::Text(text) => std::str::from_utf8(text).ok().map(Value::from),
            Found::Number(text) => serde_json::from_slice(text).ok(),
            Found::Other => None,
        };
    }
}
