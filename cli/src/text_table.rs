//! Tables without rules, of the width of the output.

use std::borrow::Cow;

use comfy_table::{CellAlignment, Table, presets};

use cutape_terminal::output::{printable, without_middle};

/// The least width of a column.
const LEAST_COLUMN: usize = 16;

/// A table without rules. Columns of texts are cut if the table is wider than `columns`; the others
/// are numbers.
pub(crate) fn table(
    header: &[&str],
    mut rows: Vec<Vec<String>>,
    is_text: impl Fn(usize) -> bool,
    columns: usize,
) -> Vec<String> {
    narrow(header, &mut rows, &is_text, columns);
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.iter().copied());
    table.add_rows(rows);
    for place in (0..header.len()).filter(|&place| !is_text(place)) {
        if let Some(column) = table.column_mut(place) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

/// Cuts texts until a row fits, the last column first.
fn narrow(
    header: &[&str],
    rows: &mut [Vec<String>],
    is_text: &impl Fn(usize) -> bool,
    columns: usize,
) {
    let length = |text: &str| text.chars().count();
    for cell in rows.iter_mut().flatten() {
        if let Cow::Owned(clean) = printable(cell) {
            *cell = clean;
        }
    }
    let mut widths: Vec<usize> = header.iter().map(|title| length(title)).collect();
    for row in rows.iter() {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(length(cell));
        }
    }
    // One space before the table and one on either side of each column; the last is trimmed.
    let too_wide = |widths: &[usize]| widths.iter().map(|width| width + 2).sum::<usize>() > columns;
    for least in [2 * LEAST_COLUMN, LEAST_COLUMN] {
        while too_wide(&widths) {
            // The first column identifies the row, so it is cut last.
            let wide = |&place: &usize| is_text(place) && widths[place] > least;
            match (0..widths.len()).rev().find(wide) {
                Some(place) => widths[place] -= 1,
                None => break,
            }
        }
    }
    for row in rows {
        for (place, (cell, &width)) in row.iter_mut().zip(&widths).enumerate() {
            if is_text(place) && length(cell) > width {
                *cell = without_middle(cell, width).into_owned();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_fit() {
        let long = "void at::native::vectorized_elementwise_kernel<4>".repeat(20);
        for (columns, cells, widest) in [
            (80, ["short", "1x1x1", "7"], 25),
            (80, [&long, "1x1x1", "7"], 80),
            (100, [&long, "1x1x1", "7"], 100),
            (80, [&long, &long, "7"], 80),
            // Numbers are never cut.
            (80, ["short", "1x1x1", &long], long.len() + 17),
        ] {
            let rows = vec![cells.map(str::to_owned).to_vec(), vec![String::new(); 3]];
            let lines = table(
                &["kernel", "grids", "launches"],
                rows,
                |place| place < 2,
                columns,
            );
            let width = lines.iter().map(|line| 1 + line.chars().count()).max();
            assert_eq!(width, Some(widest), "{lines:#?}");
        }
    }
}
