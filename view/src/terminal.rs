//! The terminal: entered and left in one place, whatever ends the viewer.

use std::io;
use std::panic;
use std::sync::Arc;
use std::thread;

use ratatui::DefaultTerminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::{execute, terminal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

/// The terminal while the viewer draws on it; restored when dropped, and by a panic before its
/// message.
pub(crate) struct Terminal {
    inner: DefaultTerminal,
}

/// What comes from outside.
pub(crate) enum Outside {
    Event(Event),
    /// The terminal cannot be read any more.
    Lost(io::Error),
    Signal(i32),
}

impl Terminal {
    /// Switches the terminal to its other screen, without echo.
    pub(crate) fn enter() -> io::Result<Self> {
        // ratatui's own hook panics where stderr cannot be written.
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let _ = ratatui::try_restore();
            hook(info);
        }));
        let inner = set_up()?;
        Ok(Self { inner })
    }

    /// Draws, and erases what is not drawn.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        self.inner.draw(draw)?;
        Ok(())
    }

    /// Gives the terminal back to the shell, until the shell continues this process.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        self.inner.show_cursor()?;
        ratatui::try_restore()?;
        low_level::emulate_default_handler(SIGTSTP)?;
        self.inner = set_up()?;
        // All is drawn again. `clear` would ask the terminal for its cursor, whose answer the thread
        // that listens to keys takes.
        let size = self.inner.size()?;
        self.inner.resize(size.into())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = ratatui::try_restore();
    }
}

fn set_up() -> io::Result<DefaultTerminal> {
    terminal::enable_raw_mode()?;
    #[expect(
        clippy::disallowed_methods,
        reason = "cells of ratatui have no control characters"
    )]
    let mut stdout = io::stdout();
    execute!(stdout, terminal::EnterAlternateScreen)?;
    ratatui::Terminal::new(CrosstermBackend::new(stdout))
}

/// Listens to keys and signals, in threads that end with the process.
pub(crate) fn listen(listener: Arc<dyn Fn(Outside) -> bool + Send + Sync>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT])?;
    let tell = Arc::clone(&listener);
    thread::Builder::new().spawn(move || {
        for signal in signals.forever() {
            tell(Outside::Signal(signal));
        }
    })?;
    thread::Builder::new().spawn(move || {
        loop {
            let (outside, is_lost) = match event::read() {
                Ok(event) => (Outside::Event(event), false),
                Err(error) => (Outside::Lost(error), true),
            };
            if !listener(outside) || is_lost {
                return;
            }
        }
    })?;
    Ok(())
}
