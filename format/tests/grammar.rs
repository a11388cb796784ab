//! `SPEC.md`, the twins and the golden files have every note and every version.

use std::fs;
use std::path::Path;

use cutape_format::layout::MINOR;

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// Number and name of each kind of note.
fn note_kinds() -> Vec<(u32, String)> {
    let source = read("src/layout/note.rs");
    let (module, _) = source.split_once("\n}\n").unwrap();
    let kinds = module.lines().filter_map(|line| {
        let (name, number) = line
            .trim()
            .strip_prefix("pub const ")?
            .split_once(": u16 = ")?;
        Some((number.strip_suffix(';')?.parse().ok()?, name.to_owned()))
    });
    kinds.collect()
}

#[test]
fn the_grammar_has_every_note() {
    let grammar = read("SPEC.md");
    let (grammar, versions) = grammar.split_once("\n## Versions\n").unwrap();
    let kinds = note_kinds();
    assert!(kinds.len() >= 31, "{kinds:?}");
    for (number, name) in kinds {
        let mut rows = grammar.lines().filter(|line| line.starts_with("| "));
        assert!(
            rows.any(|row| row.contains(&format!("{number} {name}"))),
            "SPEC.md has no row of note {number} {name}"
        );
        // The rows of earlier versions name ranges of numbers.
        assert!(
            number <= 20 || versions.contains(&name),
            "no version in SPEC.md adds note {name}: raise MINOR and add a row"
        );
    }
}

#[test]
fn every_version_has_a_row_and_a_golden_file() {
    let grammar = read("SPEC.md");
    let title = format!("# The trace file, version 1.{MINOR}\n");
    assert!(
        grammar.starts_with(&title),
        "SPEC.md begins with another version than 1.{MINOR}"
    );
    let rows = grammar.lines().filter_map(|line| {
        let (version, _) = line.strip_prefix("| 1.")?.split_once(' ')?;
        version.parse().ok()
    });
    let rows: Vec<u32> = rows.collect();
    assert_eq!(
        rows,
        (0..=MINOR).collect::<Vec<_>>(),
        "versions in SPEC.md; MINOR is {MINOR}"
    );
    for version in rows.into_iter().filter(|&version| version != 0) {
        for name in [
            format!("v1.{version}.cutape"),
            format!("v1.{version}-packed.cutape"),
        ] {
            let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
            assert!(
                Path::new(&path).exists(),
                "write {name} with the example golden"
            );
        }
        assert!(
            read("tests/sample/mod.rs").contains(&format!("\"v1.{version}\"")),
            "SAMPLES has no sample of version 1.{version}"
        );
        // What 1.1 added are shorter records for the same calls.
        let tests = read("tests/golden.rs");
        assert!(
            version == 1
                || tests.contains(&format!("\"v1.{version}.cutape\""))
                || tests.contains(&format!("(\"v1.{version}\")")),
            "no test in golden.rs reads what is new in version 1.{version}"
        );
    }
}

#[test]
fn every_struct_of_a_note_has_a_twin() {
    let twins = read("tests/codec.rs");
    for source in ["src/layout/note.rs", "src/layout/marker.rs"] {
        for line in read(source).lines() {
            let name = line
                .strip_prefix("pub struct ")
                .and_then(|line| line.strip_suffix(" {"));
            if let Some(name) = name {
                assert!(
                    twins.contains(&format!(": {name} {{")),
                    "codec.rs has no twin of {name}"
                );
            }
        }
    }
}
