//! Draws the state.

mod line;
mod list;
pub(crate) mod theme;

use cutape_render::quantity;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;

use self::line::write_line;
use self::theme::Theme;
use crate::state::help;
use crate::state::input_line::InputLine;
use crate::state::pane_line::Role;
use crate::state::reply::{Scope, Wanted};
use crate::state::{Half, SMALLEST, Screen, State, Subject};

/// Draws everything.
pub(crate) fn draw(state: &State, theme: Theme, frame: &mut Frame<'_>) {
    let area = frame.area();
    let (columns, lines) = SMALLEST;
    if area.width < columns || area.height < lines {
        let text = format!("needs {columns}x{lines}");
        frame.buffer_mut().set_string(0, 0, text, Style::new());
        return;
    }
    let list = Rect {
        y: 1,
        height: state.list_height(),
        ..area
    };
    let heading = list.bottom();
    let pane = Rect {
        y: heading + 1,
        height: state.pane_height(),
        ..area
    };
    let last = Rect {
        y: area.bottom() - 1,
        height: 1,
        ..area
    };
    let buffer = frame.buffer_mut();
    title(state, theme, Rect { height: 1, ..area }, buffer);
    if state.shows_help {
        let whole = Rect {
            y: 1,
            height: area.height - 2,
            ..area
        };
        for (line, row) in help::lines().iter().skip(state.help_top).zip(whole.rows()) {
            write_line(line, theme, row, buffer);
        }
    } else {
        match state.screen {
            Screen::Calls => list::calls(state, theme, list, buffer),
            Screen::Findings => list::findings(state, theme, list, buffer),
        }
        bar(
            &pane_title(state),
            &pane_place(state),
            theme,
            Rect {
                y: heading,
                height: 1,
                ..area
            },
            buffer,
        );
        draw_pane(state, theme, pane, buffer);
    }
    if let Some(input) = &state.input {
        let column = draw_input(state, input, theme, last, buffer);
        frame.set_cursor_position(Position::new(column, last.y));
    } else {
        last_line(state, theme, last, buffer);
    }
}

/// A text that fills a line in reverse, with another at its end.
fn bar(left: &str, right: &str, theme: Theme, area: Rect, buffer: &mut Buffer) {
    buffer.set_style(area, theme.bar());
    buffer.set_stringn(area.x, area.y, left, usize::from(area.width), theme.bar());
    let width = right.chars().count();
    let left_end = left.chars().count() + 1;
    if left_end + width <= usize::from(area.width) {
        let x = area.right() - u16::try_from(width).unwrap_or(0);
        buffer.set_string(x, area.y, right, theme.bar());
    }
}

fn title(state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let progress = &state.progress;
    let mut left = format!(" {}  ", state.name);
    let count = match state.checked.is_complete {
        true => state.findings.len().to_string(),
        false => format!("{}…", state.findings.len()),
    };
    let tab = |number, name: &str, screen| match state.screen == screen {
        true => format!("[{number} {name}]"),
        false => format!(" {number} {name} "),
    };
    left += &tab(1, "Calls", Screen::Calls);
    left += &tab(2, &format!("Findings {count}"), Screen::Findings);
    let total = quantity::grouped(progress.total);
    let right = match (progress.is_growing, progress.is_complete) {
        (true, _) if state.is_following => format!("recording, following, {total} calls "),
        (true, _) => format!("recording, {total} calls "),
        (false, true) => format!("{total} calls "),
        (false, false) => {
            let percent = (progress.scanned * 100)
                .checked_div(progress.total)
                .unwrap_or(0);
            format!("{total} calls, reading {percent} % ")
        }
    };
    bar(&left, &right, theme, area, buffer);
}

fn pane_title(state: &State) -> String {
    let scope = match (&state.list.scope, state.screen) {
        (_, Screen::Findings) | (Scope::All, _) => String::new(),
        (scope, _) => {
            let calls = quantity::grouped(state.length());
            let more = if state.list.is_done { "" } else { "…" };
            match scope {
                Scope::Set(text) => format!(" {calls}{more} of {text} │"),
                Scope::Uses(_) => {
                    let uses = if state.length() == 1 { "use" } else { "uses" };
                    format!(" {calls}{more} {uses} of {} │", state.list.title)
                }
                Scope::All => String::new(),
            }
        }
    };
    let subject = match state.pane.subject {
        Subject::Nothing => String::new(),
        Subject::Call(call) => format!(" call {call}"),
        Subject::Object(key) => format!(" {}", key.kind.name()),
        Subject::Finding(number) => format!(" finding {}", number + 1),
    };
    format!("{scope}{subject} ")
}

/// Which lines of the pane are on the screen, if not all.
fn pane_place(state: &State) -> String {
    let (height, length) = (usize::from(state.pane_height()), state.pane.lines.len());
    match length > height {
        true => format!("{}/{length} ", (state.pane.top + height).min(length)),
        false => String::new(),
    }
}

fn draw_pane(state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let has_keys = state.half == Half::Pane;
    if !state.pane.is_loaded && state.pane.subject != Subject::Nothing {
        buffer.set_string(area.x, area.y, " reading…", theme.of(Role::Dim));
        return;
    }
    let lines = state.pane.lines.iter().enumerate().skip(state.pane.top);
    for ((number, line), row) in lines.zip(area.rows()) {
        write_line(line, theme, row, buffer);
        if has_keys && number == state.pane.selected {
            buffer.set_style(row, theme.selected());
        }
    }
}

/// The line in which the user types; returns the column of the cursor.
fn draw_input(
    state: &State,
    input: &InputLine,
    theme: Theme,
    area: Rect,
    buffer: &mut Buffer,
) -> u16 {
    let prompt = input.purpose.prompt();
    let (x, _) = buffer.set_stringn(
        area.x,
        area.y,
        prompt,
        usize::from(area.width),
        theme.of(Role::Strong),
    );
    let room = usize::from(area.right().saturating_sub(x + 1));
    let skipped = input.cursor.saturating_sub(room);
    let text: String = input.text().chars().skip(skipped).collect();
    let (end, _) = buffer.set_stringn(x, area.y, text, room, Style::new());
    if let Some(message) = &state.message {
        let text = format!("  {}", message.text);
        let room = usize::from(area.right().saturating_sub(end));
        buffer.set_stringn(end, area.y, text, room, theme.of(Role::Failure));
    }
    x + u16::try_from(input.cursor - skipped).unwrap_or(0)
}

fn last_line(state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let (text, role) = match (&state.message, &state.search) {
        (_, Some(search)) if search.is_running => {
            let what = match &search.wanted {
                Wanted::Text(text) => format!("`{}`", text.escape_debug()),
                Wanted::Failure => "calls that failed".to_owned(),
            };
            let seen = quantity::grouped(search.seen);
            (
                format!("searching for {what}: {seen} calls; Esc stops"),
                Role::Plain,
            )
        }
        (Some(message), _) if message.is_error => (message.text.clone(), Role::Failure),
        (Some(message), _) => (message.text.clone(), Role::Plain),
        (None, _) => (hints(state), Role::Dim),
    };
    let width = usize::from(area.width).saturating_sub(1);
    buffer.set_stringn(area.x + 1, area.y, text, width, theme.of(role));
}

fn hints(state: &State) -> String {
    if state.shows_help {
        return "↑↓ scroll  any other key closes this help".to_owned();
    }
    let in_flight = state.progress.in_flight.first();
    if let Some(call) = in_flight.filter(|_| state.half == Half::List) {
        let more = state.progress.in_flight.len() - 1;
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        return format!(
            "in flight: call {} {} of thread {}{more}   F follow  ? help  q quit",
            call.index, call.function, call.thread
        );
    }
    let hints = match (state.half, state.screen, state.progress.is_growing) {
        (Half::Pane, _, _) => "↑↓ move  Enter follow link  Tab to the list  b back  ? help  q quit",
        (_, Screen::Findings, _) => {
            "↑↓ move  Enter to the call  Tab details  1 calls  ? help  q quit"
        }
        (_, Screen::Calls, true) => {
            "F follow  f filter  / search  Tab details  2 findings  ? help  q quit"
        }
        (_, Screen::Calls, false) => {
            "f filter  / search  e failed  Tab details  2 findings  ? help  q quit"
        }
    };
    hints.to_owned()
}
