//! Prints how far sliding windows are from the exact log, by their sub-windows:
//! the table that decides the default.
//!
//! ```text
//! cargo run --release -p ratekeeper-replay --example accuracy -- LOG...
//! ```
//! Logs are named in the table by their file; generated traffic comes after them.

use std::error::Error;
use std::path::PathBuf;

use ratekeeper_core::DEFAULT_SUB_WINDOWS;
use ratekeeper_replay::accuracy::{Table, requests_of_log};
use ratekeeper_replay::generate::Shape;

/// Enough that another seed changes no figure by more than a few percent of itself.
const GENERATED_REQUESTS: usize = 400_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut real = Table::default();
    for path in std::env::args_os().skip(1).map(PathBuf::from) {
        let name = path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy()
            .into_owned();
        real.add_log(&name, &requests_of_log(&path)?)?;
    }
    println!("wrongly allowed / wrongly denied against the exact log, in % of all requests\n");
    println!("{real}");
    let mut generated = Table::default();
    for shape in Shape::ALL {
        generated.add_generated(shape, GENERATED_REQUESTS)?;
    }
    println!("{generated}");
    println!("with {DEFAULT_SUB_WINDOWS} sub-windows, the default\n");
    for table in [&real, &generated] {
        println!("{}", table.detail(DEFAULT_SUB_WINDOWS));
    }
    Ok(())
}
