//! JSON Lines: an object for each record, with the name of its table.

use std::io::{self, Write};

use super::schema::{SCHEMA_VERSION, TABLES};
use super::sink::{Cell, TableWriter};
use crate::rows::TraceRow;

/// Writes records as lines of JSON. The first line has the version of the schema.
#[derive(Debug)]
pub struct JsonLines<W> {
    out: W,
    process: u32,
    rank: Option<u64>,
    line: Vec<u8>,
}

impl<W: Write> JsonLines<W> {
    /// Begins with the line about the schema.
    ///
    /// # Errors
    /// If writing fails.
    pub fn new(mut out: W) -> io::Result<Self> {
        writeln!(out, r#"{{"table":"schema","version":"{SCHEMA_VERSION}"}}"#)?;
        Ok(Self {
            out,
            process: 0,
            rank: None,
            line: Vec::new(),
        })
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W: Write> TableWriter for JsonLines<W> {
    fn begin(&mut self, trace: &TraceRow) -> io::Result<()> {
        (self.process, self.rank) = (trace.process, trace.any_rank());
        Ok(())
    }

    fn record(&mut self, table: usize, cells: &[Cell<'_>]) -> io::Result<()> {
        let Some(table) = TABLES.get(table) else {
            return Ok(());
        };
        let line = &mut self.line;
        line.clear();
        write!(
            line,
            r#"{{"table":"{}","process":{}"#,
            table.name, self.process
        )?;
        if let Some(rank) = self.rank {
            write!(line, r#","rank":{rank}"#)?;
        }
        for (column, cell) in table.columns().zip(cells) {
            let name = column.name;
            match cell {
                // A key that is not there is null.
                Cell::Null => {}
                Cell::Integer(number) => write!(line, r#","{name}":{number}"#)?,
                // JSON has no other numbers.
                Cell::Number(number) if number.is_finite() => {
                    write!(line, r#","{name}":{number}"#)?;
                }
                Cell::Number(_) => {}
                Cell::Boolean(flag) => write!(line, r#","{name}":{flag}"#)?,
                Cell::Text(text) => {
                    write!(line, r#","{name}":"#)?;
                    serde_json::to_writer(&mut *line, text)?;
                }
            }
        }
        line.extend_from_slice(b"}\n");
        self.out.write_all(line)
    }
}
