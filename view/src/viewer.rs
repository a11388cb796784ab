//! The viewer: takes events and replies, and draws the state after them.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use cutape_calls::CallSet;
use cutape_terminal::failure::Failure;
use cutape_terminal::input::Completeness;
use cutape_terminal::output;

use crate::draw;
use crate::draw::theme::Theme;
use crate::engine::Engine;
use crate::engine::shared::SharedTrace;
use crate::engine::worker::{Listener, Said};
use crate::state::State;
use crate::state::reply::{Request, Scope};
use crate::terminal::{self, Outside, Terminal};

/// What to show, and how.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// The trace. One that a program is being recorded to is followed.
    pub trace: &'a Path,
    /// Show only these calls at first: the value of `--calls`.
    pub calls: Option<&'a str>,
    /// Select this call at first, or the first one after it.
    pub at: Option<u64>,
    /// With or without colours.
    pub is_coloured: bool,
}

/// What ended the viewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The user.
    Quit,
    /// A signal, by its number.
    Signal(i32),
    /// A thread panicked; its message is on stderr.
    Bug,
}

/// What ends or changes the view.
enum Message {
    Outside(Outside),
    Said(Said),
}

/// Shows a trace in the terminal of stdin and stdout, until the user quits or a signal comes.
///
/// # Errors
/// If the trace cannot be read, has no such calls, or the terminal cannot be used.
pub fn run(settings: &Settings<'_>) -> Result<End, Failure> {
    let shared = Arc::new(SharedTrace::open(settings.trace)?);
    if let Some(text) = settings.calls {
        let trace = shared.trace();
        let set = CallSet::for_trace(text, &trace)?;
        // A program that still runs may make such calls later.
        if !trace.is_still_recorded() && set.calls(&trace).next().is_none() {
            return Err(set.unmatched(text, &trace).into());
        }
    }
    // The library looks at NO_COLOR itself.
    ratatui::crossterm::style::force_color_output(settings.is_coloured);
    let name = settings.trace.file_name();
    let name = name.unwrap_or(settings.trace.as_os_str());
    let mut name = output::printable(&name.to_string_lossy()).into_owned();
    // What is said on stderr is behind the screen.
    let missing = Completeness::of(&shared.trace()).end_line();
    if missing.is_some() {
        name += " (recording ended early)";
    }
    let terminal =
        |error: io::Error| Failure::unusable(format!("cannot use the terminal: {error}"));

    let (sender, messages) = channel();
    let said = sender.clone();
    // The receiver is there until the process ends.
    let engine = Engine::start(
        &shared,
        &(Arc::new(move |what| {
            let _ = said.send(Message::Said(what));
        }) as Listener),
    );
    let screen = Terminal::enter().map_err(terminal)?;
    terminal::listen(Arc::new(move |outside| {
        sender.send(Message::Outside(outside)).is_ok()
    }))
    .map_err(terminal)?;
    let size = ratatui::crossterm::terminal::size().map_err(terminal)?;
    let mut viewer = Viewer {
        state: State::new(name, size),
        engine,
        screen,
        theme: Theme::new(settings.is_coloured),
    };
    if let Some(missing) = missing {
        viewer.state.complain(missing);
    }
    let scope = match settings.calls {
        Some(text) => Scope::Set(text.to_owned()),
        None => Scope::All,
    };
    let requests = viewer.state.show_scope(scope, settings.at);
    viewer.ask(requests).map_err(terminal)?;
    viewer.run(&messages).map_err(terminal)
}

struct Viewer {
    state: State,
    engine: Engine,
    screen: Terminal,
    theme: Theme,
}

impl Viewer {
    /// Draws and takes messages until the viewer ends.
    fn run(&mut self, messages: &Receiver<Message>) -> io::Result<End> {
        loop {
            let (state, theme) = (&self.state, self.theme);
            self.screen.draw(|frame| draw::draw(state, theme, frame))?;
            let Ok(first) = messages.recv() else {
                return Ok(End::Bug);
            };
            // All that has come meanwhile, before the screen is drawn again.
            for message in std::iter::once(first).chain(messages.try_iter()) {
                if let Some(end) = self.take(message)? {
                    return Ok(end);
                }
            }
        }
    }

    /// Applies a message; returns what ends the viewer, if it is the last.
    fn take(&mut self, message: Message) -> io::Result<Option<End>> {
        let requests = match message {
            Message::Outside(Outside::Event(event)) => self.state.handle(&event),
            Message::Outside(Outside::Signal(signal)) => return Ok(Some(End::Signal(signal))),
            Message::Outside(Outside::Lost(error)) => return Err(error),
            Message::Said(Said::Reply(reply)) => self.state.receive(reply),
            Message::Said(Said::Bug) => return Ok(Some(End::Bug)),
        };
        self.ask(requests)?;
        Ok(self.state.has_ended.then_some(End::Quit))
    }

    fn ask(&mut self, requests: Vec<Request>) -> io::Result<()> {
        for request in requests {
            match request {
                Request::Suspend => self.screen.suspend()?,
                request => self.engine.ask(request),
            }
        }
        Ok(())
    }
}
