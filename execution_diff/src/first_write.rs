//! The first call or node of a graph that writes something else in another recording: the question of
//! `cutape first --differs`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use cutape_history::{CallFacts, Contents, MemoryPairs, facts};
use cutape_replay::{
    ChangedPage, Moment, Observation, Observed, Search, WriteSet, Writer, Writes, Written, compare,
};
use serde::Serialize;

use crate::compared::{Compared, Replays, Side};
use crate::contents::pairs;
use crate::launches::Counterparts;
use crate::read::MOST_BYTES;
use crate::report::DifferingMemory;

/// How often writes are read, if those read before are dismissed; each time four times as many.
const ROUNDS: u32 = 6;
/// The most bytes of pages that are compared at once.
const LONGEST: u64 = 64 << 20;
/// No number is looked for.
const NO_NUMBERS: [(u64, u64); 4] = [(1, 0); 4];

/// What a comparison of writes found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FirstWrite {
    /// Whether a call or node writes something else that is not within the tolerance.
    pub differs: bool,
    /// Calls and nodes that write to device memory in A or B, and correspond.
    pub writes: u64,
    /// Those that write something else, by their digests.
    pub differing: u64,
    /// The first of them that counts.
    pub first: Option<DifferingWrite>,
    /// Calls of A whose writes differ within the tolerance, or only in addresses.
    pub dismissed: Vec<u64>,
    /// Writes that differ by their digests and were not read, if those before them do not count.
    pub unread: u64,
    /// Calls of A whose writes differ between two replays of A. They do not count.
    pub not_reproducible: Vec<u64>,
    /// Writes of calls that one trace has alone, of A and B.
    pub only: [u64; 2],
    /// What was not looked at, one line each.
    pub not_looked_at: Vec<String>,
}

/// A write that differs.
#[derive(Clone, Debug, Serialize)]
pub struct DifferingWrite {
    /// Who writes, in A and B.
    pub writers: [WriterFacts; 2],
    /// In what the calls differ: words of `diff`.
    pub kinds: Vec<&'static str>,
    /// The memory of A that differs after it.
    pub memory: Vec<DifferingMemory>,
    /// Why memory was not read: it differs by its digests.
    pub not_read: Option<String>,
}

/// Who writes.
#[derive(Clone, Debug, Serialize)]
pub struct WriterFacts {
    /// The call, or a node of its graph.
    pub by: Writer,
    /// Index of the call.
    pub call: u64,
    /// The call.
    pub by_call: CallFacts,
}

/// A write of A and that of B.
type Pair = (Moment, Moment);

/// Compares what two traces write. [`Compared::most`] writes are read at first.
///
/// # Errors
/// A trace cannot be replayed, as a message.
pub fn first_write(
    compared: &Compared<'_>,
    replays: &mut dyn Replays,
) -> Result<FirstWrite, String> {
    let mut report = FirstWrite::default();
    let mut written = |side| {
        let observed = observe(replays, side, &Writes::default(), compared)?;
        report.not_looked_at.extend(observed.not_watched);
        Ok::<_, String>(observed.written)
    };
    let (a, b, again) = (written(Side::A)?, written(Side::B)?, written(Side::A)?);
    let counterparts: Counterparts = compared.aligned.pairs.iter().copied().collect();
    let same = a.iter().chain(&again).map(|write| (write.call, write.call));
    let varying = differing(&a, &again, &same.collect(), &mut FirstWrite::default());
    let varying: BTreeSet<u64> = varying.into_iter().map(|((call, _), _)| call).collect();
    let mut candidates = differing(&a, &b, &counterparts, &mut report);
    candidates.retain(|((call, _), _)| !varying.contains(call));
    report.not_reproducible = varying.into_iter().collect();
    report.differing = candidates.len() as u64;
    let search = Reading {
        compared,
        counterparts: &counterparts,
        written: [&a, &b],
    };
    let mut rest = &candidates[..];
    for round in 0..ROUNDS {
        let most = compared.most.max(1).saturating_mul(4usize.pow(round));
        let (some, later) = rest.split_at(most.min(rest.len()));
        rest = later;
        report.first = search.read(some, replays, &mut report.dismissed);
        if report.first.is_some() || rest.is_empty() {
            break;
        }
    }
    if report.first.is_none() {
        report.unread = rest.len() as u64;
    }
    report.differs = report.first.is_some() || report.unread > 0;
    report.not_looked_at.sort();
    report.not_looked_at.dedup();
    Ok(report)
}

/// Replays a trace, and looks at what it writes.
fn observe(
    replays: &mut dyn Replays,
    side: Side,
    writes: &Writes,
    compared: &Compared<'_>,
) -> Result<Observed, String> {
    let last = writes.described.iter().map(|(moment, _)| moment.0).max();
    let observation = Observation {
        search: Some(Search {
            ranges: NO_NUMBERS,
            writes: Some(writes.clone()),
            ..Search::default()
        }),
        contents: compared.folder.join("writes"),
        most_bytes: MOST_BYTES,
        until: last.map(|last| last + 1),
        ..Observation::default()
    };
    replays.observe(side, &observation)
}

/// The writes with other digests, in the order of A. Counts what corresponds and what does not.
fn differing(
    of_a: &[Written],
    of_b: &[Written],
    counterparts: &Counterparts,
    report: &mut FirstWrite,
) -> Vec<Pair> {
    let by_moment = |written: &Written| {
        let what = (written.pages, written.digest);
        (written.by.moment(written.call), what)
    };
    let in_a: BTreeMap<Moment, (u64, u64)> = of_a.iter().map(by_moment).collect();
    let mut in_b: BTreeMap<Moment, (u64, u64)> = of_b.iter().map(by_moment).collect();
    let back: BTreeMap<u64, u64> = counterparts.iter().map(|(&a, &b)| (b, a)).collect();
    let mut pairs = Vec::new();
    for (&(call, place), what) in &in_a {
        let Some(&other) = counterparts.get(&call) else {
            report.only[0] += 1;
            continue;
        };
        report.writes += 1;
        if in_b.remove(&(other, place)).as_ref() != Some(what) {
            pairs.push(((call, place), (other, place)));
        }
    }
    for (call, place) in in_b.into_keys() {
        match back.get(&call) {
            Some(&of_a) => {
                report.writes += 1;
                pairs.push(((of_a, place), (call, place)));
            }
            None => report.only[1] += 1,
        }
    }
    pairs.sort_unstable();
    pairs
}

/// What writes that differ are read with.
struct Reading<'r> {
    compared: &'r Compared<'r>,
    counterparts: &'r Counterparts,
    written: [&'r [Written]; 2],
}

impl Reading<'_> {
    /// Reads the pages that differ, and finds the first write that counts.
    fn read(
        &self,
        wanted: &[Pair],
        replays: &mut dyn Replays,
        dismissed: &mut Vec<u64>,
    ) -> Option<DifferingWrite> {
        let sets = match sets(self.compared, self.counterparts, wanted, replays) {
            Ok(sets) => sets,
            Err(why) => return Some(self.described(*wanted.first()?, Err(why))),
        };
        for &pair in wanted {
            match sets.compare(pair, self.counterparts, self.compared) {
                Ok(memory) if memory.is_empty() => dismissed.push(pair.0.0),
                found => return Some(self.described(pair, found)),
            }
        }
        None
    }

    /// A write that differs, with its calls and the labels of its memory.
    fn described(
        &self,
        (of_a, of_b): Pair,
        found: Result<Vec<DifferingMemory>, String>,
    ) -> DifferingWrite {
        let [trace_a, trace_b] = self.compared.traces;
        let [facts_a, facts_b] = [(trace_a, of_a), (trace_b, of_b)]
            .map(|(trace, (call, _))| facts(trace, BTreeSet::from([call])));
        let not_read = found.as_ref().err().cloned();
        let mut memory = found.unwrap_or_default();
        let after = Some(of_a.0 + 1);
        let addresses = memory.iter().map(|one| (after, one.address));
        let labels = facts_a.label(trace_a, addresses.collect());
        for one in &mut memory {
            let label = labels.get(&(after, one.address)).cloned();
            one.memory = label.unwrap_or_else(|| format!("{:#x}", one.address));
        }
        let kinds = self.compared.aligned.kinds.get(&of_a.0);
        let kinds = kinds.into_iter().flatten().map(|kind| kind.key());
        let [written_a, written_b] = self.written;
        // One that does not write in one trace is described by the other.
        let by = |first: &[Written], other: &[Written], moment: Moment, of_other: Moment| {
            let find = |written: &[Written], moment| {
                let mut written = written.iter();
                let found = written.find(|written| written.by.moment(written.call) == moment);
                found.map(|written| written.by.clone())
            };
            let found = find(first, moment).or_else(|| find(other, of_other));
            found.unwrap_or_default()
        };
        DifferingWrite {
            writers: [
                WriterFacts {
                    by: by(written_a, written_b, of_a, of_b),
                    call: of_a.0,
                    by_call: facts_a.of(of_a.0),
                },
                WriterFacts {
                    by: by(written_b, written_a, of_b, of_a),
                    call: of_b.0,
                    by_call: facts_b.of(of_b.0),
                },
            ],
            kinds: kinds.collect(),
            memory,
            not_read,
        }
    }
}

/// The writes of both traces with what their differing pages hold after them.
struct Sets {
    of: [BTreeMap<Moment, WriteSet>; 2],
    contents: [Contents; 2],
}

/// Has the pages listed, and those that differ read.
fn sets(
    compared: &Compared<'_>,
    counterparts: &Counterparts,
    wanted: &[Pair],
    replays: &mut dyn Replays,
) -> Result<Sets, String> {
    let mut replay = |side, described: Vec<(Moment, Vec<(u64, u64)>)>| {
        let seen = observe(
            replays,
            side,
            &Writes {
                described,
                ..Writes::default()
            },
            compared,
        )?;
        let by_moment = |set: WriteSet| (set.by.moment(set.call), set);
        let sets: BTreeMap<Moment, WriteSet> = seen.write_sets.into_iter().map(by_moment).collect();
        let path = compared.folder.join("writes");
        let contents = Contents::open(&path);
        let contents = contents.map_err(|error| format!("{}: {error}", path.display()))?;
        // The next replay writes a file of its own.
        let _ = std::fs::remove_file(&path);
        Ok::<_, String>((sets, contents))
    };
    let listed = |moment: fn(&Pair) -> Moment| {
        let moments = wanted.iter().map(moment);
        moments.map(|moment| (moment, Vec::new())).collect()
    };
    let (of_a, _) = replay(Side::A, listed(|pair| pair.0))?;
    let (of_b, _) = replay(Side::B, listed(|pair| pair.1))?;
    let (mut reads_a, mut reads_b) = (Vec::new(), Vec::new());
    for (a, b) in wanted {
        let empty = WriteSet::default();
        let (set_a, set_b) = (of_a.get(a).unwrap_or(&empty), of_b.get(b).unwrap_or(&empty));
        let (in_a, in_b) = ranges(set_a, set_b, counterparts);
        reads_a.push((*a, in_a));
        reads_b.push((*b, in_b));
    }
    let (of_a, contents_a) = replay(Side::A, reads_a)?;
    let (of_b, contents_b) = replay(Side::B, reads_b)?;
    Ok(Sets {
        of: [of_a, of_b],
        contents: [contents_a, contents_b],
    })
}

/// Recorded addresses of first bytes and ends.
type Ranges = Vec<(u64, u64)>;

/// The ranges of A and B in which changed pages differ, one for one. A page that only one trace has
/// changed differs.
fn ranges(a: &WriteSet, b: &WriteSet, counterparts: &Counterparts) -> (Ranges, Ranges) {
    let key_b = |page: &ChangedPage| (page.made, page.offset);
    let pages_b = b.pages.iter().map(|page| (key_b(page), page));
    let in_b: BTreeMap<(u64, u64), &ChangedPage> = pages_b.collect();
    let back: BTreeMap<u64, u64> = counterparts.iter().map(|(&a, &b)| (b, a)).collect();
    let key_a = |page: &ChangedPage| Some((*counterparts.get(&page.made)?, page.offset));
    let of_a: BTreeSet<(u64, u64)> = a.pages.iter().filter_map(key_a).collect();
    let mut pages: Vec<(u64, u64, u64)> = Vec::new();
    for page in &a.pages {
        let other = key_a(page).and_then(|key| in_b.get(&key));
        if other.is_none_or(|other| other.digest != page.digest) {
            pages.push((page.made, page.offset, page.length));
        }
    }
    for page in b.pages.iter().filter(|page| !of_a.contains(&key_b(page))) {
        if let Some(&made) = back.get(&page.made) {
            pages.push((made, page.offset, page.length));
        }
    }
    pages.sort_unstable();
    let start = |set: &WriteSet, made| {
        let memory = set.memory.iter().find(|memory| memory.made == made);
        memory.map(|memory| memory.recorded)
    };
    let (mut in_a, mut in_b) = (Ranges::new(), Ranges::new());
    for (made, offset, length) in pages {
        let other = counterparts.get(&made).and_then(|&made| start(b, made));
        let (Some(at_a), Some(at_b)) = (start(a, made), other) else {
            continue;
        };
        let (at_a, at_b) = (at_a + offset, at_b + offset);
        match (in_a.last_mut(), in_b.last_mut()) {
            (Some(last_a), Some(last_b))
                if (last_a.1, last_b.1) == (at_a, at_b) && last_a.1 - last_a.0 < LONGEST =>
            {
                last_a.1 += length;
                last_b.1 += length;
            }
            _ => {
                in_a.push((at_a, at_a + length));
                in_b.push((at_b, at_b + length));
            }
        }
    }
    (in_a, in_b)
}

impl Sets {
    /// The memory that differs after a write.
    ///
    /// # Errors
    /// Why that is not known.
    fn compare(
        &self,
        (moment_a, moment_b): Pair,
        counterparts: &Counterparts,
        compared: &Compared<'_>,
    ) -> Result<Vec<DifferingMemory>, String> {
        let [sets_a, sets_b] = &self.of;
        let (Some(a), Some(b)) = (sets_a.get(&moment_a), sets_b.get(&moment_b)) else {
            return Err("a replay did not write there again, or not at that call".to_owned());
        };
        if let Some(why) = a.left_out.iter().chain(&b.left_out).next() {
            return Err(why.clone());
        }
        if a.read.is_empty() || a.read.len() != b.read.len() {
            return Err("the memory of A has no counterpart in B".to_owned());
        }
        let pairs = pairs(&a.memory, &b.memory, counterparts);
        let pairs = MemoryPairs::new(&a.memory, &b.memory, pairs);
        let [contents_a, contents_b] = &self.contents;
        let mut found = Vec::new();
        for (of_a, of_b) in a.read.iter().zip(&b.read) {
            let read = || {
                let in_a = contents_a.read(of_a, &of_a.after)?;
                let mut in_b = contents_b.read(of_b, &of_b.after)?;
                pairs.as_in_a(&in_a, &mut in_b);
                Ok::<_, io::Error>((in_a, in_b))
            };
            let (in_a, in_b) = read().map_err(|error| format!("contents of memory: {error}"))?;
            let mismatch = compare(&in_a, &in_b, &compared.tolerance);
            found.extend(mismatch.map(|mismatch| DifferingMemory {
                memory: String::new(),
                address: of_a.recorded,
                length: of_a.length,
                parameters: Vec::new(),
                mismatch: Some(mismatch),
            }));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use cutape_replay::ObservedMemory;

    use super::*;

    fn written(call: u64, node: Option<u32>, digest: u64) -> Written {
        Written {
            call,
            by: match node {
                Some(node) => Writer::Node(node, String::new()),
                None => Writer::Call,
            },
            pages: 1,
            digest,
            ..Written::default()
        }
    }

    #[test]
    fn writes_of_calls_that_correspond_are_compared() {
        // B has one call more before the others, and each trace writes with a call of its own.
        let counterparts = [(1, 2), (3, 4), (5, 6), (7, 8)].into_iter().collect();
        let a = [
            written(1, None, 1),
            written(3, Some(0), 1),
            written(3, Some(1), 2),
            written(5, None, 1),
            written(9, None, 1),
        ];
        let b = [
            written(2, None, 1),
            written(4, Some(0), 1),
            written(4, Some(1), 3),
            written(8, None, 1),
            written(11, None, 1),
        ];
        let mut report = FirstWrite::default();
        let found = differing(&a, &b, &counterparts, &mut report);
        let call = |call| (call, u32::MAX);
        let expected = [((3, 2), (4, 2)), (call(5), call(6)), (call(7), call(8))];
        assert_eq!(found, expected);
        assert_eq!((report.writes, report.only), (5, [1, 1]));
    }

    #[test]
    fn pages_that_differ_are_read_in_both_traces() {
        let set = |shift: u64, pages: &[(u64, u64)]| {
            let memory = |made: u64| ObservedMemory {
                made: made + shift,
                recorded: (made + shift) << 20,
                ..ObservedMemory::default()
            };
            let page = |&(number, digest): &(u64, u64)| ChangedPage {
                made: 1 + shift,
                offset: number << 14,
                address: ((1 + shift) << 20) + (number << 14),
                length: 1 << 14,
                digest,
            };
            WriteSet {
                memory: vec![memory(1), memory(2)],
                pages: pages.iter().map(page).collect(),
                ..WriteSet::default()
            }
        };
        let counterparts = [(1, 2), (2, 3)].into_iter().collect();
        let a = set(0, &[(0, 1), (1, 1), (2, 1), (5, 7)]);
        let b = set(1, &[(0, 1), (1, 2), (2, 2), (9, 1)]);
        let page = |base: u64, first: u64, end: u64| {
            ((base << 20) + (first << 14), (base << 20) + (end << 14))
        };
        let (in_a, in_b) = ranges(&a, &b, &counterparts);
        assert_eq!(in_a, [page(1, 1, 3), page(1, 5, 6), page(1, 9, 10)]);
        assert_eq!(in_b, [page(2, 1, 3), page(2, 5, 6), page(2, 9, 10)]);
    }
}
