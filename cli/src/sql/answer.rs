//! A result as text, JSON or CSV.

use std::io::{self, Write};

use super::literals::Cell;
use crate::text_table::table;

/// How to print a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// A table for people.
    Text,
    /// One object: the names of the columns, and an object for each row.
    Json,
    /// Comma-separated values, the names of the columns first.
    Csv,
}

/// Writes a result: its columns, the rows, the end.
pub(super) struct Answer<'o> {
    format: Format,
    /// Columns of the output, for text.
    width: usize,
    out: &'o mut dyn Write,
    /// The names of the columns, once it has begun.
    columns: Option<Vec<String>>,
    /// Rows of a text, whose columns are as wide as the widest value.
    kept: Vec<Vec<Cell>>,
    rows: usize,
}

impl<'o> Answer<'o> {
    pub(super) fn new(format: Format, width: usize, out: &'o mut dyn Write) -> Self {
        Self {
            format,
            width,
            out,
            columns: None,
            kept: Vec::new(),
            rows: 0,
        }
    }

    /// Begins with the names of the columns.
    pub(super) fn begin(&mut self, columns: Vec<String>) -> io::Result<()> {
        let columns = self.columns.insert(columns);
        match self.format {
            Format::Text => Ok(()),
            Format::Json => {
                let names = serde_json::Value::from(columns.as_slice());
                write!(self.out, "{{\"columns\": {names},\n\"rows\": [")
            }
            Format::Csv => {
                let names = columns.iter().map(|name| csv_text(name));
                writeln!(self.out, "{}", names.collect::<Vec<_>>().join(","))
            }
        }
    }

    pub(super) fn row(&mut self, row: Vec<Cell>) -> io::Result<()> {
        self.rows += 1;
        match self.format {
            Format::Text => {
                self.kept.push(row);
                Ok(())
            }
            Format::Json => {
                let columns = self.columns.as_deref().unwrap_or_default();
                let members = columns.iter().zip(&row);
                let members = members.map(|(name, cell)| {
                    let name = serde_json::Value::from(name.as_str());
                    format!("{name}: {}", cell.json())
                });
                let comma = if self.rows > 1 { "," } else { "" };
                let members = members.collect::<Vec<_>>().join(", ");
                write!(self.out, "{comma}\n{{{members}}}")
            }
            Format::Csv => {
                let cells = row.iter().map(csv);
                writeln!(self.out, "{}", cells.collect::<Vec<_>>().join(","))
            }
        }
    }

    /// Ends it; `more` says whether there are further rows, which are not shown.
    pub(super) fn end(mut self, more: bool) -> io::Result<()> {
        if self.columns.is_none() {
            self.begin(Vec::new())?;
        }
        match self.format {
            Format::Json => writeln!(self.out, "\n],\n\"more\": {more}}}")?,
            Format::Text => self.write_table(more)?,
            Format::Csv => {}
        }
        self.out.flush()
    }

    fn write_table(&mut self, more: bool) -> io::Result<()> {
        let kept = &self.kept;
        let columns = self.columns.as_deref().unwrap_or_default();
        let of_column = |place: usize| kept.iter().filter_map(move |row| row.get(place));
        let is_number = |place| of_column(place).all(Cell::is_plain);
        let texts: Vec<bool> = (0..columns.len()).map(|place| !is_number(place)).collect();
        let text = |cell: &Cell| match cell {
            Cell::Null => "NULL".to_owned(),
            Cell::Plain(text) | Cell::Text(text) => text.clone(),
        };
        let has_lines = |cell: &Cell| matches!(cell, Cell::Text(text) if text.contains('\n'));
        if kept.iter().flatten().any(has_lines) {
            // Lines do not fit into columns.
            for (name, cell) in kept.iter().flat_map(|row| columns.iter().zip(row)) {
                writeln!(self.out, "{name}:\n{}", text(cell).trim_end())?;
            }
            return self.say_more(more);
        }
        let rows = kept.iter().map(|row| row.iter().map(text).collect());
        let header: Vec<&str> = columns.iter().map(String::as_str).collect();
        let is_text = |place: usize| texts.get(place).copied().unwrap_or(true);
        if !header.is_empty() {
            for line in table(&header, rows.collect(), is_text, self.width) {
                writeln!(self.out, "{line}")?;
            }
        }
        self.say_more(more)
    }

    fn say_more(&mut self, more: bool) -> io::Result<()> {
        if more {
            writeln!(self.out, "… more rows: --most N, or --format csv for all")?;
        }
        Ok(())
    }
}

/// As RFC 4180 has it; null is nothing, an empty text `""`.
fn csv(cell: &Cell) -> String {
    match cell {
        Cell::Null => String::new(),
        Cell::Plain(text) => text.clone(),
        Cell::Text(text) => csv_text(text),
    }
}

fn csv_text(text: &str) -> String {
    match text.is_empty() || text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_result_in_every_format() {
        let text = |text: &str| Cell::Text(text.to_owned());
        let rows = [
            vec![text("a,\"b"), Cell::Plain("12".to_owned())],
            vec![text(""), Cell::Null],
        ];
        for (format, expected) in [
            (
                Format::Text,
                " name     n\n a,\"b    12\n       NULL\n… more rows: --most N, or --format csv for all\n",
            ),
            (Format::Csv, "name,n\n\"a,\"\"b\",12\n\"\",\n"),
            (
                Format::Json,
                "{\"columns\": [\"name\",\"n\"],\n\"rows\": [\n{\"name\": \"a,\\\"b\", \"n\": 12},\n\
                 {\"name\": \"\", \"n\": null}\n],\n\"more\": true}\n",
            ),
        ] {
            let mut out = Vec::new();
            let mut answer = Answer::new(format, 80, &mut out);
            answer
                .begin(vec!["name".to_owned(), "n".to_owned()])
                .unwrap();
            rows.iter().for_each(|row| answer.row(row.clone()).unwrap());
            answer.end(true).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
