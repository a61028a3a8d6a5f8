//! The state of a node in a terminal.

mod draw;

pub(super) use draw::draw;

use super::stream::{Event, Watch};
use super::view::{Link, View};
use crate::cli::AdminAccess;
use anyhow::Result;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

/// The longest time until a key or an event is seen.
const TICK: Duration = Duration::from_millis(100);

/// The pauses between tries to reach the node, in seconds; the last one repeats.
const PAUSES: [u64; 5] = [1, 2, 4, 8, 15];

/// Events that wait for the screen.
const EVENTS_MAX: usize = 16;

/// News of the node.
enum News {
    Told(Event),
    /// It cannot be watched, because of this; the next try is this many seconds away.
    Lost(String, u64),
}

/// Returns true if there is somebody to watch, and keys to be pressed.
pub(super) fn is_terminal() -> bool {
    std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
}

/// Shows the node until a key ends it.
pub(super) fn run(access: AdminAccess) -> Result<ExitCode> {
    // A service that is not there, or refuses, is told as any other command tells it.
    let first = Watch::open(&access)?;
    let mut view = View::new(&access.address);
    let (sender, news) = sync_channel(EVENTS_MAX);
    // It ends with the process.
    std::thread::spawn(move || follow(&access, first, &sender));
    // Restores the terminal in a panic, too.
    let mut terminal = ratatui::init();
    let ended = show(&mut terminal, &mut view, &news);
    ratatui::restore();
    ended.map(|()| ExitCode::SUCCESS)
}

fn show(terminal: &mut DefaultTerminal, view: &mut View, news: &Receiver<News>) -> Result<()> {
    let mut first_row = 0;
    loop {
        terminal.draw(|frame| draw(frame, view, first_row))?;
        if event::poll(TICK)?
            && let event::Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            let last = view.rows.len().saturating_sub(1);
            match key.code {
                _ if ends(key) => return Ok(()),
                KeyCode::Down | KeyCode::Char('j') => first_row = (first_row + 1).min(last),
                KeyCode::Up | KeyCode::Char('k') => first_row = first_row.saturating_sub(1),
                KeyCode::Home => first_row = 0,
                _ => {}
            }
        }
        loop {
            match news.try_recv() {
                Ok(News::Told(event)) => view.apply(event)?,
                Ok(News::Lost(why, pause)) => view.link = Link::Lost(why, pause),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
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

/// Passes on what the node tells, and tries again when it does not.
fn follow(access: &AdminAccess, first: Watch, news: &SyncSender<News>) {
    let mut watch = Ok(first);
    let mut tries = 0;
    loop {
        let why = match watch {
            Ok(watch) => pass_on(watch, news, &mut tries),
            Err(error) => Some(error),
        };
        let Some(why) = why else { return };
        let pause = PAUSES[tries.min(PAUSES.len() - 1)];
        tries += 1;
        if news.send(News::Lost(format!("{why:#}"), pause)).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_secs(pause));
        watch = Watch::open(access);
    }
}

/// Returns the reason why the stream has ended; [`None`] if nobody looks any more.
fn pass_on(mut watch: Watch, news: &SyncSender<News>, tries: &mut usize) -> Option<anyhow::Error> {
    loop {
        match watch.next() {
            Ok(event) => {
                *tries = 0;
                news.send(News::Told(event)).ok()?;
            }
            Err(error) => return Some(error),
        }
    }
}
