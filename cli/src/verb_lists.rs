//! Lists of verbs that are kept by hand have every verb.

use std::fs;
use std::path::Path;

use clap::{CommandFactory, builder::Str};

#[test]
fn every_verb_is_in_the_lists() {
    let read = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
        fs::read_to_string(path).unwrap()
    };
    let readme = read("README.md");
    let bad_input = |name: &str| read(&format!("tests/end_to_end/bad_input/{name}.rs"));
    let (streams, traces) = (bad_input("streams"), bad_input("traces"));
    let pages = read("tests/src/documents/run.rs");
    let (_, wrapper) = pages.split_once("case $verb in").unwrap();
    let (wrapper, _) = wrapper.split_once("esac\nexec").unwrap();
    let command = crate::Arguments::command();
    let mut missing = Vec::new();
    let mut readers = 0;
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let name = verb.get_name();
        let mut expect = |is_there: bool, list: &str| {
            if !is_there {
                missing.push(format!("{name}: {list}"));
            }
        };
        let row = format!("\n| `{name}` |");
        expect(readme.contains(&row), "the table of README.md");
        let [only, first] = [format!("\"{name}\""), format!("\"{name} ")];
        let is_run = streams.contains(&only) || streams.contains(&first);
        expect(is_run, "COMMANDS in tests/end_to_end/bad_input/streams.rs");
        // `diff` calls its traces A and B.
        let is_trace = |value: &Str| value.contains("TRACE") || value == "A";
        let reads = verb.get_positionals().any(|operand| {
            let names = operand.get_value_names();
            names.is_some_and(|names| names.iter().any(is_trace))
        });
        readers += u32::from(reads);
        // `view` needs a terminal.
        let is_read = traces.contains(&format!("before: &[{only}"));
        expect(
            !reads || is_read || name == "view",
            "READERS in tests/end_to_end/bad_input/traces.rs",
        );
        let has_driver = verb
            .get_opts()
            .any(|option| option.get_long() == Some("driver"));
        let mut words = wrapper.split([' ', ')', '\n']);
        expect(
            !has_driver || words.any(|word| word == name),
            "WRAPPER in tests/src/documents/run.rs",
        );
    }
    assert!(readers > 10, "{readers} verbs read a trace");
    assert_eq!(missing, [""; 0], "lists that lack a verb");
}
