//! The terminal: entered and left in one place, whatever ends the viewer.

use std::io::{self, Stdout};
use std::sync::Arc;
use std::thread;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

/// The terminal while the viewer draws on it; restored when dropped, and by a panic before its
/// message.
pub(super) struct Terminal {
    inner: ratatui::Terminal<CrosstermBackend<Stdout>>,
}

/// What comes from outside.
pub(super) enum Outside {
    Event(Event),
    /// The terminal cannot be read any more.
    Lost(io::Error),
    Signal(i32),
}

impl Terminal {
    /// Switches the terminal to its other screen, without echo.
    pub(super) fn enter() -> io::Result<Self> {
        Ok(Self {
            inner: ratatui::try_init()?,
        })
    }

    /// Draws, and erases what is not drawn.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        self.inner.draw(draw)?;
        Ok(())
    }

    /// Gives the terminal back to the shell, until the shell continues this process.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        self.inner.show_cursor()?;
        ratatui::try_restore()?;
        low_level::emulate_default_handler(SIGTSTP)?;
        self.inner = ratatui::try_init()?;
        // All is drawn again. `clear` would ask the terminal for its cursor, whose answer the thread
        // that listens to keys takes.
        let size = self.inner.size()?;
        self.inner.resize(size.into())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Listens to keys and signals, in threads that end with the process.
pub(super) fn listen(listener: Arc<dyn Fn(Outside) -> bool + Send + Sync>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT])?;
    let tell = Arc::clone(&listener);
    thread::spawn(move || {
        for signal in signals.forever() {
            tell(Outside::Signal(signal));
        }
    });
    thread::spawn(move || {
        loop {
            let (outside, is_lost) = match event::read() {
                Ok(event) => (Outside::Event(event), false),
                Err(error) => (Outside::Lost(error), true),
            };
            if !listener(outside) || is_lost {
                return;
            }
        }
    });
    Ok(())
}
