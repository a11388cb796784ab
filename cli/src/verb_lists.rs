//! The table of verbs in README.md has every verb.

use std::fs;
use std::path::Path;

use clap::CommandFactory;

#[test]
fn every_verb_is_in_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = fs::read_to_string(path).unwrap();
    let command = crate::Arguments::command();
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let names = verbs.map(|verb| verb.get_name());
    let missing: Vec<&str> = names
        .filter(|name| !readme.contains(&format!("\n| `{name}` |")))
        .collect();
    assert_eq!(missing, [""; 0]);
}
