//! Texts of a trace, so that they show what they are and do nothing else.

use std::borrow::Cow;

/// Whether a terminal or page obeys the character instead of showing it: control characters, ends of
/// lines, and what changes the direction of text around it.
pub fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// The text with such characters escaped, so that it fits on one line.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    for character in text.chars() {
        match is_unprintable(character) {
            true => clean.extend(character.escape_debug()),
            false => clean.push(character),
        }
    }
    Cow::Owned(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_is_escaped() {
        for (text, clean) in [
            ("a b", "a b"),
            ("a\n\x1b[0mß", "a\\n\\u{1b}[0mß"),
            ("\u{9b}31m\u{202e}x", "\\u{9b}31m\\u{202e}x"),
        ] {
            assert_eq!(printable(text), clean);
        }
    }
}
