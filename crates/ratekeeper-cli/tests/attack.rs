//! The short form of the attack campaign, which `cargo xtask attack` runs in full: the binary against everything a hostile
//! client can send, with real application servers behind it.

#![cfg(unix)]

use std::path::Path;

use ratekeeper_attack::{Plan, run, spellings_that_must_pass};

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_ratekeeper"))
}

/// Families that mostly wait: for deadlines, or for connections to be gone.
const PATIENT: &[&str] = &["batches", "crowds", "downgrade", "hang-ups"];

/// Families that pretend to be others, or to be allowed more.
const DISGUISED: &[&str] = &[
    "spellings",
    "forged addresses",
    "tokens",
    "places",
    "permissions",
];

/// Families of requests that are hard to read.
const UNREADABLE: &[&str] = &[
    "smuggling",
    "http/2 smuggling",
    "secrets",
    "octets",
    "costs",
];

#[test]
fn nothing_passes_and_no_bound_breaks() {
    let others = [PATIENT, DISGUISED, UNREADABLE].concat();
    assert_met(&Plan::quick().without(&others));
}

#[test]
fn no_disguise_gets_past_a_limit() {
    assert_met(&only(DISGUISED));
}

#[test]
fn what_is_hard_to_read_is_read_in_one_way() {
    assert_met(&only(UNREADABLE));
}

#[test]
fn whoever_takes_or_sends_nothing_is_gone_in_time() {
    assert_met(&only(PATIENT));
}

fn only(families: &[&str]) -> Plan {
    let names = families.iter().map(|name| (*name).to_owned()).collect();
    Plan::quick().with_names(names)
}

fn assert_met(plan: &Plan) {
    let failed = run(program(), plan).expect("servers can be run");
    assert_eq!(failed, 0, "rows of the table above failed");
}

/// A campaign that cannot see an attack pass would prove nothing.
#[test]
fn the_campaign_sees_spellings_that_pass() {
    let [settings, routes] = spellings_that_must_pass(program()).expect("servers can be run");
    assert!(settings > 0, "permissive settings");
    assert!(routes > 0, "an application with lax routes");
}
