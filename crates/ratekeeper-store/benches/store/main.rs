//! Compares the memory store with governor, and measures its time, memory and state file.
//!
//! `cargo bench -p ratekeeper-store -- [--json] [start] [speed] [algorithms] [memory] [flood] [file]`

#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of measurements, and of tests, are rounded on purpose"
)]

mod size;
mod speed;

use std::fmt::Display;

/// Prints lines of text, or JSON objects.
pub(crate) struct Report {
    json: bool,
}

impl Report {
    pub(crate) fn title(&self, title: &str) {
        if !self.json {
            println!("\n{title}");
        }
    }

    /// Prints `text`, or `name` and its `fields` as JSON.
    pub(crate) fn line(&self, bench: &str, name: &str, text: impl Display, fields: &[(&str, f64)]) {
        if self.json {
            let fields: String = fields
                .iter()
                .map(|(name, value)| format!(r#","{name}":{value:.3}"#))
                .collect();
            println!(r#"{{"bench":"{bench}","name":"{name}"{fields}}}"#);
        } else {
            println!("{name:<44} {text}");
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --all-targets` runs this too, without measuring.
    if !arguments.iter().any(|argument| argument == "--bench") {
        println!("measures only under cargo bench, or with --bench");
        return;
    }
    let report = Report {
        json: arguments.iter().any(|argument| argument == "--json"),
    };
    let chosen: Vec<&str> = arguments
        .iter()
        .map(String::as_str)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let wants = |part: &str| chosen.is_empty() || chosen.contains(&part);
    if wants("start") {
        size::start(&report);
    }
    if wants("speed") {
        speed::beside_governor(&report);
    }
    if wants("algorithms") {
        speed::algorithms(&report);
    }
    if wants("memory") {
        size::bytes_per_counter(&report);
    }
    if wants("flood") {
        size::flood(&report);
    }
    if wants("file") {
        size::state_file(&report);
    }
}
