//! The short form of the attack campaign, which `cargo xtask attack` runs in full: the binary against everything a hostile
//! client can send, with real application servers behind it.

#![cfg(unix)]

use std::path::Path;

use ratekeeper_attack::{Plan, permissive_spellings_passed, run};

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_ratekeeper"))
}

#[test]
fn nothing_passes_and_no_bound_breaks() {
    let failed = run(program(), &Plan::quick()).expect("servers can be run");
    assert_eq!(failed, 0, "rows of the table above failed");
}

/// A campaign that cannot see an attack pass would prove nothing.
#[test]
fn the_campaign_sees_what_permissive_settings_let_pass() {
    let passed = permissive_spellings_passed(program()).expect("servers can be run");
    assert!(passed > 0);
}
