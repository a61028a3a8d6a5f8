//! Turns a request into a decision.
//!
//! A [`Limiter`] matches a request's descriptors against the rules, asks a store to decide all
//! matching limits at once, and answers with a [`Decision`]: allowed or not, what remains of
//! each limit, and when to retry. Each check sees one immutable snapshot of the rules.
//!
//! It knows no protocol and no file. The clock is read once per check, by the edge that asks or by [`Limiter::check`]; whatever
//! is deeper is told the time.

mod clock;
mod compiled;
mod decide;
mod decision;
mod explain;
mod fallback;
mod growth;
mod hold;
mod identity;
mod limiter;
mod observer;
mod plan;
mod posting;
mod purpose;
mod request;
mod scope;
mod sip;
mod slots;
mod snapshot;
mod source;
mod stats;
mod stray;
mod switch;
mod token;
mod top;
mod totals;
mod usage;
mod waiting;

pub use clock::Clock;
pub use decide::{Pending, Ruling};
pub use decision::{
    Answered, Binding, Code, Decision, DescriptorAnswer, LimitStatus, Policies, Policy,
    ShadowDenial,
};
pub use explain::{DOMAINS_SHOWN, ExplainedDescriptor, ExplainedLimit, ExplainedNode, Explanation};
pub use fallback::{Fallback, FallbackConfig, FallbackError, OwedCounts};
pub use growth::{
    Growth, GrowthChange, GrowthDetector, GrowthKey, GrowthRequests, GrowthWatch, SERIES_MAX,
    TICK_SECS,
};
pub use hold::{
    Acquired, Admitted, Bill, BucketTurn, CallerHolds, ChargedOnce, DeferredPermits, HeldSlots,
    HoldError, IssuedPermit, PendingAdmission, Queued, Receipt, ReceiptMode, Released, Reservation,
    Reserve, Reserved, Settled,
};
pub use limiter::{Limiter, LimiterOptions};
pub use observer::{CheckObserver, ServiceDecision};
pub use purpose::BudgetUse;
pub use ratekeeper_store::HashKey;
pub use request::{
    BroughtLimit, Check, Descriptor, DescriptorTerms, ENTRY_BYTES_MAX, MAX_HITS, Override,
    OwnLimit, RequestDescriptors,
};
pub use scope::{Scope, SecretValue};
pub use slots::RuleSlots;
pub use snapshot::{LentLimit, ListedRule, Modes, Snapshot};
pub use source::LimitSource;
pub use stats::{REMAINING_BOUNDS, RuleCounts, RuleStats, STRIPES, stripe_of_thread};
pub use stray::{Stray, Strays};
pub use switch::{RuleMode, RuleSwitch, SWITCHES_MAX, SwitchError, Switches};
pub use token::TOKEN_CHARS_MAX;
pub use top::{ALLOWED_SAMPLE, CASES_MAX, DenialCase, TopDecision, TopKey, TopKeys, TopWindow};
pub use totals::Totals;
pub use usage::{CallCount, MeteredCaller, USAGE_ROWS_MAX, UsageCount, UsageMeter};
pub use waiting::Waiting;
