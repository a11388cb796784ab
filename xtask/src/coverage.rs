//! `coverage`: what is recorded, replayed and called by a test program, by section of the manual.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::Failure;
use crate::members::Facts;
use crate::semantics::{self, Class};
use crate::signatures::{Signatures, Types, base_name};

const PROGRAMS: &str = "tests/programs";

/// The numbers of one section; all but the last two count exported symbols.
#[derive(Debug, Default, PartialEq)]
struct Row {
    plain: usize,
    overridden: usize,
    opaque: usize,
    unreplayable: usize,
    /// Documented names.
    names: usize,
    /// Documented names that a test program calls.
    called: usize,
}

impl Row {
    fn symbols(&self) -> usize {
        self.plain + self.overridden + self.opaque + self.unreplayable
    }

    fn add(&mut self, other: &Row) {
        self.plain += other.plain;
        self.overridden += other.overridden;
        self.opaque += other.opaque;
        self.unreplayable += other.unreplayable;
        self.names += other.names;
        self.called += other.called;
    }
}

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

    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    let mut bases: BTreeSet<&str> = BTreeSet::new();
    for (function, meaning) in signatures.functions.iter().zip(&meanings) {
        let row = rows.entry(&function.section).or_default();
        match meaning.class {
            Class::Plain => row.plain += 1,
            Class::Override => row.overridden += 1,
            Class::Opaque => row.opaque += 1,
            Class::Unreplayable => row.unreplayable += 1,
        }
        if bases.insert(&function.base) {
            row.names += 1;
            row.called += usize::from(called.contains(function.base.as_str()));
        }
    }
    let mut total = Row::default();
    for row in rows.values() {
        total.add(row);
    }
    println!(
        "{:<40} {:>7} {:>6} {:>8} {:>6} {:>12} {:>6} {:>6}",
        "section", "symbols", "plain", "override", "opaque", "unreplayable", "names", "called"
    );
    for (section, row) in rows
        .iter()
        .map(|(section, row)| (*section, row))
        .chain([("total", &total)])
    {
        println!(
            "{section:<40} {:>7} {:>6} {:>8} {:>6} {:>12} {:>6} {:>6}",
            row.symbols(),
            row.plain,
            row.overridden,
            row.opaque,
            row.unreplayable,
            row.names,
            row.called
        );
    }
    let newest = signatures
        .functions
        .iter()
        .map(|function| function.last.as_str())
        .max()
        .unwrap_or_default();
    let new = signatures
        .functions
        .iter()
        .filter(|function| function.first == newest)
        .count();
    let gone = signatures
        .functions
        .iter()
        .filter(|function| function.last != newest)
        .count();
    println!("\n{new} symbols are new in {newest}, {gone} are no longer declared there.");
    Ok(())
}

/// Collects the documented names that the C files below a folder call, except the generated header.
fn calls_below(folder: &Path, called: &mut BTreeSet<String>) -> Result<(), Failure> {
    let listing = fs::read_dir(folder)
        .map_err(|error| Failure::new(format!("{}: {error}", folder.display())))?;
    for entry in listing.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if !path.ends_with("include") {
                calls_below(&path, called)?;
            }
        } else if path
            .extension()
            .is_some_and(|extension| extension == "c" || extension == "h")
        {
            let text = fs::read_to_string(&path)
                .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
            called.extend(calls(&text));
        }
    }
    Ok(())
}

/// The documented names that a C text calls, or contains as a string, outside comments.
fn calls(text: &str) -> BTreeSet<String> {
    let text = without_comments(text);
    let mut found = BTreeSet::new();
    let mut rest = text.as_str();
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        if end == 0 {
            before = first;
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (word, after) = rest.split_at(end);
        let is_call = after.trim_start().starts_with('(');
        let is_string = before == '"' && after.starts_with('"');
        if word.starts_with("cu") && (is_call || is_string) {
            found.insert(base_name(word).to_owned());
        }
        rest = after;
        before = ' ';
    }
    found
}

fn without_comments(text: &str) -> String {
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
