//! `tests/interface/command_line.txt`: verbs, options, values and defaults, which scripts rely on.
//!
//! `UPDATE_GOLDEN=1 cargo test -p cutape interface` adds new ones.

use std::collections::BTreeSet;

use clap::{Arg, ArgAction, Command, CommandFactory};
use cutape_tests::compare_interface;

#[test]
fn interface_of_the_command_line_stays() {
    let mut command = crate::Arguments::command();
    command.build();
    let mut offered = BTreeSet::new();
    add_command(&command, "cutape", &mut offered);
    compare_interface("command_line.txt", &offered).unwrap_or_else(|message| panic!("{message}"));
}

fn add_command(command: &Command, path: &str, out: &mut BTreeSet<String>) {
    out.insert(path.to_owned());
    let is_help = |arg: &Arg| arg.get_id() == "help" && path != "cutape";
    let visible = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let visible = visible.filter(|arg| !is_help(arg));
    for arg in visible.filter(|arg| !arg.is_global_set() || path == "cutape") {
        add_argument(arg, path, out);
    }
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    for verb in verbs.filter(|verb| verb.get_name() != "help") {
        add_command(verb, &format!("{path} {}", verb.get_name()), out);
    }
}

/// A line for each name of an argument, with what else a script relies on, and a line for each
/// value.
fn add_argument(arg: &Arg, path: &str, out: &mut BTreeSet<String>) {
    let mut names: Vec<String> = Vec::new();
    let longs = arg.get_long().into_iter();
    let longs = longs.chain(arg.get_visible_aliases().into_iter().flatten());
    names.extend(longs.map(|long| format!("--{long}")));
    names.extend(arg.get_short().map(|short| format!("-{short}")));
    let value = arg.get_value_names().unwrap_or_default().join(" ");
    if names.is_empty() {
        names.push(value.clone());
    }
    let takes_values = arg.get_action().takes_values();
    let has_name = arg.get_long().is_some() || arg.get_short().is_some();
    let range = arg.get_num_args().unwrap_or_else(|| 1.into());
    let mut facts = String::new();
    if takes_values && has_name {
        facts += &match range.min_values() {
            0 => format!(" [{value}]"),
            _ => format!(" {value}"),
        };
    }
    if matches!(arg.get_action(), ArgAction::Append | ArgAction::Count) || range.max_values() > 1 {
        facts += " ...";
    }
    if arg.is_required_set() {
        facts += ", required";
    }
    if takes_values && !arg.get_default_values().is_empty() {
        let defaults = arg.get_default_values().iter();
        let defaults: Vec<_> = defaults.map(|value| value.to_string_lossy()).collect();
        facts += &format!(", default {}", defaults.join(","));
    }
    for name in names {
        out.insert(format!("{path} {name}{facts}"));
        let values = arg.get_possible_values().into_iter();
        let values = values.filter(|value| takes_values && !value.is_hide_set());
        out.extend(values.map(|value| format!("{path} {name}: {}", value.get_name())));
    }
}
