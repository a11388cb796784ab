//! Which import of which process belongs to which export.

use std::collections::{BTreeMap, BTreeSet};

use cutape_registry::SharedKind;

use super::exchanges::{Exchange, Exchanges, Identity};

/// A call of a process: the position of its trace, and the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// Position of the process among those that were given.
    pub process: usize,
    /// Index of the call in its trace.
    pub call: u64,
}

/// Why an import belongs to an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Both have the same bytes.
    Bytes,
    /// Both descriptors name the same file, or an open file with the same mark.
    File,
    /// Assumed: of the exports that came before, it is the first that has the size and that no
    /// other import took. Descriptors of a device driver without a mark cannot be told apart.
    Order,
}

/// An import, and the export that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// What is shared.
    pub kind: SharedKind,
    /// The export.
    pub from: Site,
    /// The import.
    pub to: Site,
    /// Bytes of the memory, if the trace says.
    pub size: Option<u64>,
    /// How it is known.
    pub evidence: Evidence,
}

/// What the processes of a recording share.
#[derive(Clone, Debug, Default)]
pub struct Sharing {
    /// By importing process, in order of its calls.
    pub links: Vec<Link>,
    /// Imports whose export is in none of the traces.
    pub unmatched: Vec<Site>,
    /// Imports that the driver refused, of what one of the processes had exported as any kind.
    pub refused: Vec<RefusedImport>,
}

/// An import that the driver refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedImport {
    /// The export with the same identity.
    pub from: Site,
    /// As what it was exported.
    pub exported: SharedKind,
    /// The import.
    pub to: Site,
    /// As what it was to be imported.
    pub imported: SharedKind,
}

impl Sharing {
    /// Matches the imports of all processes. `moment` brings the ticks of a process to a clock that
    /// all have; without one, the order of calls of different processes is not known. `are_apart`
    /// says whether two processes seem to be on different machines, where numbers of processes and
    /// files may be the same: but for handles that are made for that, an export of the importer's
    /// own machine is preferred.
    pub fn of(
        all: &[Exchanges],
        moment: &dyn Fn(usize, u64) -> Option<i128>,
        are_apart: &dyn Fn(usize, usize) -> bool,
    ) -> Self {
        let mut imports: Vec<(Option<i128>, usize, &Exchange)> = Vec::new();
        let mut exports = BTreeMap::<_, Vec<Export<'_>>>::new();
        for (process, exchanges) in all.iter().enumerate() {
            for exchange in &exchanges.exports {
                let key = (exchange.kind, &exchange.identity);
                exports.entry(key).or_default().push(Export {
                    process,
                    exchange,
                    moment: moment(process, exchange.ticks),
                });
            }
            let of_process = exchanges.imports.iter();
            imports
                .extend(of_process.map(|import| (moment(process, import.ticks), process, import)));
        }
        // In order of time, so that those which only order tells apart are taken in order.
        imports.sort_by_key(|&(moment, process, import)| (moment, process, import.call));
        let mut found = Self::default();
        let mut taken = BTreeSet::new();
        for (moment, process, import) in imports {
            let to = Site {
                process,
                call: import.call,
            };
            let candidates = exports.get(&(import.kind, &import.identity));
            let candidates = candidates.map(Vec::as_slice).unwrap_or_default();
            let is_near = |export: &Export<'_>| {
                crosses_machines(import) || !are_apart(export.process, process)
            };
            let before = candidates
                .iter()
                .filter(|export| export.is_before(process, import, moment));
            let any_near = before.clone().any(is_near);
            let before = before.filter(|export| !any_near || is_near(export));
            let (export, evidence) = match &import.identity {
                Identity::Unknown => (None, Evidence::Order),
                // The last one: a process may export an object again, or another at its address.
                Identity::Bytes(_) => (before.max_by_key(|export| export.order()), Evidence::Bytes),
                // Marks come again after 64 exports of a process: the last one, too.
                Identity::File(..) | Identity::MarkedFile(..) => {
                    (before.max_by_key(|export| export.order()), Evidence::File)
                }
                Identity::DeviceFile(..) => {
                    let fits = |export: &&Export<'_>| {
                        export.process != process
                            && (import.size.is_none() || import.size == export.exchange.size)
                    };
                    let mut fitting: Vec<_> = before.filter(fits).collect();
                    fitting.sort_by_key(|export| (taken.contains(&export.site()), export.order()));
                    (fitting.first().copied(), Evidence::Order)
                }
            };
            match export {
                Some(export) => {
                    taken.insert(export.site());
                    found.links.push(Link {
                        kind: import.kind,
                        from: export.site(),
                        to,
                        size: export.exchange.size.or(import.size),
                        evidence,
                    });
                }
                None => found.unmatched.push(to),
            }
        }
        for (process, exchanges) in all.iter().enumerate() {
            for import in &exchanges.refused {
                let known = (process, import, moment(process, import.ticks));
                found.refused.extend(refused(&exports, known));
            }
        }
        found.links.sort_by_key(|link| link.to);
        found.unmatched.sort();
        found
    }

    /// The export that an import belongs to.
    pub fn source_of(&self, import: Site) -> Option<Site> {
        let at = self.links.binary_search_by_key(&import, |link| link.to);
        Some(self.links.get(at.ok()?)?.from)
    }
}

/// Whether the export may be on another machine: fabric handles are bytes.
fn crosses_machines(import: &Exchange) -> bool {
    let is_bytes = matches!(import.identity, Identity::Bytes(_));
    is_bytes && !matches!(import.kind, SharedKind::Memory | SharedKind::Event)
}

/// The export whose handle a refused import was given, if handles of that sort tell.
fn refused(
    exports: &BTreeMap<(SharedKind, &Identity), Vec<Export<'_>>>,
    (process, import, moment): (usize, &Exchange, Option<i128>),
) -> Option<RefusedImport> {
    if matches!(
        import.identity,
        Identity::Unknown | Identity::DeviceFile(..)
    ) {
        return None;
    }
    let same = exports
        .iter()
        .filter(|((_, identity), _)| **identity == import.identity);
    let all = same.flat_map(|((kind, _), exports)| exports.iter().map(|export| (*kind, export)));
    let before = all.filter(|(_, export)| export.is_before(process, import, moment));
    let (exported, export) =
        before.max_by_key(|(kind, export)| (*kind == import.kind, export.order()))?;
    Some(RefusedImport {
        from: export.site(),
        exported,
        to: Site {
            process,
            call: import.call,
        },
        imported: import.kind,
    })
}

/// An export, and when it was complete.
struct Export<'a> {
    process: usize,
    exchange: &'a Exchange,
    moment: Option<i128>,
}

impl Export<'_> {
    fn site(&self) -> Site {
        Site {
            process: self.process,
            call: self.exchange.call,
        }
    }

    fn order(&self) -> (Option<i128>, usize, u64) {
        (self.moment, self.process, self.exchange.call)
    }

    /// Whether it may be complete before an import begins.
    fn is_before(&self, process: usize, import: &Exchange, moment: Option<i128>) -> bool {
        match (self.moment, moment) {
            _ if self.process == process => self.exchange.call < import.call,
            (Some(export), Some(import)) => export <= import,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(call: u64, identity: Identity, size: Option<u64>) -> Exchange {
        Exchange {
            call,
            function: "",
            kind: SharedKind::Memory,
            ticks: call,
            identity,
            object: 0,
            size,
            properties: None,
        }
    }

    fn process(exports: Vec<Exchange>, imports: Vec<Exchange>) -> Exchanges {
        Exchanges {
            exports,
            imports,
            ..Exchanges::default()
        }
    }

    /// Of each import by process and call: process and call of its export.
    fn links(all: &[Exchanges]) -> Vec<[u64; 4]> {
        let sharing = Sharing::of(all, &|_, ticks| Some(i128::from(ticks)), &|_, _| false);
        let numbers = |link: &Link| {
            let (to, from) = (link.to, link.from);
            [to.process as u64, to.call, from.process as u64, from.call]
        };
        sharing.links.iter().map(numbers).collect()
    }

    #[test]
    fn imports_belong_to_the_last_export_of_their_identity() {
        let bytes = |byte| Identity::Bytes(vec![byte; 64]);
        let all = [
            process(
                vec![
                    exchange(1, bytes(7), None),
                    exchange(5, bytes(7), None),
                    exchange(6, Identity::File(1, 40), None),
                    exchange(30, bytes(9), None),
                ],
                vec![exchange(9, Identity::File(1, 41), None)],
            ),
            process(
                vec![exchange(3, Identity::File(1, 41), None)],
                vec![
                    exchange(2, bytes(7), None),
                    exchange(8, bytes(7), None),
                    exchange(9, Identity::File(1, 40), None),
                    // Nobody exported these before.
                    exchange(10, bytes(8), None),
                    exchange(11, bytes(9), None),
                    exchange(12, Identity::Unknown, None),
                ],
            ),
        ];
        let expected = [[0, 9, 1, 3], [1, 2, 0, 1], [1, 8, 0, 5], [1, 9, 0, 6]];
        assert_eq!(links(&all), expected);
        let sharing = Sharing::of(&all, &|_, ticks| Some(i128::from(ticks)), &|_, _| false);
        let unmatched: Vec<u64> = sharing.unmatched.iter().map(|site| site.call).collect();
        assert_eq!(unmatched, [10, 11, 12]);
        let site = |process, call| Site { process, call };
        assert_eq!(sharing.source_of(site(1, 8)), Some(site(0, 5)));
        assert_eq!(sharing.source_of(site(1, 10)), None);
        // Without a common clock, the last export of all is taken.
        let sharing = Sharing::of(&all, &|_, _| None, &|_, _| false);
        assert_eq!(sharing.source_of(site(1, 11)), Some(site(0, 30)));
    }

    #[test]
    fn exports_of_the_own_machine_are_preferred_but_for_fabric_handles() {
        let of_kind = |kind, call, identity| Exchange {
            kind,
            ..exchange(call, identity, None)
        };
        let bytes = Identity::Bytes(vec![7; 64]);
        let all_identities = [
            (SharedKind::Memory, bytes.clone(), false),
            (SharedKind::Event, bytes.clone(), false),
            (SharedKind::Allocation, bytes, true),
            (SharedKind::Allocation, Identity::MarkedFile(40, 1), false),
            (SharedKind::Allocation, Identity::DeviceFile(5, 77), false),
            (SharedKind::Pool, Identity::File(1, 40), false),
        ];
        for (kind, identity, crosses) in all_identities {
            let export = process(vec![of_kind(kind, 1, identity.clone())], vec![]);
            let import = process(vec![], vec![of_kind(kind, 5, identity.clone())]);
            // Processes 0 and 1 are on one machine, and 2 is on another.
            let all = [export.clone(), import, export];
            let are_apart = |one: usize, other: usize| (one == 2) != (other == 2);
            let sharing = Sharing::of(&all, &|_, _| None, &are_apart);
            let from = if crosses { 2 } else { 0 };
            assert_eq!(sharing.links[0].from.process, from, "{kind:?} {identity:?}");
            // If there is no other, the clocks may be wrong.
            let sharing = Sharing::of(&all[1..], &|_, _| None, &|_, _| true);
            assert_eq!(sharing.links[0].from.process, 1, "{kind:?} {identity:?}");
        }
    }

    #[test]
    fn refused_imports_are_matched_with_exports_of_any_kind() {
        let of_kind = |kind, call, identity| Exchange {
            kind,
            ..exchange(call, identity, None)
        };
        let file = |number| Identity::File(1, number);
        let exporter = process(
            vec![
                of_kind(SharedKind::Pool, 1, file(40)),
                of_kind(SharedKind::Allocation, 2, file(41)),
                of_kind(SharedKind::Allocation, 3, Identity::DeviceFile(5, 77)),
            ],
            vec![],
        );
        let importer = Exchanges {
            refused: vec![
                of_kind(SharedKind::Allocation, 10, file(40)),
                of_kind(SharedKind::Allocation, 11, file(41)),
                // Nothing tells which export it is, or there is none.
                of_kind(SharedKind::Allocation, 12, Identity::DeviceFile(5, 77)),
                of_kind(SharedKind::Allocation, 13, file(42)),
            ],
            ..Exchanges::default()
        };
        let all = [exporter, importer];
        let sharing = Sharing::of(&all, &|_, ticks| Some(i128::from(ticks)), &|_, _| false);
        let calls = sharing.refused.iter();
        let found: Vec<_> = calls
            .map(|refused| (refused.to.call, refused.from.call))
            .collect();
        assert_eq!(found, [(10, 1), (11, 2)]);
        assert_eq!(sharing.refused[0].exported, SharedKind::Pool);
        assert!(sharing.links.is_empty() && sharing.unmatched.is_empty());
    }

    #[test]
    fn marked_descriptors_of_a_device_driver_are_matched_by_their_marks() {
        let marked = |owner, mark| Identity::MarkedFile(owner, mark);
        let all = [
            process(
                vec![
                    exchange(1, marked(40, 1), Some(100)),
                    exchange(2, marked(40, 2), Some(100)),
                    // After 64 exports.
                    exchange(20, marked(40, 1), Some(100)),
                ],
                vec![exchange(5, marked(41, 1), None)],
            ),
            process(
                vec![exchange(2, marked(41, 1), Some(100))],
                vec![
                    exchange(5, marked(40, 2), None),
                    exchange(6, marked(40, 1), None),
                    exchange(30, marked(40, 1), None),
                ],
            ),
        ];
        let expected = [[0, 5, 1, 2], [1, 5, 0, 2], [1, 6, 0, 1], [1, 30, 0, 20]];
        assert_eq!(links(&all), expected);
    }

    #[test]
    fn descriptors_of_a_device_driver_are_matched_by_size_and_order() {
        let file = || Identity::DeviceFile(5, 77);
        let all = [
            process(
                vec![
                    exchange(1, file(), Some(100)),
                    exchange(2, file(), Some(200)),
                    exchange(3, file(), Some(100)),
                ],
                vec![exchange(9, file(), Some(300))],
            ),
            process(
                vec![exchange(2, file(), Some(300))],
                vec![
                    exchange(5, file(), Some(100)),
                    exchange(6, file(), Some(100)),
                    exchange(7, file(), Some(200)),
                    exchange(8, file(), Some(200)),
                    exchange(9, file(), Some(300)),
                ],
            ),
        ];
        // Its own export is not what a process imports.
        let expected = [
            [0, 9, 1, 2],
            [1, 5, 0, 1],
            [1, 6, 0, 3],
            [1, 7, 0, 2],
            [1, 8, 0, 2],
        ];
        assert_eq!(links(&all), expected);
    }
}
