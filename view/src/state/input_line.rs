//! The line in which a filter, a search or a number is typed.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Filter,
    Search,
    GoTo,
}

impl Purpose {
    /// What stands before the text.
    pub(crate) fn prompt(self) -> &'static str {
        match self {
            Self::Filter => "filter: ",
            Self::Search => "/",
            Self::GoTo => "go to call: ",
        }
    }
}

/// What a key did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edit {
    /// The text has changed.
    Changed,
    /// Only the cursor has moved, or nothing.
    Nothing,
    Done,
    Cancelled,
}

/// A text with a cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InputLine {
    pub(crate) purpose: Purpose,
    characters: Vec<char>,
    /// How many characters are before the cursor.
    pub(crate) cursor: usize,
}

impl InputLine {
    /// With a text to change.
    pub(crate) fn new(purpose: Purpose, text: &str) -> Self {
        let characters: Vec<char> = text.chars().collect();
        Self {
            purpose,
            cursor: characters.len(),
            characters,
        }
    }

    /// The text.
    pub(crate) fn text(&self) -> String {
        self.characters.iter().collect()
    }

    /// Applies a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Edit {
        let before = self.characters.len();
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Enter => return Edit::Done,
            KeyCode::Esc => return Edit::Cancelled,
            KeyCode::Char('c' | 'g') if is_control => return Edit::Cancelled,
            KeyCode::Char('u') if is_control => {
                self.characters.drain(..self.cursor);
                self.cursor = 0;
            }
            KeyCode::Char('w') if is_control => {
                let text = &self.characters[..self.cursor];
                let word = text.iter().rposition(|c| !c.is_whitespace()).unwrap_or(0);
                let start = text[..word].iter().rposition(|c| c.is_whitespace());
                let start = start.map_or(0, |blank| blank + 1);
                self.characters.drain(start..self.cursor);
                self.cursor = start;
            }
            KeyCode::Char('a') if is_control => self.cursor = 0,
            KeyCode::Char('e') if is_control => self.cursor = before,
            KeyCode::Char(_) if is_control => {}
            KeyCode::Char(character) => {
                self.characters.insert(self.cursor, character);
                self.cursor += 1;
            }
            KeyCode::Backspace if before == 0 => return Edit::Cancelled,
            KeyCode::Backspace if self.cursor > 0 => {
                self.cursor -= 1;
                self.characters.remove(self.cursor);
            }
            KeyCode::Delete if self.cursor < before => {
                self.characters.remove(self.cursor);
            }
            KeyCode::Left => self.cursor = self.cursor.saturating_sub(1),
            KeyCode::Right => self.cursor = (self.cursor + 1).min(before),
            KeyCode::Home => self.cursor = 0,
            KeyCode::End => self.cursor = before,
            _ => {}
        }
        match self.characters.len() == before {
            true => Edit::Nothing,
            false => Edit::Changed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn editing() {
        let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
        let plain = |code| KeyEvent::new(code, KeyModifiers::NONE);
        use KeyCode::{Backspace, Char, Delete, End, Enter, Esc, Home, Left};
        for (keys, text, cursor, last) in [
            (vec![plain(Char('x'))], "ab cdx", 6, Edit::Changed),
            (
                vec![plain(Home), plain(Char('ä'))],
                "äab cd",
                1,
                Edit::Changed,
            ),
            (
                vec![plain(Left), plain(Backspace)],
                "ab d",
                3,
                Edit::Changed,
            ),
            (vec![plain(Home), plain(Delete)], "b cd", 0, Edit::Changed),
            (vec![plain(End), plain(Delete)], "ab cd", 5, Edit::Nothing),
            (
                vec![plain(Home), plain(Backspace)],
                "ab cd",
                0,
                Edit::Nothing,
            ),
            (vec![control('w')], "ab ", 3, Edit::Changed),
            (vec![control('w'), control('w')], "", 0, Edit::Changed),
            (vec![control('u')], "", 0, Edit::Changed),
            (vec![control('u'), plain(Backspace)], "", 0, Edit::Cancelled),
            (vec![control('a')], "ab cd", 0, Edit::Nothing),
            (vec![plain(Esc)], "ab cd", 5, Edit::Cancelled),
            (vec![control('c')], "ab cd", 5, Edit::Cancelled),
            (vec![plain(Enter)], "ab cd", 5, Edit::Done),
        ] {
            let mut line = InputLine::new(Purpose::Search, "ab cd");
            let mut edit = Edit::Nothing;
            for key in &keys {
                edit = line.press(*key);
            }
            assert_eq!(
                (line.text().as_str(), line.cursor, edit),
                (text, cursor, last),
                "{keys:?}"
            );
        }
    }
}
