//! `ratekeeper top`: the state of a running node, second by second, in a terminal or as one text.

mod plain;
#[cfg(feature = "top")]
mod screen;
mod stream;
#[cfg(all(test, feature = "top"))]
mod tests;
mod view;

use crate::cli::Top;
use crate::output;
use anyhow::Result;
use std::process::ExitCode;
use stream::{Event, Watch};
use view::View;

pub(super) fn run(args: Top) -> Result<ExitCode> {
    #[cfg(feature = "top")]
    if !args.once && !args.access.json && screen::is_terminal() {
        return screen::run(args.access);
    }
    once(args)
}

/// Prints the next state of the node.
fn once(args: Top) -> Result<ExitCode> {
    let mut watch = Watch::open(&args.access)?;
    let mut view = View::new(&args.access.address);
    loop {
        let event = watch.next()?;
        if let (true, Event::State(text)) = (args.access.json, &event) {
            let state: serde_json::Value = serde_json::from_str(text)?;
            output::print(&format!("{}\n", serde_json::to_string_pretty(&state)?))?;
            return Ok(ExitCode::SUCCESS);
        }
        let is_state = matches!(event, Event::State(_));
        view.apply(event)?;
        if is_state {
            output::print(&plain::text(&view))?;
            return Ok(ExitCode::SUCCESS);
        }
        if view.has_ended() {
            anyhow::bail!("{} shuts down", args.access.address);
        }
    }
}
