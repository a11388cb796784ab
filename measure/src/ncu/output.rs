//! Reads what `ncu --csv --page raw` prints: a line of names, a line of units, a line for each
//! kernel, between lines of its own that begin with `==`.

use std::collections::BTreeMap;

use csv::{ReaderBuilder, StringRecord};

/// What it has measured of a kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Row {
    /// The process that launched it.
    pub(crate) process: u64,
    pub(crate) name: String,
    pub(crate) device: Option<u32>,
    pub(crate) grid: Option<[u32; 3]>,
    pub(crate) block: Option<[u32; 3]>,
    /// By name, as far as they are numbers.
    pub(crate) metrics: BTreeMap<String, f64>,
}

/// All of that, and what went wrong.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Printed {
    pub(crate) rows: Vec<Row>,
    /// Its errors, without the mark in front.
    pub(crate) errors: Vec<String>,
}

/// Reads it.
pub(crate) fn read(text: &str) -> Printed {
    let mut printed = Printed::default();
    let mut names = StringRecord::new();
    for line in text.lines() {
        if let Some(error) = line.strip_prefix("==ERROR== ") {
            printed.errors.push(error.trim().to_owned());
        } else if line.starts_with("\"ID\",") {
            names = cells(line).unwrap_or_default();
        } else if line.starts_with('"') && !names.is_empty() {
            // Units have no ID.
            printed
                .rows
                .extend(cells(line).and_then(|cells| row(&names, &cells)));
        }
    }
    printed
}

/// The cells of a line.
fn cells(line: &str) -> Option<StringRecord> {
    let mut reader = ReaderBuilder::new();
    let mut reader = reader.has_headers(false).from_reader(line.as_bytes());
    reader.records().next()?.ok()
}

fn row(names: &StringRecord, cells: &StringRecord) -> Option<Row> {
    let mut row = Row::default();
    let mut has_id = false;
    for (name, cell) in names.iter().zip(cells) {
        match name {
            "ID" => has_id = cell.parse::<u64>().is_ok(),
            "Process ID" => row.process = cell.parse().unwrap_or(0),
            "Kernel Name" => cell.clone_into(&mut row.name),
            "Device" => row.device = cell.parse().ok(),
            "Grid Size" => row.grid = sizes(cell),
            "Block Size" => row.block = sizes(cell),
            // What the device has is no measurement.
            name if name.contains("__") && !name.starts_with("device__attribute_") => {
                if let Some(value) = number(cell) {
                    row.metrics.insert(name.to_owned(), value);
                }
            }
            _ => {}
        }
    }
    has_id.then_some(row)
}

/// `1,234.5`.
fn number(cell: &str) -> Option<f64> {
    let digits: String = cell.chars().filter(|&letter| letter != ',').collect();
    digits
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite())
}

/// `(264, 1, 1)`.
fn sizes(cell: &str) -> Option<[u32; 3]> {
    let inner = cell.trim().strip_prefix('(')?.strip_suffix(')')?;
    let sizes: Result<Vec<u32>, _> = inner.split(',').map(|size| size.trim().parse()).collect();
    sizes.ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_errors() {
        let text = r#"==PROF== Connected to process 714 (/a)
what the program prints, "quoted"
==ERROR== ERR_NVGPUCTRPERM - The user does not have permission
"ID","Process ID","Process Name","Kernel Name","Block Size","Grid Size","Device","CC","device__attribute_warp_size","gpu__time_duration.sum","lts__t_sector_hit_rate.pct","profiler__x"
"","","","","","","","","","ns","%",""
"0","714","a","k<""x"">(int *, int)","(256, 1, 1)","(32, 2, 1)","1","9.0","32","9,171.50","n/a","all"
"1","715","a","other","256","(1, 1)","x","9.0","32","inf","1.5","2"
==WARNING== no data
"#;
        let printed = read(text);
        let errors = ["ERR_NVGPUCTRPERM - The user does not have permission"];
        assert_eq!(printed.errors, errors);
        let metric = |name: &str, value| (name.to_owned(), value);
        let expected = [
            Row {
                process: 714,
                name: "k<\"x\">(int *, int)".into(),
                device: Some(1),
                grid: Some([32, 2, 1]),
                block: Some([256, 1, 1]),
                metrics: [metric("gpu__time_duration.sum", 9171.5)].into(),
            },
            Row {
                process: 715,
                name: "other".into(),
                metrics: [
                    metric("lts__t_sector_hit_rate.pct", 1.5),
                    metric("profiler__x", 2.0),
                ]
                .into(),
                ..Row::default()
            },
        ];
        assert_eq!(printed.rows, expected);
    }

    #[test]
    fn other_text_has_no_rows() {
        for text in [
            "",
            "\"0\",\"1\"",
            "\"ID\",\"Process ID\"\n\"\"\n\"x",
            "==ERROR==",
        ] {
            assert_eq!(read(text), Printed::default(), "{text}");
        }
    }
}
