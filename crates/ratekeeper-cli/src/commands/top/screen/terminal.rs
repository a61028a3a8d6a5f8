//! The terminal while a picture is on it, and its return to what it was.

use anyhow::{Context, Result};
use ratatui::DefaultTerminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use std::io::stdout;
use std::mem::ManuallyDrop;

/// The terminal, restored when this is dropped. A panic restores it as well, before its message is printed.
pub(in super::super) struct Screen {
    /// Never dropped: it would complain to a terminal that is gone, and the program would end by a panic.
    terminal: ManuallyDrop<DefaultTerminal>,
}

impl Screen {
    /// Takes over the terminal.
    ///
    /// # Errors
    /// It cannot be drawn on.
    pub(in super::super) fn open() -> Result<Self> {
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            told(panic);
        }));
        let opened = enable_raw_mode()
            .and_then(|()| execute!(stdout(), EnterAlternateScreen))
            .and_then(|()| DefaultTerminal::new(CrosstermBackend::new(stdout())));
        match opened {
            Ok(terminal) => Ok(Self {
                terminal: ManuallyDrop::new(terminal),
            }),
            Err(error) => {
                restore();
                Err(error).context("the terminal cannot be drawn on")
            }
        }
    }

    pub(in super::super) fn terminal(&mut self) -> &mut DefaultTerminal {
        &mut self.terminal
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // After a panic its message is on the screen, which a second return would overwrite.
        if !std::thread::panicking() {
            restore();
        }
    }
}

/// Restores the terminal. One that is gone need not be restored.
pub(super) fn restore() {
    let _ = disable_raw_mode();
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
}
