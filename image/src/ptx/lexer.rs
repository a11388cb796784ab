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
    /// A string in quotation marks.
    Text,
    /// Any other character.
    Mark(u8),
    /// After the last one.
    End,
}

/// Returns tokens one after the other, with one token of look-ahead.
pub(super) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    line: u32,
    /// The next token and its line.
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

    /// The next token, which is not taken.
    pub(super) fn peek(&self) -> Token<'a> {
        self.ahead.0
    }

    /// The line of the next token.
    pub(super) fn line(&self) -> u32 {
        self.ahead.1
    }

    /// Takes the next token; at the end always [`Token::End`].
    pub(super) fn next(&mut self) -> Result<Token<'a>, Problem> {
        let taken = self.ahead.0;
        self.skip_blanks()?;
        let line = self.line;
        let token = self.scan()?;
        self.ahead = (token, line);
        Ok(taken)
    }

    /// A syntax error at the next token.
    pub(super) fn fault<T>(&self, what: impl Into<String>) -> Result<T, Problem> {
        Err(Problem::syntax(self.line(), what))
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
                    let end = rest.windows(2).position(|two| two == b"*/");
                    let Some((end, comment)) = end.and_then(|end| Some((end, rest.get(..end)?)))
                    else {
                        return Err(Problem::syntax(self.line, "this comment does not end"));
                    };
                    let lines = comment.iter().filter(|&&b| b == b'\n').count();
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
        let second = rest.get(1).copied().unwrap_or_default();
        let (token, length): (Token<'a>, usize) =
            if first == b'.' && (second.is_ascii_alphabetic() || second == b'_') {
                let after = rest.get(1..).unwrap_or_default();
                let name = run(after, |b| b.is_ascii_alphanumeric() || b == b'_');
                (Token::Directive(name), 1 + name.len())
            } else if first.is_ascii_digit() || first == b'.' && second.is_ascii_digit() {
                let number = number(rest);
                (Token::Number(number), number.len())
            } else if first.is_ascii_alphabetic() || matches!(first, b'_' | b'$' | b'%') {
                let inside =
                    |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'%' | b'.');
                let word = run(rest, inside);
                (Token::Word(word), word.len())
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

/// The bytes before the first one that is not `inside`.
fn run(bytes: &[u8], inside: impl Fn(u8) -> bool) -> &[u8] {
    bytes.split(|&b| !inside(b)).next().unwrap_or_default()
}

/// Digits, letters and dots; a sign only after the exponent of a decimal number.
fn number(bytes: &[u8]) -> &[u8] {
    let is_prefixed = matches!(bytes, [b'0', b'x' | b'X' | b'f' | b'F' | b'd' | b'D', ..]);
    let mut is_after_exponent = false;
    let end = bytes.iter().position(|&b| {
        let is_sign = matches!(b, b'+' | b'-') && !is_prefixed && is_after_exponent;
        is_after_exponent = matches!(b, b'e' | b'E');
        !(b.is_ascii_alphanumeric() || b == b'.' || is_sign)
    });
    end.and_then(|end| bytes.get(..end)).unwrap_or(bytes)
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
