//! What the processes of a recording share with each other.

use std::collections::BTreeMap;
use std::io::{self, Write};

use cutape_format::ClockStart;
use cutape_model::{Evidence, ExchangeSite, Exchanges, Sharing};
use cutape_registry::SharedKind;
use serde::Serialize;

use crate::text_table::table;
use cutape_render::quantity::{count, grouped};
use cutape_terminal::output::printable;

/// The most rows of a table; JSON has all.
const MOST_ROWS: usize = 40;

/// One process of the recording.
pub(super) struct Sharer {
    /// The file's name.
    pub(super) trace: String,
    pub(super) rank: Option<u64>,
    pub(super) clock: Option<ClockStart>,
    pub(super) exchanges: Exchanges,
}

/// What processes share. JSON keys are only ever added.
#[derive(Debug, Serialize)]
pub(crate) struct SharedObjects {
    /// Each export that another process imports, by exporting process and call.
    pub(crate) objects: Vec<SharedObject>,
    /// Imports whose export is in none of the traces.
    pub(crate) unmatched: Vec<Place>,
    /// Files that several processes have mapped and registered, or one of them.
    pub(crate) files: Vec<SharedFile>,
}

/// An export and its imports.
#[derive(Debug, Serialize)]
pub(crate) struct SharedObject {
    /// `memory`, `event`, `allocation`, `pool`, `pool memory`.
    pub(crate) kind: &'static str,
    pub(crate) bytes: Option<u64>,
    pub(crate) exported: Place,
    pub(crate) imported: Vec<Place>,
    /// `handle`: both have the same bytes; `file`: both descriptors name the same file; `order`:
    /// assumed from order and size.
    pub(crate) known_by: &'static str,
}

/// A call of a process.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Place {
    pub(crate) trace: String,
    pub(crate) rank: Option<u64>,
    pub(crate) call: u64,
    pub(crate) function: &'static str,
}

/// A file that processes have mapped to share host memory.
#[derive(Debug, Serialize)]
pub(crate) struct SharedFile {
    pub(crate) name: String,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) registered: Vec<RegisteredPart>,
}

/// A part of the file that a process has registered.
#[derive(Debug, Serialize)]
pub(crate) struct RegisteredPart {
    #[serde(flatten)]
    pub(crate) place: Place,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Changes of it that this process's calls found, by kernels or by threads of any process, and
    /// their bytes.
    pub(crate) changes: u64,
    pub(crate) changed_bytes: u64,
}

impl Place {
    fn process(&self) -> String {
        match self.rank {
            Some(rank) => format!("rank {rank}"),
            None => printable(&self.trace).into_owned(),
        }
    }

    fn text(&self) -> String {
        format!("{} call {}", self.process(), self.call)
    }
}

impl SharedFile {
    /// `3 by rank 0 (24 bytes), 2 by rank 1 (16 bytes)`.
    fn changes(&self) -> String {
        let mut found: Vec<(String, u64, u64)> = Vec::new();
        for part in self.registered.iter().filter(|part| part.changes > 0) {
            let by = part.place.process();
            match found.iter_mut().find(|known| known.0 == by) {
                Some((_, changes, bytes)) => {
                    *changes += part.changes;
                    *bytes += part.changed_bytes;
                }
                None => found.push((by, part.changes, part.changed_bytes)),
            }
        }
        let texts = found.into_iter().map(|(by, changes, bytes)| {
            format!("{} by {by} ({})", grouped(changes), count(bytes, "byte"))
        });
        texts.collect::<Vec<_>>().join(", ")
    }
}

impl SharedObjects {
    /// `None` if the processes share nothing.
    pub(super) fn of(all: Vec<Sharer>) -> Option<Self> {
        let clocks: Option<Vec<ClockStart>> = all.iter().map(|sharer| sharer.clock).collect();
        let common = clocks.filter(|clocks| {
            let first = clocks.first();
            first.is_some_and(|first| clocks.iter().all(|other| first.has_counter_of(other)))
        });
        let moment = |_, ticks| common.as_ref().map(|_| i128::from(ticks));
        let exchanges: Vec<Exchanges> = all.iter().map(|sharer| sharer.exchanges.clone()).collect();
        let clock = |process: usize| all.get(process).and_then(|sharer| sharer.clock.as_ref());
        let are_apart = |one, other| ClockStart::are_apart(clock(one), clock(other));
        let sharing = Sharing::of(&exchanges, &moment, &are_apart);
        let place = |site: ExchangeSite| {
            let sharer = all.get(site.process)?;
            let known = &sharer.exchanges;
            let mut calls = known.exports.iter().chain(&known.imports);
            let exchange = calls.find(|exchange| exchange.call == site.call)?;
            Some(Place {
                trace: sharer.trace.clone(),
                rank: sharer.rank,
                call: site.call,
                function: exchange.function,
            })
        };
        let mut by_export: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for link in &sharing.links {
            by_export.entry(link.from).or_default().push(link);
        }
        let objects = by_export.into_iter().filter_map(|(from, links)| {
            let first = links.first()?;
            Some(SharedObject {
                kind: kind_name(first.kind),
                bytes: first.size,
                exported: place(from)?,
                imported: links.iter().filter_map(|link| place(link.to)).collect(),
                known_by: evidence_name(first.evidence),
            })
        });
        // Two machines may give the same numbers to different files.
        let mut files: BTreeMap<(usize, u64, u64), SharedFile> = BTreeMap::new();
        for (process, sharer) in all.iter().enumerate() {
            let machine = (0..process).find(|other| !are_apart(*other, process));
            let machine = machine.unwrap_or(process);
            for mapped in &sharer.exchanges.mapped {
                let mapping = mapped.mapping;
                let file = files.entry((machine, mapping.device, mapping.inode));
                let file = file.or_insert_with(|| SharedFile {
                    name: mapped.name.clone(),
                    device: mapping.device,
                    inode: mapping.inode,
                    registered: Vec::new(),
                });
                file.registered.push(RegisteredPart {
                    place: Place {
                        trace: sharer.trace.clone(),
                        rank: sharer.rank,
                        call: mapped.call,
                        function: "cuMemHostRegister",
                    },
                    offset: mapping.offset,
                    bytes: mapping.length,
                    changes: mapped.changes.count,
                    changed_bytes: mapped.changes.bytes,
                });
            }
        }
        let found = Self {
            objects: objects.collect(),
            unmatched: sharing.unmatched.into_iter().filter_map(place).collect(),
            files: files.into_values().collect(),
        };
        let is_empty =
            found.objects.is_empty() && found.unmatched.is_empty() && found.files.is_empty();
        (!is_empty).then_some(found)
    }

    /// Writes tables, at most `columns` wide if their texts can be cut.
    pub(super) fn write(&self, columns: usize, out: &mut dyn Write) -> io::Result<()> {
        if !self.objects.is_empty() {
            writeln!(
                out,
                "\nshared between processes: {}",
                count(self.objects.len() as u64, "object")
            )?;
            let rows = self.objects.iter().take(MOST_ROWS).map(|object| {
                let to: Vec<String> = object.imported.iter().map(Place::text).collect();
                vec![
                    object.kind.to_owned(),
                    object.exported.text(),
                    to.join(", "),
                    object.known_by.to_owned(),
                    object.bytes.map_or_else(String::new, grouped),
                ]
            });
            let header = ["object", "exported by", "imported by", "known by", "bytes"];
            for line in table(&header, rows.collect(), |place| place < 4, columns) {
                writeln!(out, " {line}")?;
            }
            more(self.objects.len(), out)?;
        }
        if !self.unmatched.is_empty() {
            writeln!(
                out,
                "\nimports of what none of these processes exported: {}",
                self.unmatched.len()
            )?;
            for place in self.unmatched.iter().take(MOST_ROWS) {
                writeln!(out, "  {} ({})", place.text(), place.function)?;
            }
            more(self.unmatched.len(), out)?;
        }
        if !self.files.is_empty() {
            writeln!(out, "\nregistered shared host memory")?;
            let rows = self.files.iter().take(MOST_ROWS).map(|file| {
                let by: Vec<String> = file
                    .registered
                    .iter()
                    .map(|part| part.place.text())
                    .collect();
                let bytes = file.registered.iter().map(|part| part.bytes).max();
                vec![
                    printable(&file.name).into_owned(),
                    by.join(", "),
                    file.changes(),
                    grouped(bytes.unwrap_or(0)),
                ]
            });
            let header = ["file", "registered by", "changes found", "bytes"];
            // Counts are not cut.
            for line in table(&header, rows.collect(), |place| place < 2, columns) {
                writeln!(out, " {line}")?;
            }
            more(self.files.len(), out)?;
        }
        Ok(())
    }
}

fn more(total: usize, out: &mut dyn Write) -> io::Result<()> {
    match total.checked_sub(MOST_ROWS) {
        None | Some(0) => Ok(()),
        Some(left) => writeln!(out, "  ... and {left} more; --format json has all"),
    }
}

fn kind_name(kind: SharedKind) -> &'static str {
    match kind {
        SharedKind::Memory => "memory",
        SharedKind::Event => "event",
        SharedKind::Allocation => "allocation",
        SharedKind::Pool => "pool",
        SharedKind::PoolMemory => "pool memory",
    }
}

fn evidence_name(evidence: Evidence) -> &'static str {
    match evidence {
        Evidence::Bytes => "handle",
        Evidence::File => "file",
        Evidence::Order => "order",
    }
}
