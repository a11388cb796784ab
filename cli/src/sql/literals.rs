//! Reads what DuckDB prints as literals of SQL: `'it''s'|4|NULL`, a line for each row, the names of
//! the columns first.

use std::io::{self, BufRead, Bytes};
use std::iter::Peekable;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    Null,
    /// A number or truth value, as it was printed.
    Plain(String),
    Text(String),
}

impl Cell {
    /// The value as JSON: a number keeps all its digits; one that JSON lacks is null.
    pub(super) fn json(&self) -> String {
        match self {
            Self::Plain(text) if is_json(text) => text.clone(),
            Self::Null | Self::Plain(_) => "null".to_owned(),
            Self::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
        }
    }

    /// Whether it may be in a column of numbers.
    pub(super) fn is_plain(&self) -> bool {
        !matches!(self, Self::Text(_))
    }
}

/// Whether it is a number or a truth value of JSON.
fn is_json(text: &str) -> bool {
    serde_json::from_str::<f64>(text).is_ok() || serde_json::from_str::<bool>(text).is_ok()
}

/// The rows of a result.
pub(super) struct Literals<R: BufRead> {
    bytes: Peekable<Bytes<R>>,
}

impl<R: BufRead> Literals<R> {
    pub(super) fn new(input: R) -> Self {
        let bytes = input.bytes().peekable();
        Self { bytes }
    }

    /// Whether there is a result, and not a text as that of EXPLAIN.
    pub(super) fn is_table(&mut self) -> bool {
        matches!(self.bytes.peek(), Some(Ok(b'\'')))
    }

    /// All that is left, as it is.
    pub(super) fn rest(&mut self) -> io::Result<String> {
        let bytes = self.bytes.by_ref().collect::<io::Result<Vec<u8>>>()?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The next row; `None` after the last one.
    pub(super) fn row(&mut self) -> io::Result<Option<Vec<Cell>>> {
        if self.bytes.peek().is_none() {
            return Ok(None);
        }
        let mut row = Vec::new();
        loop {
            row.push(self.cell()?);
            match self.bytes.next().transpose()? {
                Some(b'|') => {}
                _ => return Ok(Some(row)),
            }
        }
    }

    fn cell(&mut self) -> io::Result<Cell> {
        let mut text = Vec::new();
        let is_quoted = self.bytes.next_if(|byte| is(byte, b'\'')).is_some();
        if is_quoted {
            while let Some(byte) = self.bytes.next().transpose()? {
                if byte == b'\'' && self.bytes.next_if(|next| is(next, b'\'')).is_none() {
                    break;
                }
                text.push(byte);
            }
        } else {
            let is_end = |byte: &io::Result<u8>| is(byte, b'|') || is(byte, b'\n');
            while let Some(byte) = self.bytes.next_if(|byte| !is_end(byte)).transpose()? {
                text.push(byte);
            }
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(match text.as_str() {
            _ if is_quoted => Cell::Text(text),
            "NULL" => Cell::Null,
            _ => Cell::Plain(text),
        })
    }
}

fn is(found: &io::Result<u8>, byte: u8) -> bool {
    matches!(found, Ok(found) if *found == byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows() {
        let plain = |text: &str| Cell::Plain(text.to_owned());
        let text = |text: &str| Cell::Text(text.to_owned());
        for (printed, rows) in [
            ("", vec![]),
            ("'a'|'b'\n", vec![vec![text("a"), text("b")]]),
            (
                "'s'\n4|NULL|true|nan\n",
                vec![
                    vec![text("s")],
                    vec![plain("4"), Cell::Null, plain("true"), plain("nan")],
                ],
            ),
            (
                "'it''s|\ntwo'|''|''''|'NULL'|''|-1.50",
                vec![vec![
                    text("it's|\ntwo"),
                    text(""),
                    text("'"),
                    text("NULL"),
                    text(""),
                    plain("-1.50"),
                ]],
            ),
            ("'cut", vec![vec![text("cut")]]),
            ("4|\n", vec![vec![plain("4"), plain("")]]),
        ] {
            let mut literals = Literals::new(printed.as_bytes());
            let found: Vec<_> = std::iter::from_fn(|| literals.row().unwrap()).collect();
            assert_eq!(found, rows, "{printed:?}");
        }
    }

    #[test]
    fn values_as_json() {
        for (printed, json) in [
            ("340282366920938463463374607431768211455", None),
            ("1.50", None),
            ("1e+300", None),
            ("true", None),
            ("-0.0", None),
            ("nan", Some("null")),
            ("-inf", Some("null")),
            ("NULL", Some("null")),
            ("1e999", Some("null")),
            ("'1'", Some("\"1\"")),
            ("'\"\u{1b}'", Some("\"\\\"\\u001b\"")),
        ] {
            let cell = Literals::new(printed.as_bytes()).cell().unwrap();
            assert_eq!(cell.json(), json.unwrap_or(printed));
        }
    }
}
