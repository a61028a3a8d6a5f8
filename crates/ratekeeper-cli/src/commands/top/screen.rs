//! The state of nodes in a terminal.

mod draw;
mod interrupted;
pub(super) mod terminal;

pub(super) use draw::draw;

use super::nodes::Nodes;
use super::stream::{Event, Watch};
use super::view::Link;
use crate::cli::AdminAccess;
use anyhow::Result;
use ratatui::crossterm::event::{self, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;
use terminal::Screen;

/// The longest time until a key or an event is seen.
const TICK: Duration = Duration::from_millis(100);

/// The pauses between tries to reach a node, in seconds; the last one repeats.
const PAUSES: [u64; 5] = [1, 2, 4, 8, 15];

/// Events that wait for the screen.
const EVENTS_MAX: usize = 16;

/// News for the screen; nodes have numbers.
enum News {
    Told(usize, Event),
    /// A node cannot be watched.
    Broken(usize, Link),
    /// A signal ends the program, with this code.
    Interrupted(u8),
}

/// Returns true if there is somebody to watch, and keys to be pressed.
pub(super) fn is_terminal() -> bool {
    std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
}

/// Shows the nodes until a key or a signal ends it.
pub(super) fn run(nodes: Vec<AdminAccess>) -> Result<ExitCode> {
    let mut first: Vec<Result<Watch>> = nodes.iter().map(Watch::open).collect();
    if first.iter().all(Result::is_err) {
        // A service that is not there, or refuses, is told as any other command tells it.
        first.truncate(1);
        if let Some(Err(why)) = first.pop() {
            return Err(why);
        }
    }
    let mut shown = Nodes::new(nodes.iter().map(|node| &*node.address));
    let (sender, news) = sync_channel(EVENTS_MAX);
    // Before the terminal is changed: no signal may end the program while it is.
    interrupted::tell(sender.clone())?;
    for (number, (node, first)) in nodes.into_iter().zip(first).enumerate() {
        let sender = sender.clone();
        // It ends with the process.
        std::thread::spawn(move || follow(number, &node, first, &sender));
    }
    drop(sender);
    let mut screen = Screen::open()?;
    show(&mut screen, &mut shown, &news)
}

fn show(screen: &mut Screen, nodes: &mut Nodes, news: &Receiver<News>) -> Result<ExitCode> {
    let mut first_row = 0;
    loop {
        screen
            .terminal()
            .draw(|frame| draw(frame, nodes, first_row))?;
        if event::poll(TICK)?
            && let event::Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            let last = nodes.with_shown(|view| view.rows.len().saturating_sub(1));
            match key.code {
                _ if ends(key) => return Ok(ExitCode::SUCCESS),
                KeyCode::Down | KeyCode::Char('j') => first_row = (first_row + 1).min(last),
                KeyCode::Up | KeyCode::Char('k') => first_row = first_row.saturating_sub(1),
                KeyCode::Home => first_row = 0,
                _ => {}
            }
        }
        loop {
            let (number, taken) = match news.try_recv() {
                Ok(News::Told(number, event)) => (number, Ok(event)),
                Ok(News::Broken(number, link)) => (number, Err(link)),
                Ok(News::Interrupted(code)) => return Ok(ExitCode::from(code)),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            };
            let Some(view) = nodes.view(number) else {
                continue;
            };
            match taken {
                Ok(event) => view.apply(event)?,
                Err(broken) => view.link = broken,
            }
        }
    }
}

/// Returns true for the keys that end it; in raw mode Ctrl-C is one.
fn ends(key: KeyEvent) -> bool {
    let is_interrupt =
        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

/// Passes on what a node tells, and tries again when it does not.
fn follow(number: usize, node: &AdminAccess, first: Result<Watch>, news: &SyncSender<News>) {
    let mut watch = first;
    let mut tries = 0;
    loop {
        let why = match watch {
            Ok(watch) => pass_on(number, watch, news, &mut tries),
            Err(error) => Some(error),
        };
        let Some(why) = why else { return };
        let pause = PAUSES[tries.min(PAUSES.len() - 1)];
        tries += 1;
        let broken = News::Broken(number, Link::broken(&why, pause));
        if news.send(broken).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_secs(pause));
        watch = Watch::open(node);
    }
}

/// Returns the reason why the stream has ended; [`None`] if the screen is closed.
fn pass_on(
    number: usize,
    mut watch: Watch,
    news: &SyncSender<News>,
    tries: &mut usize,
) -> Option<anyhow::Error> {
    loop {
        match watch.next() {
            Ok(event) => {
                *tries = 0;
                news.send(News::Told(number, event)).ok()?;
            }
            Err(error) => return Some(error),
        }
    }
}
