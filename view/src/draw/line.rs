//! Writes a line of parts.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::theme::Theme;
use crate::state::pane_line::PaneLine;

/// Writes the parts of a line; returns the column behind it.
pub(super) fn write_line(line: &PaneLine, theme: Theme, area: Rect, buffer: &mut Buffer) -> u16 {
    let mut x = area.x;
    for (text, role) in &line.parts {
        let room = usize::from(area.right().saturating_sub(x));
        (x, _) = buffer.set_stringn(x, area.y, text, room, theme.of(*role));
    }
    x
}
