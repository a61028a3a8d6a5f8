//! Access-log lines: any bytes are a record or a malformed line, whatever format the lines before had.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ratekeeper_replay::{Fields, Format, LineParser};

fuzz_target!(|text: &[u8]| {
    for format in [
        None,
        Some(Format::Common),
        Some(Format::Combined),
        Some(Format::Json),
    ] {
        let mut parser = LineParser::new(format, Fields::default());
        for line in text.split(|byte| *byte == b'\n').take(16) {
            let _ = parser.parse(line);
        }
    }
});
