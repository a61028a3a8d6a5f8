//! Options of a replay of costs.

use ratekeeper_core::MAX_COUNT;
use ratekeeper_store::memory::MemoryConfig;

/// The settings of a replay of costs, besides the rules.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CostOptions {
    /// The domain to check; None means the rules' only one.
    pub domain: Option<String>,
    /// The columns that describe a call, beside its tokens: one list for each descriptor.
    pub descriptors: Vec<Vec<String>>,
    /// The hits of a token.
    pub weights: CostWeights,
    /// The output tokens that a call is assumed to need at most, when that has to be said before it is carried out.
    pub reserve: u64,
    /// The output tokens that stream in a second: a call ends when all of its own have come. At least 1.
    pub tokens_per_second: u64,
    /// The number of made-up users that calls are dealt to, for a trace that names none; zero makes up none.
    pub users: u32,
    /// The number of most denied keys to report for each rule, at most 1,024.
    pub top_denied: usize,
    /// The number of malformed lines to show.
    pub bad_lines: usize,
    /// The memory for the counters of each way to pay.
    pub memory: MemoryConfig,
}

impl Default for CostOptions {
    fn default() -> Self {
        Self {
            domain: None,
            descriptors: Vec::new(),
            weights: CostWeights::default(),
            reserve: 500,
            tokens_per_second: 50,
            users: 0,
            top_denied: 10,
            bad_lines: 5,
            memory: MemoryConfig::default(),
        }
    }
}

/// The hits that a token costs in budgets of both kinds of tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CostWeights {
    /// The hits of a token of the prompt.
    pub prompt: u64,
    /// The hits of a token of the output.
    pub output: u64,
}

impl Default for CostWeights {
    fn default() -> Self {
        Self {
            prompt: 1,
            output: 1,
        }
    }
}

impl CostWeights {
    /// The weights that `text` writes as `1:4`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (prompt, output) = text.split_once(':')?;
        let weights = Self {
            prompt: prompt.parse().ok()?,
            output: output.parse().ok()?,
        };
        (weights.prompt.max(weights.output) > 0).then_some(weights)
    }

    /// The hits of a call.
    pub(crate) fn hits(self, prompt: u64, output: u64) -> u64 {
        let prompt = self.prompt.saturating_mul(prompt);
        let all = prompt.saturating_add(self.output.saturating_mul(output));
        all.min(MAX_COUNT)
    }
}

/// A way to pay for what is known only afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PayWay {
    /// The call looks whether anything is left, and is charged what it cost when it has ended.
    PostPaid,
    /// The call is charged what it may cost, and the rest is given back, or more is charged, when it has ended.
    Reserved,
    /// The call passes if all that it may cost fits, is charged that, and never corrected.
    InAdvance,
}

impl PayWay {
    /// All ways.
    pub const ALL: [Self; 3] = [Self::PostPaid, Self::Reserved, Self::InAdvance];

    /// The name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PostPaid => "post_paid",
            Self::Reserved => "reserved",
            Self::InAdvance => "in_advance",
        }
    }

    /// The name in tables.
    pub(crate) const fn in_words(self) -> &'static str {
        match self {
            Self::PostPaid => "post-paid",
            Self::Reserved => "reserved",
            Self::InAdvance => "in advance",
        }
    }
}
