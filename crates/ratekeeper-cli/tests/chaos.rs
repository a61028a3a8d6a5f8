//! The short form of the fault campaign, which `cargo xtask chaos` runs in full: the binary under load while its Redis
//! fails. Nothing is held to a time here; that every caller is answered, that no limit is passed without a mark, and that
//! signals are true is.

#![cfg(unix)]

use std::path::Path;

use ratekeeper_chaos::{Plan, run};

#[test]
fn callers_and_operators_are_told_the_truth_while_redis_fails() {
    let program = Path::new(env!("CARGO_BIN_EXE_ratekeeper"));
    let failed = run(program, &Plan::TEST, &[]).expect("nodes can be run");
    assert_eq!(failed, 0, "rows of the table above miss a goal");
}
