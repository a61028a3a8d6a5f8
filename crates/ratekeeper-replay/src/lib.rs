//! Replays an access log through rules and reports the requests that they would have limited.
//!
//! [`Replay`] reads logs in Common Log Format, combined format or JSON lines, plain or gzip. It
//! describes every line as a gateway describes a request, and asks the service's own limiter, at
//! the time in the log. The [`Report`] lists for each rule the denials it would have caused, with
//! clients and times; compared with the exact log, also the error of its algorithm.
//!
//! [`CostReplay`] reads traces of calls of language models, and charges their tokens to budgets.
//!
//! The crate prints nothing and reads neither rules nor environment: the command does.

mod client;
mod compare;
mod cost;
mod described;
mod descriptors;
mod error;
mod exact;
mod fields;
mod growth;
mod input;
mod keys;
mod merge;
mod notes;
mod options;
mod order;
mod parse;
mod read;
mod record;
mod reorder;
mod replay;
mod report;
mod tally;
mod time;
mod top;

pub use cost::{
    BudgetReport, CostOptions, CostReplay, CostReport, CostWeights, MinuteReport, PayWay, Split,
    TokenCounts, WayReport,
};
pub use descriptors::{Descriptors, DescriptorsError};
pub use error::{ColumnFault, ReplayError};
pub use fields::{Fields, FieldsError};
pub use input::{LINE_BYTES_MAX, Log};
pub use options::{CompareWith, ReplayOptions};
pub use parse::{Format, LineParser};
pub use read::Progress;
pub use record::{BadLine, LogField, MalformedLine, Record};
pub use replay::Replay;
pub use report::{Compared, DeniedKey, LineCounts, Report, RuleReport, Summary, WorstMinute};
