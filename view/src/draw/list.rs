//! The upper half of the screen: calls or findings, one a line.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::line::write_line;
use super::theme::Theme;
use crate::state::finding_lines::role;
use crate::state::pane_line::{PaneLine, Role};
use crate::state::row::{Outcome, Row};
use crate::state::{Half, State};

/// On narrower screens, calls have no times.
const WITH_TIMES: u16 = 100;

/// Draws the calls on the screen.
pub(super) fn calls(state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    if state.length() == 0 {
        let text = match (
            state.list.is_done || state.progress.is_complete,
            &state.progress,
        ) {
            (true, _) => " no calls",
            (false, progress) if progress.is_growing => " no calls yet",
            (false, _) => " reading…",
        };
        buffer.set_string(area.x, area.y, text, theme.of(Role::Dim));
        return;
    }
    let digits = state.progress.total.max(1).ilog10() as usize + 1;
    for (line, row) in (state.list.top..).zip(area.rows()) {
        let Some(call) = state.call_at(line) else {
            break;
        };
        match state.rows.get(&call) {
            Some(known) => write_call(known, digits, theme, row, buffer),
            None => {
                let text = PaneLine::new(format!(" {call:>digits$} …"), Role::Dim);
                write_line(&text, theme, row, buffer);
            }
        }
        if line == state.list.selected {
            mark(state, theme, row, buffer);
        }
    }
}

/// Marks the selected line.
fn mark(state: &State, theme: Theme, row: Rect, buffer: &mut Buffer) {
    match state.half {
        Half::List => buffer.set_style(row, theme.selected()),
        Half::Pane => {
            buffer.set_style(row, theme.marked());
            buffer.set_string(row.x, row.y, ">", theme.of(Role::Strong));
        }
    }
}

/// `120 @0 cuMemAlloc_v2(…) → dptr = 0x7f…`, and of a call that failed the result at the end.
fn write_call(call: &Row, digits: usize, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let mut side = format!(" {:>digits$} @{} ", call.index, call.thread);
    if let Some(time) = call.time.filter(|_| area.width >= WITH_TIMES) {
        side += &format!(
            "{:>12} ",
            format!("+{}.{:03}ms", time / 1_000_000, time / 1000 % 1000)
        );
    }
    let name = match call.outcome {
        Outcome::Success => Role::Strong,
        _ => Role::Failure,
    };
    let mut line = PaneLine::new(side, Role::Dim)
        .and(&*call.function, name)
        .and(format!("({})", call.arguments), Role::Plain);
    if !call.outputs.is_empty() {
        line = line.and(format!(" → {}", call.outputs), Role::Plain);
    }
    let behind = write_line(&line, theme, area, buffer);
    let end = match &call.outcome {
        Outcome::Success => return,
        Outcome::Failure(result) => format!(" = {result}"),
        Outcome::InFlight => " did not return".to_owned(),
    };
    let width = u16::try_from(end.chars().count()).unwrap_or(0);
    let mut start = area.right().saturating_sub(width).min(behind);
    // Over the end of the arguments, but not over the function's name.
    let name = digits + 6 + call.function.chars().count();
    start = start.max(area.x + u16::try_from(name).unwrap_or(0));
    if start < behind {
        buffer.set_string(start.saturating_sub(1), area.y, "…", theme.of(Role::Plain));
    }
    let room = usize::from(area.right().saturating_sub(start));
    buffer.set_stringn(start, area.y, end, room, theme.of(Role::Failure));
}

/// Draws the findings on the screen.
pub(super) fn findings(state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    if state.findings.is_empty() {
        let text = match (state.checked.is_complete, state.checked.omitted.as_str()) {
            (true, "") => " no findings".to_owned(),
            (true, omitted) => format!(" no findings; not shown: {omitted}"),
            (false, _) => format!(" checking: {} calls, no findings yet", state.checked.calls),
        };
        buffer.set_string(area.x, area.y, text, theme.of(Role::Dim));
        return;
    }
    let findings = state.findings.iter().enumerate().skip(state.finding_top);
    for ((number, finding), row) in findings.zip(area.rows()) {
        let at = match &finding.call {
            Some(call) => format!("call {}", call.index),
            None => "at the end".to_owned(),
        };
        let line = PaneLine::new(format!(" {at:<11} "), Role::Dim)
            .and(
                format!("{:<8}", finding.severity.word()),
                role(finding.severity),
            )
            .and(&*finding.title, Role::Plain)
            .and(format!("  {}", finding.rule), Role::Dim);
        write_line(&line, theme, row, buffer);
        if number == state.finding {
            mark(state, theme, row, buffer);
        }
    }
}
