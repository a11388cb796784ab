//! Colours: those of the terminal's sixteen that can be read on light and dark, as in the findings
//! of `check`; without colour only bold, underlined and reversed.

use ratatui::style::{Color, Modifier, Style};

use crate::state::pane_line::Role;

/// The styles of the screen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    is_coloured: bool,
}

impl Theme {
    /// With or without colours.
    pub(crate) fn new(is_coloured: bool) -> Self {
        Self { is_coloured }
    }

    fn colour(self, colour: Color) -> Style {
        match self.is_coloured {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    /// Of a part of a line.
    pub(crate) fn of(self, role: Role) -> Style {
        match role {
            Role::Plain => Style::new(),
            Role::Strong => Style::new().add_modifier(Modifier::BOLD),
            Role::Dim => Style::new().add_modifier(Modifier::DIM),
            Role::Success => Style::new(),
            Role::Failure => self.colour(Color::Red).add_modifier(Modifier::BOLD),
            Role::Warning => self.colour(Color::Magenta).add_modifier(Modifier::BOLD),
            Role::Link => self
                .colour(Color::LightBlue)
                .add_modifier(Modifier::UNDERLINED),
        }
    }

    /// Of the first line and of headings.
    pub(super) fn bar(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Of the selected line in the half that has the keys.
    pub(crate) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Of the selected line in the other half.
    pub(super) fn marked(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }
}
