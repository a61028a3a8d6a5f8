//! Values of flags that only a command can read.

use crate::output;

/// A value on the command line that is none of its kind. The process ends as it does for a flag that there is not.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadArgument(pub(crate) String);

impl BadArgument {
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        Self(output::with_causes(error))
    }
}
