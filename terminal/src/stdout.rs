//! Stdout, on which nothing that a trace holds acts as a command of the terminal.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, StdoutLock, Write};

use cutape_render::text::is_unprintable;

/// Stdout, with the characters escaped that a terminal obeys instead of showing them: as `\u001b`,
/// which JSON reads as the character.
#[derive(Debug)]
pub struct Stdout {
    out: StdoutLock<'static>,
    colours: bool,
    /// The beginning of a character or of a colour, the rest of which comes with the next write.
    begun: Vec<u8>,
}

/// Stdout of results without colours.
pub fn stdout() -> Stdout {
    coloured_stdout(false)
}

/// Stdout of results that may have colours. Texts of a trace are not to have any: what is written
/// escapes them itself.
pub fn coloured_stdout(colours: bool) -> Stdout {
    Stdout {
        #[expect(clippy::disallowed_methods, reason = "this is the one that escapes")]
        out: io::stdout().lock(),
        colours,
        begun: Vec::new(),
    }
}

impl Stdout {
    /// Whether it is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.out.is_terminal()
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t');
        if self.begun.is_empty() && bytes.iter().all(is_plain) {
            self.out.write_all(bytes)?;
            return Ok(bytes.len());
        }
        self.begun.extend_from_slice(bytes);
        let (clean, length) = inert(&self.begun, self.colours);
        self.out.write_all(clean.as_bytes())?;
        self.begun.drain(..length);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        for byte in std::mem::take(&mut self.begun) {
            match byte.is_ascii() {
                true => self
                    .out
                    .write_all(escaped(&char::from(byte).to_string()).as_bytes())?,
                false => self.out.write_all("\u{fffd}".as_bytes())?,
            }
        }
        self.out.flush()
    }
}

/// The text without characters that a terminal obeys.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    text.chars().for_each(|c| push(c, &mut clean));
    Cow::Owned(clean)
}

/// Whether a terminal obeys the character, other than the ends of lines and columns.
fn acts(character: char) -> bool {
    is_unprintable(character) && character != '\n' && character != '\t'
}

fn push(character: char, clean: &mut String) {
    match acts(character) {
        // Writing to a string cannot fail. All of these have at most four digits.
        true => drop(write!(clean, "\\u{:04x}", u32::from(character))),
        false => clean.push(character),
    }
}

/// Inert text of the bytes, and how many of them it is: what is left may go on.
fn inert(bytes: &[u8], colours: bool) -> (String, usize) {
    let mut clean = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while !rest.is_empty() {
        match colour(rest).filter(|_| colours) {
            Some(Colour::Begun) => break,
            Some(Colour::Whole(text)) => {
                clean.push_str(text);
                rest = &rest[text.len()..];
                continue;
            }
            None => {}
        }
        let next = rest.iter().skip(1).position(|&byte| byte == ESCAPE);
        let (run, later) = rest.split_at(next.map_or(rest.len(), |next| next + 1));
        for chunk in run.utf8_chunks() {
            chunk.valid().chars().for_each(|c| push(c, &mut clean));
            let wrong = chunk.invalid();
            let is_begun = str::from_utf8(wrong).is_err_and(|error| error.error_len().is_none());
            if is_begun && later.is_empty() {
                return (clean, bytes.len() - wrong.len());
            }
            clean.extend((!wrong.is_empty()).then_some(char::REPLACEMENT_CHARACTER));
        }
        rest = later;
    }
    (clean, bytes.len() - rest.len())
}

const ESCAPE: u8 = 0x1b;

/// What begins with the escape character and may select a colour.
enum Colour<'t> {
    Begun,
    Whole(&'t str),
}

/// A sequence as `ESC [ 1 ; 31 m`.
fn colour(bytes: &[u8]) -> Option<Colour<'_>> {
    let numbers = match bytes {
        [ESCAPE] => return Some(Colour::Begun),
        [ESCAPE, b'[', numbers @ ..] => numbers,
        _ => return None,
    };
    let is_number = |byte: &u8| byte.is_ascii_digit() || *byte == b';';
    match numbers.iter().position(|byte| !is_number(byte)) {
        None if bytes.len() < LONGEST_COLOUR => Some(Colour::Begun),
        Some(length) if length + 3 <= LONGEST_COLOUR && numbers[length] == b'm' => {
            let text = &bytes[..length + 3];
            Some(Colour::Whole(str::from_utf8(text).ok()?))
        }
        _ => None,
    }
}

/// No colour of ours is longer.
const LONGEST_COLOUR: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written if the bytes come in two writes, divided anywhere.
    fn written(bytes: &[u8], colours: bool) -> String {
        let all = |cut: usize| {
            let (mut clean, length) = inert(&bytes[..cut], colours);
            let (more, _) = inert(&bytes[length..], colours);
            clean += &more;
            clean
        };
        let whole = all(bytes.len());
        for cut in 0..bytes.len() {
            assert_eq!(all(cut), whole, "{bytes:?} divided at {cut}");
        }
        whole
    }

    #[test]
    fn nothing_acts_on_a_terminal() {
        for (text, expected) in [
            ("plain\tß…\n", "plain\tß…\n"),
            ("\x1b[31mred\x1b[0m", "\\u001b[31mred\\u001b[0m"),
            ("\x1b]52;c;YQ==\x07", "\\u001b]52;c;YQ==\\u0007"),
            (
                "\u{9b}31m \u{202e}\r\u{7f}",
                "\\u009b31m \\u202e\\u000d\\u007f",
            ),
        ] {
            assert_eq!(written(text.as_bytes(), false), expected);
            assert_eq!(escaped(text), expected);
        }
        assert_eq!(written(b"a\x9b31mb\xffc", false), "a\u{fffd}31mb\u{fffd}c");
    }

    #[test]
    fn colours_alone_pass_where_there_are_some() {
        for (text, expected) in [
            ("\x1b[1;31mred\x1b[0m\n", "\x1b[1;31mred\x1b[0m\n"),
            ("\x1b[2J\x1b[0m", "\\u001b[2J\x1b[0m"),
            ("\x1b]8;;http://x\x1b\\", "\\u001b]8;;http://x\\u001b\\"),
            ("ß\x1b[31;;m\u{9b}m", "ß\x1b[31;;m\\u009bm"),
            ("\x1b[1111111111111111111m", "\\u001b[1111111111111111111m"),
        ] {
            assert_eq!(written(text.as_bytes(), true), expected);
        }
    }
}
