//! Descriptors as people type them: `key=value,key=value` of `rules explain`, and `--descriptors` and `--fields` of
//! `replay`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ratekeeper_replay::{Descriptors, Fields};
use ratekeeper_rules::entries;

fuzz_target!(|text: &str| {
    if let Ok(entries) = entries::parse(text) {
        let escape = |part: &str| part.replace('\\', r"\\").replace(',', r"\,");
        let written: Vec<String> = entries
            .iter()
            .map(|(key, value)| format!("{}={}", escape(key), escape(value)))
            .collect();
        assert_eq!(
            entries::parse(&written.join(",")),
            Ok(entries),
            "what was read is read the same again"
        );
    }
    let (fields, descriptors) = text.split_once('\n').unwrap_or(("", text));
    if let Ok(fields) = Fields::parse(fields) {
        let _ = Descriptors::parse(descriptors, &fields);
    }
});
