//! `cargo xtask bench leases`: floods leased limits over four nodes.

use super::grpc::{UTIL_LINUX, compare};
use crate::need::{self, REDIS};
use crate::steps::Steps;
use anyhow::Result;

/// Builds everything, then runs it; `args` may be `--quick`.
pub(super) fn leases(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    steps.step("tools", "taskset, setpriv, redis-server", || {
        need::packages(&UTIL_LINUX)?;
        need::packages(&[REDIS])
    })?;
    compare(&mut steps, "leases", &["--leases".into()], args)?;
    steps.finish("bench leases");
    Ok(())
}
