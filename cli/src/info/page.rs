//! The output of the tables of `info`.

use std::io::{self, Write};

use crate::text_table::table;

/// The most rows of a table; JSON has all.
const MOST_ROWS: usize = 40;

/// The output of tables.
pub(super) struct Page<'o> {
    pub(super) columns: usize,
    pub(super) out: &'o mut dyn Write,
}

pub(super) fn write_table(
    title: &str,
    header: &[&str],
    mut rows: Vec<Vec<String>>,
    left: usize,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let Page { columns, out } = page;
    if rows.is_empty() {
        return Ok(());
    }
    let more = rows.len().saturating_sub(MOST_ROWS);
    rows.truncate(MOST_ROWS);
    writeln!(out, "\n{title}")?;
    for line in table(header, rows, |place| place < left, *columns) {
        writeln!(out, " {line}")?;
    }
    if more > 0 {
        writeln!(out, "  … {more} more, all in --format json")?;
    }
    Ok(())
}
