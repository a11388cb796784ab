//! The help screen: all keys, and the syntax of filters.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::line::write_line;
use crate::view::keys::BINDINGS;
use crate::view::pane::{PaneLine, Role};
use crate::view::state::State;
use crate::view::theme::Theme;

/// The syntax of filters by example.
const FILTERS: &[(&str, &str)] = &[
    ("120, 100..200, 100..", "calls by number"),
    ("cuLaunchKernel, cuMem*", "calls of functions"),
    ("kernel:saxpy*", "launches of kernels"),
    ("range:step[2]", "calls during ranges (NVTX)"),
    ("mark:A..mark:B", "calls between marks"),
    ("thread:3", "calls of a thread"),
    ("cuMem*,kernel:fill", "a comma joins several"),
];

fn lines() -> Vec<PaneLine> {
    let line = |keys: &str, help: &str| {
        PaneLine::new(format!("  {keys:<22} "), Role::Strong).and(help, Role::Plain)
    };
    let mut lines = vec![PaneLine::new("Keys", Role::Strong)];
    lines.extend(
        BINDINGS
            .iter()
            .map(|binding| line(binding.shown, binding.help)),
    );
    lines.push(PaneLine::empty());
    lines.push(PaneLine::new("Filters", Role::Strong));
    lines.extend(FILTERS.iter().map(|(example, help)| line(example, help)));
    lines
}

/// How many lines the help has.
pub(in crate::view) fn help_height() -> usize {
    lines().len()
}

/// Draws the help.
pub(super) fn draw(state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let lines = lines();
    for (line, y) in lines
        .iter()
        .skip(state.help_top)
        .zip(area.top()..area.bottom())
    {
        let row = Rect {
            y,
            height: 1,
            ..area
        };
        write_line(line, theme, row, buffer);
    }
}
