//! Files in memory in place of those that recorded processes had mapped and registered.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use cutape_model::Exchanges;
use serde::{Deserialize, Serialize};

use crate::process::memory_file;

/// A file that takes the place of a recorded one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SharedFile {
    /// Of the recorded file.
    pub(crate) device: u64,
    /// Its number on that device.
    pub(crate) inode: u64,
    /// The ranks that register parts of it.
    pub(crate) ranks: Vec<usize>,
    /// The same number in every process of the replay.
    pub(crate) descriptor: RawFd,
}

/// What is known of a recorded file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordedFile {
    pub(crate) ranks: BTreeSet<usize>,
    /// Where the last registered part ends.
    pub(crate) length: u64,
}

/// The machine, device and number of a file: two machines may give the same numbers to different
/// files.
pub(crate) type FileIdentity = (usize, u64, u64);

/// The files that ranks have registered parts of. `machines` has a number for each rank.
pub(crate) fn recorded_files(
    exchanges: &[Exchanges],
    machines: &[usize],
) -> BTreeMap<FileIdentity, RecordedFile> {
    let mut files: BTreeMap<FileIdentity, RecordedFile> = BTreeMap::new();
    for ((rank, exchanges), &machine) in exchanges.iter().enumerate().zip(machines) {
        for part in &exchanges.mapped {
            let mapping = &part.mapping;
            let identity = (machine, mapping.device, mapping.inode);
            let file = files.entry(identity).or_default();
            file.ranks.insert(rank);
            let end = mapping.offset.saturating_add(mapping.length);
            file.length = file.length.max(end);
        }
    }
    files
}

/// Fresh files of zeros, by identity.
pub(crate) fn create(
    recorded: &BTreeMap<FileIdentity, RecordedFile>,
) -> std::io::Result<BTreeMap<FileIdentity, OwnedFd>> {
    let file = |(&identity, known): (&FileIdentity, &RecordedFile)| {
        let file = memory_file::create(c"cutape-shared")?;
        memory_file::extend(&file, known.length)?;
        Ok((identity, file))
    };
    recorded.iter().map(file).collect()
}

/// What a rank of a machine is told about them.
pub(crate) fn files_for(
    machine: usize,
    recorded: &BTreeMap<FileIdentity, RecordedFile>,
    files: &BTreeMap<FileIdentity, OwnedFd>,
) -> Vec<SharedFile> {
    let own = recorded
        .iter()
        .filter(|(identity, _)| identity.0 == machine);
    own.filter_map(|(identity, known)| {
        Some(SharedFile {
            device: identity.1,
            inode: identity.2,
            ranks: known.ranks.iter().copied().collect(),
            descriptor: files.get(identity)?.as_raw_fd(),
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutape_format::layout::SharedMappingNote;
    use cutape_model::{HostChanges, MappedFile};

    #[test]
    fn parts_of_a_file_are_one_file_on_each_machine() {
        let part = |inode, offset| MappedFile {
            call: 0,
            mapping: SharedMappingNote {
                address: 0x7000_0000,
                length: 4096,
                device: 5,
                inode,
                offset,
            },
            name: "/dev/shm/x".to_owned(),
            changes: HostChanges::default(),
        };
        let of = |mapped: Vec<MappedFile>| Exchanges {
            mapped,
            ..Exchanges::default()
        };
        let exchanges = [
            of(vec![part(7, 0), part(7, 8192)]),
            of(vec![part(7, 4096), part(8, 0)]),
            of(vec![part(7, 0)]),
        ];
        let files = recorded_files(&exchanges, &[0, 0, 2]);
        let file = |ranks: &[usize], length| RecordedFile {
            ranks: ranks.iter().copied().collect(),
            length,
        };
        let expected = BTreeMap::from([
            ((0, 5, 7), file(&[0, 1], 12288)),
            ((0, 5, 8), file(&[1], 4096)),
            ((2, 5, 7), file(&[2], 4096)),
        ]);
        assert_eq!(files, expected);
        let made = create(&files).unwrap();
        let told = files_for(0, &files, &made);
        let ranks: Vec<_> = told.iter().map(|file| (file.inode, &*file.ranks)).collect();
        assert_eq!(ranks, [(7, &[0, 1][..]), (8, &[1])]);
    }
}
