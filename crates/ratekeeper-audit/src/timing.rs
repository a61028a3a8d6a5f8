//! The times that a target may take.

use std::time::Duration;

/// The longest time to connect to a target.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(3);

/// The longest time that a target may take for one answer.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(5);
