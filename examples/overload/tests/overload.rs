//! Runs the example both ways.

use std::process::Command;

/// The goodput under overload, and the part of critical requests that succeeded, both in percent.
fn percentages(how: &str) -> [u32; 2] {
    let mut command = Command::new(env!("CARGO_BIN_EXE_example-overload"));
    let said = command.env_clear().args([how, "6"]).output();
    let said = said.expect("it runs");
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success(), "{text}");
    let last = text.lines().last().expect("it ends with a summary");
    let mut numbers = last.split(['%', ' ']).filter_map(|word| word.parse().ok());
    let mut next = || numbers.next().unwrap_or_else(|| panic!("{last}"));
    [next(), next()]
}

#[test]
fn shedding_rescues_what_collapses_without_it() {
    let [collapse, rescue] = ["collapse", "rescue"].map(percentages);
    let told = format!("{collapse:?} without, {rescue:?} with");
    assert!(collapse[0] < 50 && collapse[1] < 50, "{told}");
    assert!(rescue[0] >= 70 && rescue[1] >= 80, "{told}");
}
