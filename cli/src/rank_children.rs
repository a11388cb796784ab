//! The children that replay the ranks of a folder together.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use cutape_replay::Rank;
use cutape_terminal::rank_folder::Found;

use crate::guarded::{self, GuardedOptions};
use crate::one_rank::ChildSource;

/// For each rank, what makes the command of its child: the hidden verb `child`, with options for
/// all ranks.
pub(crate) fn commands<'f>(
    found: &'f [Found],
    program: &'f Path,
    child: &'static str,
    for_all: &[OsString],
) -> Vec<impl Fn() -> Command + Sync + 'f> {
    let command = |found: &'f Found| {
        let own = ChildSource::of_trace(&found.path, found.rank);
        let hidden = [for_all, &own].concat();
        move || guarded::child(program, child, &hidden)
    };
    found.iter().map(command).collect()
}

/// The ranks, each with its command and the devices that the user maps.
pub(crate) fn ranks<'f>(
    found: &'f [Found],
    guarded: &GuardedOptions,
    commands: &'f [impl Fn() -> Command + Sync],
) -> Vec<Rank<'f>> {
    let pairs = found.iter().zip(commands);
    pairs
        .map(|(found, command)| Rank {
            label: found.label.clone(),
            trace: &found.trace,
            devices: guarded.devices_of(found.rank),
            command,
        })
        .collect()
}
