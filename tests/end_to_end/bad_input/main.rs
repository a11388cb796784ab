//! Bad input: status 2, one line on stderr that says what is wrong and where, no file changed, no
//! panic.

mod commands;
mod files;
mod full_disk;
mod outputs;
mod streams;
mod traces;

use std::process::ExitCode;

use cutape_tests::Suite;

fn main() -> ExitCode {
    let mut suite = Suite::new();
    traces::add_to(&mut suite);
    commands::add_to(&mut suite);
    outputs::add_to(&mut suite);
    full_disk::add_to(&mut suite);
    streams::add_to(&mut suite);
    suite.run()
}
