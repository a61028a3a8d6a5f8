//! `ratekeeper top`: the state of running nodes, second by second, in a terminal or as one text.

mod nodes;
mod plain;
#[cfg(feature = "top")]
mod screen;
mod stream;
#[cfg(all(test, feature = "top"))]
mod tests;
mod view;

use crate::cli::{AdminAccess, Top};
use crate::output;
use anyhow::{Result, bail};
use nodes::Nodes;
use std::process::ExitCode;
use stream::{Event, Watch};
use view::Link;

/// The most nodes that are watched at a time; each has a thread.
const NODES_MAX: usize = 64;

pub(super) fn run(args: Top) -> Result<ExitCode> {
    let nodes = args.nodes();
    if nodes.len() > NODES_MAX {
        bail!("at most {NODES_MAX} nodes can be watched at a time");
    }
    #[cfg(feature = "top")]
    if !args.once && !args.json && screen::is_terminal() {
        return screen::run(nodes);
    }
    once(&nodes, args.json)
}

/// Prints the state of the nodes. Fails if one of them does not tell it, after printing those of the others.
fn once(nodes: &[AdminAccess], in_json: bool) -> Result<ExitCode> {
    // A node tells the answers of rules since its start: rates take two states. JSON has the counts themselves.
    let states = if in_json { 1 } else { 2 };
    let told = std::thread::scope(|scope| {
        let asked: Vec<_> = nodes
            .iter()
            .map(|node| scope.spawn(|| events(node, states)))
            .collect();
        let told = asked.into_iter().map(|asked| match asked.join() {
            Ok(told) => told,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        told.collect::<Vec<_>>()
    });
    match (&told[..], told.iter().any(Result::is_ok)) {
        // As any other command tells it.
        ([Err(_)], _) | (_, false) => Err(told
            .into_iter()
            .find_map(Result::err)
            .unwrap_or_else(|| anyhow::anyhow!("there is no node to ask"))),
        _ if in_json => print_json(told),
        _ => print_text(nodes, told),
    }
}

/// The events of a node up to so many states.
fn events(node: &AdminAccess, states: usize) -> Result<Vec<Event>> {
    let mut watch = Watch::open(node)?;
    let mut events = Vec::new();
    let mut left = states;
    while left > 0 {
        match watch.next()? {
            Event::End => bail!("{} shuts down", node.address),
            event => {
                left -= usize::from(matches!(event, Event::State(_)));
                events.push(event);
            }
        }
    }
    Ok(events)
}

/// Prints the state of a single node as it is, those of several as a list.
fn print_json(told: Vec<Result<Vec<Event>>>) -> Result<ExitCode> {
    let (is_one, mut states) = (told.len() == 1, Vec::new());
    let mut code = ExitCode::SUCCESS;
    for told in told {
        match told.map(|mut events| events.pop()) {
            Ok(Some(Event::State(text))) => {
                states.push(serde_json::from_str::<serde_json::Value>(&text)?);
            }
            Ok(_) => {}
            Err(why) => {
                output::complain(&format!("{why:#}"));
                code = ExitCode::FAILURE;
            }
        }
    }
    let all = match (is_one, &states[..]) {
        (true, [state]) => state.clone(),
        _ => states.into(),
    };
    output::print(&format!("{}\n", serde_json::to_string_pretty(&all)?))?;
    Ok(code)
}

fn print_text(nodes: &[AdminAccess], told: Vec<Result<Vec<Event>>>) -> Result<ExitCode> {
    let mut shown = Nodes::new(nodes.iter().map(|node| &*node.address));
    let mut code = ExitCode::SUCCESS;
    for (number, told) in told.into_iter().enumerate() {
        let Some(view) = shown.view(number) else {
            continue;
        };
        match told {
            Ok(events) => events.into_iter().try_for_each(|event| view.apply(event))?,
            Err(why) => {
                view.link = Link::broken(&why, 0);
                code = ExitCode::FAILURE;
            }
        }
    }
    output::print(&plain::text(&shown))?;
    Ok(code)
}
