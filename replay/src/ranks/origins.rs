//! What a rank has shared with the others, from the traces of all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use cutape_format::Trace;
use cutape_model::{ExchangeSite, MappedFile};
use serde::{Deserialize, Serialize};

use crate::process::memory_file;
use crate::ranks::shared_objects::SharedObjects;

/// What a rank that is replayed alone has shared with the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alone {
    /// By call that imports.
    pub(crate) imports: BTreeMap<u64, Origin>,
    /// By call that exports what others import: what messages call them.
    pub(crate) exports: BTreeMap<u64, String>,
    /// By call that registers host memory: the parts that others register, too.
    pub(crate) registered: BTreeMap<u64, Vec<Part>>,
}

/// What is imported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// What messages call the rank that exported it, and its call; `None` if no trace has the
    /// export.
    pub exported: Option<(String, u64)>,
    /// Bytes of the memory, if the traces say.
    pub size: Option<u64>,
    /// The `CUmemAllocationProp` of physical memory, if the traces say.
    pub properties: Option<Vec<u8>>,
}

/// A part of registered host memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub start: u64,
    pub length: u64,
    /// What messages call the other rank.
    pub rank: String,
}

impl Alone {
    /// What the rank at that position has shared with the others. The first of a pair is what
    /// messages call a rank.
    pub fn of(ranks: &[(&str, &Trace)], alone: usize) -> Self {
        let traces: Vec<&Trace> = ranks.iter().map(|rank| rank.1).collect();
        let objects = SharedObjects::of(&traces);
        let SharedObjects {
            exchanges, sharing, ..
        } = &objects;
        let label = |rank: usize| ranks.get(rank).map_or("another rank", |rank| rank.0);
        let mut found = Self::default();
        let Some(own) = exchanges.get(alone) else {
            return found;
        };
        for import in &own.imports {
            let site = ExchangeSite {
                process: alone,
                call: import.call,
            };
            let source = sharing.source_of(site);
            let export = source.and_then(|source| {
                let exports = &exchanges.get(source.process)?.exports;
                exports.iter().find(|export| export.call == source.call)
            });
            let origin = Origin {
                exported: source.map(|source| (label(source.process).to_owned(), source.call)),
                size: export.and_then(|export| export.size).or(import.size),
                properties: export.and_then(|export| export.properties.clone()),
            };
            found.imports.insert(import.call, origin);
        }
        for link in &sharing.links {
            if link.from.process == alone && link.to.process != alone {
                let importers = found.exports.entry(link.from.call).or_default();
                add_label(importers, label(link.to.process));
            }
        }
        for mapped in &own.mapped {
            let others = exchanges.iter().enumerate();
            let others = others.filter(|(rank, _)| *rank != alone);
            let common = others.flat_map(|(rank, others)| {
                let parts = others.mapped.iter();
                let parts = parts.filter_map(|other| common(mapped, other));
                parts.map(move |(start, length)| (start, length, rank))
            });
            let mut common: Vec<_> = common.collect();
            // Two machines may give the same number to different files.
            let is_near = |rank: usize| !objects.are_apart(alone, rank);
            if common.iter().any(|part| is_near(part.2)) {
                common.retain(|part| is_near(part.2));
            }
            let common = common.into_iter();
            let common = common.map(|(start, length, rank)| (start, length, label(rank)));
            let parts = found.registered.entry(mapped.call).or_default();
            parts.extend(apart(&common.collect::<Vec<_>>()));
        }
        found.registered.retain(|_, parts| !parts.is_empty());
        found
    }

    /// Writes it into a file in memory, for a child process.
    ///
    /// # Errors
    ///
    /// What the operating system reports.
    pub fn to_file(&self) -> io::Result<OwnedFd> {
        let mut file = File::from(memory_file::create(c"cutape-alone")?);
        file.write_all(&serde_json::to_vec(self)?)?;
        Ok(file.into())
    }

    /// Reads what [`Self::to_file`] has written.
    ///
    /// # Errors
    ///
    /// What the operating system reports, or that the file holds something else.
    pub fn from_file(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    }
}

/// Adds a name to `rank 1, rank 2` unless it is there.
fn add_label(all: &mut String, label: &str) {
    if all.split(", ").any(|known| known == label) {
        return;
    }
    if !all.is_empty() {
        all.push_str(", ");
    }
    all.push_str(label);
}

/// Start and length of the part of a mapping that another one maps, too.
fn common(own: &MappedFile, other: &MappedFile) -> Option<(u64, u64)> {
    let (own, other) = (&own.mapping, &other.mapping);
    if (own.device, own.inode) != (other.device, other.inode) {
        return None;
    }
    let first = own.offset.max(other.offset);
    let end_of = |offset: u64, length: u64| offset.saturating_add(length);
    let end = end_of(own.offset, own.length).min(end_of(other.offset, other.length));
    (first < end).then(|| (own.address.saturating_add(first - own.offset), end - first))
}

/// Parts that do not overlap, with all ranks that have each.
fn apart(all: &[(u64, u64, &str)]) -> Vec<Part> {
    let ranges = all.iter();
    let ranges: Vec<(u64, u64, &str)> = ranges
        .map(|&(start, length, rank)| (start, start.saturating_add(length), rank))
        .collect();
    let edges = ranges.iter().flat_map(|&(start, end, _)| [start, end]);
    let edges: BTreeSet<u64> = edges.collect();
    let edges: Vec<u64> = edges.into_iter().collect();
    let mut parts: Vec<Part> = Vec::new();
    for (&start, &end) in edges.iter().zip(edges.iter().skip(1)) {
        let mut rank = String::new();
        let covering = ranges
            .iter()
            .filter(|range| range.0 <= start && end <= range.1);
        covering.for_each(|(.., label)| add_label(&mut rank, label));
        match parts.last_mut() {
            _ if rank.is_empty() => {}
            Some(last) if last.rank == rank && last.start + last.length == start => {
                last.length += end - start;
            }
            _ => parts.push(Part {
                start,
                length: end - start,
                rank,
            }),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutape_format::layout::SharedMappingNote;
    use cutape_model::HostChanges;

    #[test]
    fn labels_are_listed_once() {
        let mut all = String::new();
        for label in ["rank 1", "rank 12", "rank 1", "rank 12"] {
            add_label(&mut all, label);
        }
        assert_eq!(all, "rank 1, rank 12");
    }

    #[test]
    fn parts_of_one_file_are_common() {
        let mapped = |inode, address, offset, length| MappedFile {
            call: 0,
            mapping: SharedMappingNote {
                address,
                length,
                device: 1,
                inode,
                offset,
            },
            name: String::new(),
            changes: HostChanges::default(),
        };
        let own = mapped(7, 0x1000, 0x100, 0x100);
        for (other, expected) in [
            (mapped(7, 0, 0x100, 0x100), Some((0x1000, 0x100))),
            (mapped(7, 0, 0, 0x110), Some((0x1000, 0x10))),
            (mapped(7, 0, 0x180, u64::MAX), Some((0x1080, 0x80))),
            (mapped(7, 0, 0, 0x100), None),
            (mapped(7, 0, 0x200, 0x100), None),
            (mapped(8, 0, 0x100, 0x100), None),
        ] {
            assert_eq!(common(&own, &other), expected, "{other:?}");
        }
    }

    #[test]
    fn parts_of_several_ranks_are_told_apart() {
        let parts = |all: &[(u64, u64, &str)]| -> Vec<(u64, u64, String)> {
            let parts = apart(all).into_iter();
            parts
                .map(|part| (part.start, part.length, part.rank))
                .collect()
        };
        let [one, two] = ["rank 1", "rank 2"];
        for (all, expected) in [
            (&[][..], &[][..]),
            (
                &[(10, 10, one), (10, 10, two)],
                &[(10, 10, "rank 1, rank 2")],
            ),
            (&[(10, 10, one), (20, 10, one)], &[(10, 20, one)]),
            (
                &[(30, 10, two), (10, 10, one)],
                &[(10, 10, one), (30, 10, two)],
            ),
            (
                &[(10, 20, one), (20, 20, two)],
                &[(10, 10, one), (20, 10, "rank 1, rank 2"), (30, 10, two)],
            ),
        ] {
            let expected = expected.iter();
            let expected = expected.map(|&(start, length, rank)| (start, length, rank.to_owned()));
            assert_eq!(parts(all), expected.collect::<Vec<_>>(), "{all:?}");
        }
    }

    #[test]
    fn a_child_reads_what_its_parent_wrote() {
        use std::os::fd::AsRawFd;
        let mut alone = Alone::default();
        let origin = Origin {
            exported: Some(("rank 1".into(), 7)),
            size: Some(4096),
            properties: Some(vec![1, 2]),
        };
        alone.imports.insert(3, origin);
        alone.exports.insert(5, "rank 1".into());
        let file = alone.to_file().unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        assert_eq!(Alone::from_file(path.as_ref()).unwrap(), alone);
        assert!(Alone::from_file("/dev/null".as_ref()).is_err());
    }
}
