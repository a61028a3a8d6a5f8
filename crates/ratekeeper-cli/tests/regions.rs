//! The short form of the campaign of regions, which `cargo xtask regions` runs in full: three regions that share a limit
//! with oceans between them, one of which is cut off. Nothing is held to a time here; that never more than the limit passes
//! in all regions together, that shares are lent, and that signals are true is.

#![cfg(unix)]

use std::path::Path;

use ratekeeper_chaos::{RegionFiles, RegionPlan, run_regions};

#[test]
fn regions_lend_and_never_exceed_the_limit_together() {
    let program = Path::new(env!("CARGO_BIN_EXE_ratekeeper"));
    let failed = run_regions(program, &RegionPlan::TEST, &[], RegionFiles::default());
    let failed = failed.expect("nodes can be run");
    assert_eq!(failed, 0, "scenarios of the table above miss a goal");
}
