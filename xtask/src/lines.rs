//! `lines`: the lines of each crate that somebody has written, without tests, compared with a
//! committed file. A change that makes a crate longer by more than a few says so.

use std::collections::BTreeMap;
use std::path::Path;

use crate::{Failure, circles, files};

const BASELINE: &str = "xtask/lines.txt";
/// The growth of a crate that is accepted, in per cent.
const ALLOWANCE: usize = 2;

/// Counts, and compares with the baseline, or writes it.
pub(crate) fn run(root: &Path, is_update: bool) -> Result<(), Failure> {
    let mut counts = BTreeMap::new();
    for (folder, name) in circles::crates(root)? {
        counts.insert(name, count(&folder)?);
    }
    let path = root.join(BASELINE);
    let known = match is_update {
        true => BTreeMap::new(),
        false => read(&files::read(&path)?),
    };
    let mut grown = Vec::new();
    for (name, &lines) in &counts {
        let before = known.get(name).copied();
        println!("{name:<20} {lines:>6}{}", difference(lines, before));
        let before = before.unwrap_or(0);
        if lines * 100 > before * (100 + ALLOWANCE) {
            grown.push(format!("{name} has {lines} lines, {before} in {BASELINE}"));
        }
    }
    println!("{:<20} {:>6}", "all", counts.values().sum::<usize>());
    if is_update {
        let lines = counts
            .iter()
            .map(|(name, lines)| format!("{name} {lines}\n"));
        return files::write(&path, &lines.collect::<String>());
    }
    if grown.is_empty() {
        return Ok(());
    }
    Err(failure!(
        "{}\nremove what the change replaces, or write the new numbers with `cargo xtask lines \
         --update` and say in the commit what they are worth",
        grown.join("\n")
    ))
}

fn difference(lines: usize, before: Option<usize>) -> String {
    match before {
        Some(before) if before != lines => format!(", {before} before"),
        _ => String::new(),
    }
}

fn read(text: &str) -> BTreeMap<String, usize> {
    let line = |line: &str| {
        let (name, lines) = line.split_once(' ')?;
        Some((name.to_owned(), lines.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// The lines below a folder, without what is generated and what tests.
fn count(folder: &Path) -> Result<usize, Failure> {
    let mut lines = 0;
    for path in files::list(folder) {
        let name = files::name(&path);
        if path.is_dir() {
            if !matches!(name.as_str(), "generated" | "tests" | "target") {
                lines += count(&path)?;
            }
        } else if files::has_extension(&path, "rs") && name != "tests.rs" {
            lines += written(&files::read(&path)?);
        }
    }
    Ok(lines)
}

/// The lines of a file before its tests.
fn written(text: &str) -> usize {
    let is_test = |line: &&str| *line == "#[cfg(test)]";
    let mut lines = text.lines().peekable();
    let mut count = 0;
    while let Some(line) = lines.next() {
        let begins_tests = lines
            .peek()
            .is_some_and(|next| next.starts_with("mod tests"));
        if is_test(&line) && begins_tests {
            break;
        }
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_at_the_end_of_a_file_do_not_count() {
        let table = [
            ("a\nb\n", 2),
            ("a\n\n#[cfg(test)]\nmod tests {\nb\n}\n", 2),
            ("a\n#[cfg(test)]\nuse b;\nc\n", 4),
            ("", 0),
        ];
        for (text, expected) in table {
            assert_eq!(written(text), expected, "{text}");
        }
    }
}
