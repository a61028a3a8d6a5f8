//! `usage:`, the place in a response that tells what its request used of budgets.

use std::fmt;
use std::num::NonZeroU32;

/// Weights are counted in millionths.
pub(crate) const WEIGHT_ONE: i64 = 1_000_000;

/// The largest weight: a million.
pub(crate) const WEIGHT_MAX: i64 = 1_000_000 * WEIGHT_ONE;

/// The most tokens of a pointer.
pub const POINTER_DEPTH_MAX: usize = 8;

/// The most bytes of one token of a pointer.
pub const POINTER_TOKEN_MAX: usize = 64;

/// The numbers that a domain adds up at most.
pub const USAGE_SUMS_MAX: usize = 16;

/// The relation of a number of tokens to the input that another number tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Relation {
    /// It counts by itself.
    Own,
    /// It is a part of that.
    Part,
    /// It comes beside that, unless that is [all of it](WHOLE_INPUT).
    Beside,
}

/// The place of a number that has all tokens of a prompt, also where others are told beside it: gateways that translate between
/// APIs tell the names of both.
const WHOLE_INPUT: &str = "/usage/prompt_tokens";

/// The numbers of tokens that models' APIs tell, each with its places.
const TOKENS: [(UsageKind, Relation, &[&str]); 7] = [
    (
        UsageKind::Input,
        Relation::Own,
        &[
            WHOLE_INPUT,
            "/usage/input_tokens",
            "/response/usage/input_tokens",
            "/message/usage/input_tokens",
            "/usageMetadata/promptTokenCount",
            "/*/usageMetadata/promptTokenCount",
        ],
    ),
    (
        UsageKind::Output,
        Relation::Own,
        &[
            "/usage/completion_tokens",
            "/usage/output_tokens",
            "/response/usage/output_tokens",
            "/message/usage/output_tokens",
            "/usageMetadata/candidatesTokenCount",
            "/*/usageMetadata/candidatesTokenCount",
        ],
    ),
    // OpenAI and Gemini count these within the input, Anthropic beside it.
    (
        UsageKind::CachedInput,
        Relation::Part,
        &[
            "/usage/prompt_tokens_details/cached_tokens",
            "/usage/input_tokens_details/cached_tokens",
            "/response/usage/input_tokens_details/cached_tokens",
            "/usageMetadata/cachedContentTokenCount",
            "/*/usageMetadata/cachedContentTokenCount",
        ],
    ),
    (
        UsageKind::CachedInput,
        Relation::Beside,
        &[
            "/usage/cache_read_input_tokens",
            "/message/usage/cache_read_input_tokens",
        ],
    ),
    (
        UsageKind::Input,
        Relation::Beside,
        &[
            "/usage/cache_creation_input_tokens",
            "/message/usage/cache_creation_input_tokens",
        ],
    ),
    (
        UsageKind::Input,
        Relation::Own,
        &[
            "/usageMetadata/toolUsePromptTokenCount",
            "/*/usageMetadata/toolUsePromptTokenCount",
        ],
    ),
    (
        UsageKind::Output,
        Relation::Own,
        &[
            "/usageMetadata/thoughtsTokenCount",
            "/*/usageMetadata/thoughtsTokenCount",
        ],
    ),
];

/// The charge for a response that tells no usage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UsageEstimate {
    /// One hit for so many bytes of the request's and the response's body; in an event stream, one for each event.
    Bytes(NonZeroU32),
    /// So many hits.
    Hits(u64),
}

impl Default for UsageEstimate {
    fn default() -> Self {
        // About the length of a token in English text.
        const FOUR: NonZeroU32 = NonZeroU32::MIN.saturating_add(3);
        Self::Bytes(FOUR)
    }
}

/// The meaning of a number that a response tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UsageKind {
    /// Tokens of the prompt, those of other kinds of input left out.
    Input,
    /// Tokens of the prompt that came from a cache.
    CachedInput,
    /// Tokens of the answer.
    Output,
    /// A number whose meaning is not known.
    Other,
}

/// The responses in which a number is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UsageBody {
    /// Bodies of JSON, and each event of an event stream.
    Any,
    /// Event streams alone.
    Events,
    /// Bodies of JSON that are no event stream.
    Whole,
}

/// A place in a body of JSON, as a JSON pointer (RFC 6901) in which `*` is any item of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JsonPointer {
    tokens: Box<[PointerToken]>,
}

/// A step of a [`JsonPointer`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PointerToken {
    /// The key, in an object.
    pub key: Box<str>,
    /// The index, in a list; [`None`] if the key is no index.
    pub index: Option<u32>,
    /// True of `*`, which is any item of a list.
    pub is_any: bool,
}

/// The fault of a [`JsonPointer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadPointer {
    /// It does not begin with a slash.
    #[error("a pointer begins with `/`, as in `/usage/total_tokens`")]
    NoSlash,
    /// It has too many parts.
    #[error("a pointer has at most {POINTER_DEPTH_MAX} parts")]
    TooDeep,
    /// A part is empty or too long.
    #[error("a part of a pointer has 1 to {POINTER_TOKEN_MAX} bytes")]
    Token,
    /// A tilde is not followed by 0 or 1.
    #[error("`~` is written `~0` in a pointer, and `/` in a key `~1`")]
    Tilde,
}

impl JsonPointer {
    /// Reads a pointer such as `/usage/total_tokens`.
    ///
    /// # Errors
    /// See [`BadPointer`].
    pub fn parse(text: &str) -> Result<Self, BadPointer> {
        let rest = text.strip_prefix('/').ok_or(BadPointer::NoSlash)?;
        let mut tokens = Vec::new();
        for token in rest.split('/') {
            if tokens.len() == POINTER_DEPTH_MAX {
                return Err(BadPointer::TooDeep);
            }
            let has_bare_tilde = token
                .split('~')
                .skip(1)
                .any(|rest| !rest.starts_with(['0', '1']));
            if has_bare_tilde {
                return Err(BadPointer::Tilde);
            }
            let key = token.replace("~1", "/").replace("~0", "~");
            if key.is_empty() || key.len() > POINTER_TOKEN_MAX {
                return Err(BadPointer::Token);
            }
            tokens.push(PointerToken {
                index: key.parse().ok(),
                is_any: key == "*",
                key: key.into(),
            });
        }
        let tokens = tokens.into();
        Ok(Self { tokens })
    }

    /// Its parts; at least one.
    #[must_use]
    pub fn tokens(&self) -> &[PointerToken] {
        &self.tokens
    }
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for token in &self.tokens {
            write!(f, "/{}", token.key.replace('~', "~0").replace('/', "~1"))?;
        }
        Ok(())
    }
}

/// A number to look for in bodies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsageField {
    /// The place.
    pub pointer: JsonPointer,
    /// The bodies that it is looked for in.
    pub body: UsageBody,
    /// The index of the [sum](UsageRules::sums) that it is: several places may tell the same number, and the last one found
    /// counts.
    pub sum: u8,
    /// True if the number has all of the input: no sum [beside](UsageSum::is_beside) it counts then.
    pub is_all: bool,
}

/// A number that counts for so many hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UsageSum {
    /// Its meaning.
    pub kind: UsageKind,
    /// True if it is a part of the input told elsewhere.
    pub is_part: bool,
    /// True if it comes beside the input told elsewhere, unless that [is all of it](UsageField::is_all).
    pub is_beside: bool,
    /// Hits for one, in millionths.
    pub weight: i64,
}

/// The weights of tokens, in millionths of a hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenWeights {
    /// For a token of the prompt.
    pub input: i64,
    /// For a token of the prompt that came from the model's cache.
    pub cached_input: i64,
    /// For a token of the answer.
    pub output: i64,
}

impl TokenWeights {
    const fn of(self, kind: UsageKind) -> i64 {
        match kind {
            UsageKind::Input | UsageKind::Other => self.input,
            UsageKind::CachedInput => self.cached_input,
            UsageKind::Output => self.output,
        }
    }
}

impl Default for TokenWeights {
    fn default() -> Self {
        Self {
            input: WEIGHT_ONE,
            cached_input: WEIGHT_ONE,
            output: WEIGHT_ONE,
        }
    }
}

/// The way in which the responses to a domain's requests tell what they used of its budgets.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct UsageRules {
    /// The name, in lower case, of the header or trailer that tells it.
    pub header: Option<Box<str>>,
    /// The places in bodies that tell it; at most 32.
    pub fields: Vec<UsageField>,
    /// The numbers that are added up; at most [`USAGE_SUMS_MAX`].
    pub sums: Vec<UsageSum>,
    /// The charge for a response that does not tell.
    pub estimate: UsageEstimate,
    /// The hits that a request reserves before it is forwarded; 0 to look only.
    pub reserve: u64,
    /// The weights of estimates, by the request's and the response's body.
    pub weights: TokenWeights,
}

impl UsageRules {
    /// Rules that read nothing, and estimate everything.
    #[must_use]
    pub fn estimated(estimate: UsageEstimate) -> Self {
        Self {
            header: None,
            fields: Vec::new(),
            sums: Vec::new(),
            estimate,
            reserve: 0,
            weights: TokenWeights::default(),
        }
    }

    /// Rules that read the tokens that models' APIs tell: OpenAI's chat completions, responses and embeddings, Anthropic's
    /// messages, Gemini's content, and those that are made alike.
    #[must_use]
    pub fn tokens(weights: TokenWeights) -> Self {
        let mut rules = Self::estimated(UsageEstimate::default());
        rules.weights = weights;
        for (sum, (kind, relation, places)) in (0..).zip(TOKENS) {
            let is_part = relation == Relation::Part;
            let counted_elsewhere = if is_part { weights.input } else { 0 };
            rules.sums.push(UsageSum {
                kind,
                is_part,
                is_beside: relation == Relation::Beside,
                weight: weights.of(kind) - counted_elsewhere,
            });
            let fields = places.iter().filter_map(|place| {
                Some(UsageField {
                    pointer: JsonPointer::parse(place).ok()?,
                    body: UsageBody::Any,
                    sum,
                    is_all: *place == WHOLE_INPUT,
                })
            });
            rules.fields.extend(fields);
        }
        rules
    }

    /// Rules that read the number in the header or trailer `name`.
    #[must_use]
    pub fn header(name: &str) -> Self {
        Self {
            header: Some(name.to_ascii_lowercase().into()),
            ..Self::estimated(UsageEstimate::default())
        }
    }

    /// Rules that read the number at `pointer` in bodies of JSON, and in each event of an event stream.
    #[must_use]
    pub fn json(pointer: JsonPointer) -> Self {
        let mut rules = Self::estimated(UsageEstimate::default());
        rules.add(pointer, UsageBody::Any, WEIGHT_ONE);
        rules
    }

    /// Sets the charge for a response that does not tell.
    #[must_use]
    pub const fn estimate(mut self, estimate: UsageEstimate) -> Self {
        self.estimate = estimate;
        self
    }

    /// Sets the hits that a request reserves before it is forwarded.
    #[must_use]
    pub const fn reserve(mut self, hits: u64) -> Self {
        self.reserve = hits;
        self
    }

    /// Adds a number that counts `weight` millionths of a hit. Does nothing beyond the most of them.
    pub(crate) fn add(&mut self, pointer: JsonPointer, body: UsageBody, weight: i64) {
        let Ok(sum) = u8::try_from(self.sums.len()) else {
            return;
        };
        if self.sums.len() >= USAGE_SUMS_MAX {
            return;
        }
        self.sums.push(UsageSum {
            kind: UsageKind::Other,
            is_part: false,
            is_beside: false,
            weight,
        });
        self.fields.push(UsageField {
            pointer,
            body,
            sum,
            is_all: false,
        });
    }

    /// Returns true if it is the tokens of models that are [read](Self::tokens).
    #[must_use]
    pub fn reads_tokens(&self) -> bool {
        self.sums.iter().any(|sum| sum.kind != UsageKind::Other)
    }

    /// Returns true if bodies are read, and must not be compressed for it.
    #[must_use]
    pub fn reads_bodies(&self) -> bool {
        !self.fields.is_empty()
    }
}
