//! Rules in YAML: parsed with positions, validated all at once, compiled to what requests are matched against.
//!
//! It knows limits, and no store, no protocol and no clock. It reads files only in [`read`].

mod calendar;
mod changes;
mod cost;
mod diagnostic;
mod id;
mod load;
mod matching;
mod parse;
mod read;
mod report;
mod rlconfig;
mod rule;
mod ruleset;
mod schema;
pub mod secret;
mod slas;
pub mod window;
mod yaml;

pub use calendar::{Calendar, CalendarUnit};
pub use changes::{Change, ChangeKind};
pub use cost::Cost;
pub use diagnostic::{Diagnostic, Diagnostics, Excerpt, Place, Severity};
pub use load::{Loaded, Options, Profile, load};
pub use matching::{Entry, Matched, Visit, Walk};
pub use read::{ReadError, ReadOptions, Source, read};
pub use rule::{Consistency, Enforce, FailureMode, LeakyOverRls, PlanLimit, Rule, RuleLimit, Unit};
pub use ruleset::{Domain, Evaluation, Node, RuleIndex, RuleSet};
pub use schema::json_schema;
pub use slas::{PathPattern, Segment, ServiceLevel};
