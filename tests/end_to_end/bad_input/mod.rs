//! Bad input: status 2, one line on stderr that says what is wrong and where, no file changed, no
//! panic.

mod commands;
mod ends_early;
mod escapes;
mod files;
mod full_disk;
mod outputs;
mod streams;
mod threads;
mod traces;

use cutape_tests::Suite;

pub(crate) fn add_to(suite: &mut Suite) {
    traces::add_to(suite);
    commands::add_to(suite);
    outputs::add_to(suite);
    full_disk::add_to(suite);
    streams::add_to(suite);
    threads::add_to(suite);
    ends_early::add_to(suite);
    escapes::add_to(suite);
}
