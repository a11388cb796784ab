//! The page of the tables: `UPDATE_GOLDEN=1 cargo test -p cutape-export --test schema` writes it.

use std::collections::HashSet;
use std::fmt::Write;
use std::fs;

use cutape_export::tables::{SCHEMA_VERSION, TABLES};

const BEGIN: &str = "<!-- The tables below are written by a test of cutape-export. -->\n";

fn tables() -> String {
    let mut page = format!("\nVersion {SCHEMA_VERSION}.\n");
    for table in TABLES {
        let _ = write!(
            page,
            "\n### `{}`\n\nA row: {}.\n\n| column | type | meaning |\n|---|---|---|\n",
            table.name, table.row
        );
        for column in table.columns() {
            let (name, kind, meaning) = (column.name, column.kind.word(), column.meaning);
            let _ = writeln!(page, "| `{name}` | {kind} | {meaning} |");
        }
    }
    page
}

/// The version, and what it promises: the tables and the names and types of their columns.
fn promised(page: &str) -> (Option<&str>, Vec<Vec<&str>>) {
    let mut lines = page.lines();
    let version = lines.find(|line| line.starts_with("Version "));
    let of_columns = lines.filter(|line| line.starts_with("| `") || line.starts_with("### "));
    let columns = of_columns.map(|line| line.split('|').take(3).collect());
    (version, columns.collect())
}

#[test]
fn the_page_lists_every_column() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/export.md");
    let page = fs::read_to_string(path).unwrap();
    let (before, found) = page.split_once(BEGIN).unwrap();
    let expected = tables();
    let (old, new) = (promised(found), promised(&expected));
    assert!(
        old.0 != new.0 || old.1 == new.1,
        "{path} has other tables or columns for {SCHEMA_VERSION}: raise SCHEMA_VERSION; if this \
         change does so already, restore the page before writing it"
    );
    let row = format!("\n| {SCHEMA_VERSION} | ");
    assert!(
        before.contains(&row),
        "{path} has no row of {SCHEMA_VERSION}"
    );
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(path, format!("{before}{BEGIN}{expected}")).unwrap();
        return;
    }
    assert!(
        found == expected,
        "{path} is stale; run with UPDATE_GOLDEN=1"
    );
}

#[test]
fn columns_have_one_name_and_a_meaning() {
    let mut tables = HashSet::new();
    for table in TABLES {
        assert!(tables.insert(table.name), "{}", table.name);
        let mut names = HashSet::from(["table", "process", "rank"]);
        for column in table.columns() {
            assert!(names.insert(column.name), "{} {}", table.name, column.name);
            assert!(!column.meaning.contains('|'), "{}", column.name);
        }
    }
}
