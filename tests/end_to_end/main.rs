//! All end-to-end tests in one binary: they are linked once, and no processor waits for the last test
//! of each file.

mod bad_input;
mod baselines;
mod bench;
mod call_sets;
mod causes;
mod compat;
mod corpus;
mod counters;
mod ctl;
mod damage;
mod debug;
mod diff;
mod digests;
mod documents;
mod driver_log;
mod exchanges;
mod execute;
mod exports;
mod extract;
mod faults;
mod first;
mod first_differs;
mod first_look;
mod flight;
mod forward;
mod golden;
mod growing;
mod hang;
mod inputs;
mod inspect;
mod installed;
mod interface;
mod kill;
mod launch_outputs;
mod launchers;
mod leaves;
mod loading;
mod machines;
mod markers;
mod matrix;
mod memory;
mod minimize;
mod one_rank;
mod one_rank_verbs;
mod play;
mod play_other;
mod profile;
mod programs;
mod project_file;
mod race;
mod rank_devices;
mod rank_flags;
mod rank_profiles;
mod ranks;
mod ranks_rules;
mod recording;
mod redact;
mod references;
mod report;
mod sandbox;
mod sanitized;
mod size;
mod sources;
mod stacks;
mod steady;
mod tensor_files;
mod trim;
mod trim_state;
mod view;
mod what_if;
mod why;

use std::process::ExitCode;

use cutape_tests::Suite;

/// Adds the tests of a file.
type AddTo = fn(&mut Suite);

/// The files with the longest tests first, the one with the most short tests last.
const FILES: &[(&str, AddTo)] = &[
    ("growing", growing::add_to),
    ("documents", documents::add_to),
    ("report", report::add_to),
    ("diff", diff::add_to),
    ("minimize", minimize::add_to),
    ("loading", loading::add_to),
    ("kill", kill::add_to),
    ("bad_input", bad_input::add_to),
    ("baselines", baselines::add_to),
    ("bench", bench::add_to),
    ("call_sets", call_sets::add_to),
    ("causes", causes::add_to),
    ("compat", compat::add_to),
    ("ctl", ctl::add_to),
    ("corpus", corpus::add_to),
    ("counters", counters::add_to),
    ("damage", damage::add_to),
    ("debug", debug::add_to),
    ("digests", digests::add_to),
    ("driver_log", driver_log::add_to),
    ("exchanges", exchanges::add_to),
    ("execute", execute::add_to),
    ("exports", exports::add_to),
    ("extract", extract::add_to),
    ("faults", faults::add_to),
    ("first", first::add_to),
    ("first_differs", first_differs::add_to),
    ("first_look", first_look::add_to),
    ("flight", flight::add_to),
    ("forward", forward::add_to),
    ("golden", golden::add_to),
    ("hang", hang::add_to),
    ("inputs", inputs::add_to),
    ("inspect", inspect::add_to),
    ("installed", installed::add_to),
    ("interface", interface::add_to),
    ("launch_outputs", launch_outputs::add_to),
    ("launchers", launchers::add_to),
    ("machines", machines::add_to),
    ("markers", markers::add_to),
    ("matrix", matrix::add_to),
    ("memory", memory::add_to),
    ("one_rank", one_rank::add_to),
    ("one_rank_verbs", one_rank_verbs::add_to),
    ("play", play::add_to),
    ("play_other", play_other::add_to),
    ("profile", profile::add_to),
    ("project_file", project_file::add_to),
    ("rank_devices", rank_devices::add_to),
    ("rank_flags", rank_flags::add_to),
    ("rank_profiles", rank_profiles::add_to),
    ("ranks", ranks::add_to),
    ("ranks_rules", ranks_rules::add_to),
    ("recording", recording::add_to),
    ("redact", redact::add_to),
    ("references", references::add_to),
    ("sandbox", sandbox::add_to),
    ("sanitized", sanitized::add_to),
    ("size", size::add_to),
    ("sources", sources::add_to),
    ("stacks", stacks::add_to),
    ("steady", steady::add_to),
    ("tensor_files", tensor_files::add_to),
    ("trim", trim::add_to),
    ("trim_state", trim_state::add_to),
    ("view", view::add_to),
    ("race", race::add_to),
    ("what-if", what_if::add_to),
    ("why", why::add_to),
    ("programs", programs::add_to),
];

fn main() -> ExitCode {
    let mut suite = Suite::new();
    for (name, add_to) in FILES {
        suite.group(name, *add_to);
    }
    let status = suite.run();
    documents::print_total();
    status
}
