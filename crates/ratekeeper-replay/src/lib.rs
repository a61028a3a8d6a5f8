//! Plays an access log through the rules: what would have been limited.
//!
//! [`Replay`] reads logs in Common Log Format, combined, or JSON lines, plain or gzip, describes
//! every line as a gateway describes a request, and asks the very limiter that a service has, at
//! the time that the log says. The [`Report`] tells for each rule what it would have denied, to whom,
//! and when; compared with the exact log, also how far its algorithm is off.
//!
//! It prints nothing, reads no rules and no environment: that is the command's part.

mod compare;
mod described;
mod descriptors;
mod error;
mod exact;
mod fields;
pub mod generate;
mod input;
mod keys;
mod notes;
mod parse;
mod record;
mod reorder;
mod replay;
mod report;
pub mod requests;
mod tally;
mod time;
mod top;

pub use descriptors::{Descriptors, DescriptorsError};
pub use error::ReplayError;
pub use fields::{Fields, FieldsError};
pub use input::{LINE_BYTES_MAX, Log};
pub use parse::{Format, LineParser};
pub use record::{BadLine, Field, Malformed, Record};
pub use replay::{CompareWith, Progress, Replay, ReplayOptions};
pub use report::{Compared, DeniedKey, LineCounts, Report, RuleReport, Summary, WorstMinute};
