//! `coverage`: what is recorded, replayed and called by a test program, by section of the manual.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::members::Facts;
use crate::semantics::{self, Class};
use crate::signatures::{Function, Signatures, Types, base_name};
use crate::{Failure, files};

const PROGRAMS: &str = "tests/programs";

/// The columns of the table. The last two count documented names, the others exported symbols.
const COLUMNS: [&str; 7] = [
    "symbols",
    "plain",
    "override",
    "opaque",
    "unreplayable",
    "names",
    "called",
];

/// Prints the table.
pub(crate) fn run(root: &Path) -> Result<(), Failure> {
    let signatures = Signatures::load(root)?;
    let types = Types::new(&signatures);
    let meanings = semantics::join(
        &signatures,
        &types,
        &Facts::load(root)?,
        &semantics::load(root)?,
    )?;
    let mut called = BTreeSet::new();
    calls_below(&root.join(PROGRAMS), &mut called)?;

    let mut rows: BTreeMap<&str, [usize; COLUMNS.len()]> = BTreeMap::new();
    let mut total = [0; COLUMNS.len()];
    let mut bases: BTreeSet<&str> = BTreeSet::new();
    for (function, meaning) in signatures.functions.iter().zip(&meanings) {
        let class = match meaning.class {
            Class::Plain => 1,
            Class::Override => 2,
            Class::Opaque => 3,
            Class::Unreplayable => 4,
        };
        let is_new = bases.insert(&function.base);
        let is_called = is_new && called.contains(function.base.as_str());
        for row in [rows.entry(&function.section).or_default(), &mut total] {
            row[0] += 1;
            row[class] += 1;
            row[5] += usize::from(is_new);
            row[6] += usize::from(is_called);
        }
    }
    println!("{:<40} {}", "section", COLUMNS.join(" "));
    for (section, row) in rows.into_iter().chain([("total", total)]) {
        let cells: Vec<String> = COLUMNS
            .iter()
            .zip(row)
            .map(|(column, number)| format!("{number:>0$}", column.len()))
            .collect();
        println!("{section:<40} {}", cells.join(" "));
    }
    let functions = &signatures.functions;
    let newest = functions
        .iter()
        .map(|function| function.last.as_str())
        .max();
    let newest = newest.unwrap_or_default();
    let count = |test: fn(&Function, &str) -> bool| {
        let found = functions.iter().filter(|function| test(function, newest));
        found.count()
    };
    let new = count(|function, newest| function.first == newest);
    let gone = count(|function, newest| function.last != newest);
    println!("\n{new} symbols are new in {newest}, {gone} are no longer declared there.");
    Ok(())
}

/// Collects the documented names that the C files below a folder call, except the generated header.
fn calls_below(folder: &Path, called: &mut BTreeSet<String>) -> Result<(), Failure> {
    for path in files::list(folder) {
        if path.is_dir() {
            if !path.ends_with("include") {
                calls_below(&path, called)?;
            }
        } else if ["c", "h"]
            .iter()
            .any(|end| files::has_extension(&path, end))
        {
            called.extend(calls(&files::read(&path)?));
        }
    }
    Ok(())
}

/// The documented names that a C text calls, or contains as a string, outside comments.
fn calls(text: &str) -> BTreeSet<String> {
    let text = without_comments(text);
    let is_in_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = BTreeSet::new();
    for (start, _) in text.match_indices("cu") {
        let (before, rest) = text.split_at(start);
        let (word, after) = rest.split_at(rest.find(|c| !is_in_word(c)).unwrap_or(rest.len()));
        let is_call = after.trim_start().starts_with('(');
        let is_string = before.ends_with('"') && after.starts_with('"');
        if !before.ends_with(is_in_word) && (is_call || is_string) {
            found.insert(base_name(word).to_owned());
        }
    }
    found
}

/// A text of C or Rust without its comments.
pub(crate) fn without_comments(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(start) = rest.find('/') {
        let (head, tail) = rest.split_at(start);
        kept.push_str(head);
        let end = if tail.starts_with("//") {
            tail.find('\n').unwrap_or(tail.len())
        } else if tail.starts_with("/*") {
            tail.find("*/").map_or(tail.len(), |end| end + 2)
        } else {
            kept.push('/');
            1
        };
        rest = &tail[end..];
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_outside_comments() {
        let text = "/* cuInit(0) */ int x = a / b; // cuCtxCreate(1)\n\
                    CHECK(cuMemAlloc_v2(&p, 4));\n\
                    f = dlsym(h, \"cuMemFree_v2\"); CUresult (*cuGhost)(int); \
                    cuLaunchKernel (f); \"the cuTail text\"";
        let wanted: BTreeSet<String> = ["cuMemAlloc", "cuMemFree", "cuLaunchKernel"]
            .map(str::to_owned)
            .into_iter()
            .collect();
        assert_eq!(calls(text), wanted);
    }
}
