//! Splits PTX text into words, numbers, strings and marks (PTX ISA, "Syntax").

use crate::problem::Problem;

/// One piece of a PTX text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// `.name`, without the dot.
    Directive(&'a [u8]),
    /// An identifier, or an instruction with its dotted parts.
    Word(&'a [u8]),
    /// A literal as written.
    Number(&'a [u8]),
    /// What stands between quotation marks.
    Text,
    /// Any other character.
    Mark(u8),
    /// Behind the last one.
    End,
}

/// Hands out tokens one after the other, with one of look-ahead.
pub(super) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    line: u32,
    /// The next token and the line that it stands on.
    ahead: (Token<'a>, u32),
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a [u8]) -> Result<Self, Problem> {
        let mut lexer = Lexer {
            text,
            at: 0,
            line: 1,
            ahead: (Token::End, 1),
        };
        lexer.next()?;
        Ok(lexer)
    }

    /// The next token, which stays.
    pub(super) fn peek(&self) -> Token<'a> {
        self.ahead.0
    }

    /// The line of the next token.
    pub(super) fn line(&self) -> u32 {
        self.ahead.1
    }

    /// Takes the next token. At the end, again and again [`Token::End`].
    pub(super) fn next(&mut self) -> Result<Token<'a>, Problem> {
        let taken = self.ahead.0;
        self.skip_blanks()?;
        let line = self.line;
        let token = self.scan()?;
        self.ahead = (token, line);
        Ok(taken)
    }

    /// Takes the next token if it is this mark.
    pub(super) fn take(&mut self, mark: u8) -> Result<bool, Problem> {
        let there = self.peek() == Token::Mark(mark);
        if there {
            self.next()?;
        }
        Ok(there)
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_blanks(&mut self) -> Result<(), Problem> {
        loop {
            match self.rest() {
                [b'\n', ..] => {
                    self.line = self.line.saturating_add(1);
                    self.at += 1;
                }
                [b, ..] if b.is_ascii_whitespace() || *b == 0x0b => self.at += 1,
                [b'/', b'/', rest @ ..] => {
                    self.at += 2 + rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
                }
                [b'/', b'*', rest @ ..] => {
                    let Some(end) = rest.windows(2).position(|two| two == b"*/") else {
                        return Err(Problem::syntax(self.line, "this comment does not end"));
                    };
                    let lines = rest[..end].iter().filter(|&&b| b == b'\n').count();
                    self.line = self.line.saturating_add(lines as u32);
                    self.at += 4 + end;
                }
                _ => return Ok(()),
            }
        }
    }

    fn scan(&mut self) -> Result<Token<'a>, Problem> {
        let rest = self.rest();
        let Some(&first) = rest.first() else {
            return Ok(Token::End);
        };
        let second_is_letter = rest
            .get(1)
            .is_some_and(|&b| b.is_ascii_alphabetic() || b == b'_');
        let (token, length): (Token<'a>, usize) = if first == b'.' && second_is_letter {
            let length = 1 + run(&rest[1..], |b| b.is_ascii_alphanumeric() || b == b'_');
            (Token::Directive(&rest[1..length]), length)
        } else if first.is_ascii_digit()
            || first == b'.' && rest.get(1).is_some_and(u8::is_ascii_digit)
        {
            let length = number_length(rest);
            (Token::Number(&rest[..length]), length)
        } else if first.is_ascii_alphabetic() || matches!(first, b'_' | b'$' | b'%') {
            let inside =
                |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'%' | b'.');
            let length = run(rest, inside);
            (Token::Word(&rest[..length]), length)
        } else if first == b'"' {
            let Some(length) = string_length(rest) else {
                return Err(Problem::syntax(
                    self.line,
                    "this string does not end on its line",
                ));
            };
            (Token::Text, length)
        } else if first.is_ascii_graphic() {
            (Token::Mark(first), 1)
        } else {
            let what = format!("the byte {first:#04x} has no meaning in PTX");
            return Err(Problem::syntax(self.line, what));
        };
        self.at += length;
        Ok(token)
    }
}

fn run(bytes: &[u8], inside: impl Fn(u8) -> bool) -> usize {
    bytes
        .iter()
        .position(|&b| !inside(b))
        .unwrap_or(bytes.len())
}

/// Digits, letters and dots; a sign only behind the exponent of a decimal number.
fn number_length(bytes: &[u8]) -> usize {
    let prefixed = matches!(bytes, [b'0', b'x' | b'X' | b'f' | b'F' | b'd' | b'D', ..]);
    let mut at = 0;
    while let Some(&b) = bytes.get(at) {
        let sign = matches!(b, b'+' | b'-')
            && !prefixed
            && matches!(bytes[at.saturating_sub(1)], b'e' | b'E');
        if !(b.is_ascii_alphanumeric() || b == b'.' || sign) {
            break;
        }
        at += 1;
    }
    at
}

/// A string with its quotation marks.
fn string_length(bytes: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            b'\n' => return None,
            _ => at += 1,
        }
    }
}
