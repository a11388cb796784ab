//! `cutape view`: browses a trace in the terminal.
//!
//! `state` and `update` are what is shown and how keys and replies change it; they know no terminal
//! and no trace, and are tested so. `draw` draws the state. `engine` runs the threads that read the
//! trace, and `shared` lets them read from any call on.

mod call_pane;
mod draw;
mod engine;
mod find;
mod findings;
mod input_line;
mod keys;
mod object_key;
mod object_pane;
mod pane;
mod reply;
mod row;
mod scan;
mod shared;
mod state;
mod terminal;
#[cfg(test)]
mod tests;
mod theme;
mod update;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use self::engine::{Engine, Said};
use self::reply::{Request, Scope};
use self::shared::SharedTrace;
use self::state::State;
use self::terminal::{Outside, Terminal};
use self::theme::Theme;
use cutape_calls::{self, CallSet};
use cutape_terminal::failure::{BUG, Failure};
use cutape_terminal::input::Completeness;
use cutape_terminal::output;

/// What `view` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The trace. One that a program is being recorded to is followed.
    trace: PathBuf,
    /// Show only these calls at first. The key f changes it.
    #[arg(long, value_name = "SET", long_help = cutape_calls::help(
        "Show only these calls at first. The key f changes it."
    ))]
    calls: Option<String>,
}

/// What ends or changes the view.
enum Message {
    Outside(Outside),
    Said(Said),
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Failure::unusable(format!(
            "view needs a terminal for input and output; `cutape dump {}` prints the calls",
            output::shown(&arguments.trace)
        )));
    }
    let shared = Arc::new(SharedTrace::open(&arguments.trace)?);
    if let Some(text) = &arguments.calls {
        let trace = shared.trace();
        let set = CallSet::for_trace(text, &trace)?;
        // A program that still runs may make such calls later.
        if !trace.is_still_recorded() && set.calls(&trace).next().is_none() {
            return Err(set.unmatched(text, &trace).into());
        }
    }
    let is_coloured = output::coloured();
    // The library looks at NO_COLOR itself.
    ratatui::crossterm::style::force_color_output(is_coloured);
    let theme = Theme::new(is_coloured);
    let name = arguments
        .trace
        .file_name()
        .unwrap_or(arguments.trace.as_os_str());
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
        }) as engine::Listener),
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
        theme,
    };
    if let Some(missing) = missing {
        viewer.state.complain(missing);
    }
    if let Some(text) = arguments.calls {
        let requests = viewer.state.show_scope(Scope::Set(text), None);
        viewer.ask(requests).map_err(terminal)?;
    }
    viewer.run(&messages).map_err(terminal)
}

struct Viewer {
    state: State,
    engine: Engine,
    screen: Terminal,
    theme: Theme,
}

impl Viewer {
    /// Draws and takes messages until the user quits.
    fn run(&mut self, messages: &Receiver<Message>) -> io::Result<ExitCode> {
        loop {
            let (state, theme) = (&self.state, self.theme);
            self.screen.draw(|frame| draw::draw(state, theme, frame))?;
            let Ok(first) = messages.recv() else {
                return Ok(ExitCode::from(BUG));
            };
            // All that has come meanwhile, before the screen is drawn again.
            for message in std::iter::once(first).chain(messages.try_iter()) {
                if let Some(status) = self.take(message)? {
                    return Ok(status);
                }
            }
        }
    }

    /// Applies a message; returns the exit status if it is the last.
    fn take(&mut self, message: Message) -> io::Result<Option<ExitCode>> {
        let requests = match message {
            Message::Outside(Outside::Event(event)) => self.state.handle(&event),
            Message::Outside(Outside::Signal(signal)) => {
                // As a shell shows a program that a signal ended.
                let status = u8::try_from(128 + signal).unwrap_or(BUG);
                return Ok(Some(ExitCode::from(status)));
            }
            Message::Outside(Outside::Lost(error)) => return Err(error),
            Message::Said(Said::Reply(reply)) => self.state.receive(reply),
            Message::Said(Said::Bug) => return Ok(Some(ExitCode::from(BUG))),
        };
        self.ask(requests)?;
        Ok(self.state.has_ended.then_some(ExitCode::SUCCESS))
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
