//! What differs between two traces of one program.
//!
//! [`compare`] reads each trace once and keeps about 100 bytes of a call: hashes of what the
//! program asked for, what it gave and what it got, without addresses and handles, and the numbers
//! of the objects that the call uses. Threads are paired by what they do, calls by sequence
//! alignment, objects by the calls that create them. A second walk reads the calls that differ and
//! describes them.
//!
//! Invariant: two recordings of a program that does the same have no difference, whatever their
//! addresses, handles, threads' order and times are. No unsafe code; no bytes of a trace cause a
//! panic; memory grows with the number of calls and of differences, not with payloads.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

mod align;
mod aligned;
mod changes;
mod contents;
mod counterparts;
mod describe;
mod differences;
mod ends;
mod hash;
mod list;
mod masks;
mod noise;
mod objects;
mod one_by_one;
mod order;
mod parallel;
mod part;
mod plan;
mod reader;
mod report;
mod sequence;
mod settings;
mod threads;
mod times;
mod titles;
mod unset;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use cutape_format::{Error, Trace, WalkSummary};

pub use aligned::Aligned;
pub use masks::Masks;
pub use one_by_one::{OneByOne, Unequal, Used};
pub use report::{
    CallSite, Change, Difference, Kind, LeftOut, Report, Setting, Side, Spread, Times, UnsetBytes,
};

pub use times::FEWEST_CALLS;

use counterparts::{Counterparts, Hint};
use differences::{Kinds, Raw};
use parallel::on_each;
use sequence::Sequence;
use unset::Unset;

/// What to compare, and how much to list.
#[derive(Clone, Debug)]
pub struct Options<'t> {
    /// Further recordings of A's program: what differs between A and them is noise, and does not
    /// count.
    pub noise: &'t [Trace],
    /// Kinds of difference that do not count.
    pub ignored: Vec<Kind>,
    /// List every difference, not one of each sort.
    pub all: bool,
    /// How many to list.
    pub most: usize,
    /// Count bytes of kernel parameters too that may be unset.
    pub strict: bool,
    /// Compare durations of calls too.
    pub times: bool,
    /// Say which calls correspond.
    pub aligned: bool,
    /// Counts the calls that have been read.
    pub read: Option<&'t AtomicU64>,
}

/// What a comparison found, and what the walks over the traces say about their soundness.
#[derive(Debug)]
pub struct Comparison {
    /// The differences.
    pub report: Report,
    /// Of A, B and the recordings that show noise.
    pub walked: Vec<WalkSummary>,
    /// The calls that correspond, if they were asked for.
    pub aligned: Option<Aligned>,
}

/// Compares two traces.
///
/// # Errors
/// If a trace cannot be read.
pub fn compare(a: &Trace, b: &Trace, options: &Options<'_>) -> Result<Comparison, Error> {
    let traces: Vec<&Trace> = [a, b].into_iter().chain(options.noise).collect();
    let lengths_only = traces.iter().any(|trace| settings::lacks_payloads(trace));
    let mut masks = Masks::default();
    let mut read = read_all(&traces, lengths_only, options, &masks)?;
    if let [in_a, _, others @ ..] = &read[..]
        && !others.is_empty()
    {
        let others: Vec<_> = options.noise.iter().zip(others).collect();
        masks = noise::masks((a, in_a), &others, lengths_only)?;
        if !masks.is_empty() {
            read = read_all(&traces, lengths_only, options, &masks)?;
        }
    }
    let mut unset = Unset::default();
    if let ([in_a, in_b, ..], false, false) = (&read[..], options.strict, lengths_only) {
        unset = unset::find((a, in_a), (b, in_b), &masks)?;
        if !unset.masks.is_empty() {
            masks.extend(&unset.masks);
            read = read_all(&traces, lengths_only, options, &masks)?;
        }
    }
    let walked = read.iter_mut();
    let walked = walked
        .map(|side| std::mem::take(&mut side.summary))
        .collect();
    let mut read = read.into_iter();
    let (in_a, in_b) = (read.next(), read.next());
    let (in_a, in_b) = (in_a.unwrap_or_default(), in_b.unwrap_or_default());
    let others: Vec<Sequence> = read.collect();
    let noise = noise::noise(&in_a, &others);
    drop(others);
    let ignored = Kinds::of(&options.ignored);
    let differences = |hint| {
        let mut counterparts = Counterparts::find(&in_a, &in_b, hint);
        let mut is_noise = 0;
        let mut without = |raw: &Raw| {
            let noise = noise.of(raw, &in_a, &in_b);
            let counted = raw.kinds.without(ignored);
            let is_all = counted.without(noise).is_empty();
            is_noise += u64::from(!counted.is_empty() && is_all);
            ignored.and(noise)
        };
        let found = differences::differences(&in_a, &in_b, &mut counterparts, &mut without);
        (counterparts, found, is_noise)
    };
    let of = |raws: &[Raw]| raws.iter().map(|raw| raw.count).sum::<u64>();
    let (mut counterparts, (mut raws, mut uncounted), mut is_noise) = differences(Hint::None);
    if !raws.is_empty() {
        // The shorter explanation is the better one.
        let other = differences(Hint::Uses);
        if of(&other.1.0) < of(&raws) {
            (counterparts, (raws, uncounted), is_noise) = other;
        }
    }
    let (total, counts) = (of(&raws), counts(&raws));
    let aligned = (options.aligned).then(|| Aligned::of((&in_a, &in_b), &counterparts, &raws));
    let listed = list::list(&raws, options.all, options.most);
    let sides = (in_a, in_b);
    let described = list::describe_all((a, b), (lengths_only, &masks), &listed.raws)?;
    let differences: Vec<Difference> = listed
        .raws
        .iter()
        .map(|raw| titles::difference(raw, (&sides.0, &sides.1), &counterparts, &described))
        .collect();
    let is_machine = |difference: &Difference| difference.kinds == [Kind::Machine];
    let first = differences.iter().position(|one| !is_machine(one));
    let first = first.or((!differences.is_empty()).then_some(0));
    let (settings, is_other_machine) = settings::settings(a, b);
    let left_out = left_out(&sides.0, &sides.1);
    let of = |side: &Sequence| Side {
        calls: side.calls,
        threads: side.threads.len() as u64,
    };
    let numbers = [of(&sides.0), of(&sides.1)];
    let times = match options.times {
        true => times::times((a, sides.0.durations), (b, sides.1.durations)),
        false => Vec::new(),
    };
    let report = Report {
        sides: numbers,
        settings,
        is_other_machine,
        differences,
        first,
        omitted: listed.omitted,
        counts,
        total,
        left_out,
        moved: uncounted.moved,
        reordered_ends: uncounted.reordered_ends,
        lengths_only,
        noise: (!options.noise.is_empty()).then_some(is_noise),
        unset: unset_bytes(unset),
        times,
    };
    Ok(Comparison {
        report,
        walked,
        aligned,
    })
}

/// How many differences of each kind there are.
fn counts(raws: &[Raw]) -> BTreeMap<Kind, u64> {
    let mut counts = BTreeMap::new();
    for raw in raws {
        for kind in raw.kinds.list() {
            *counts.entry(kind).or_default() += match kind {
                Kind::Leak => raw.leaks.max(1),
                _ => raw.count,
            };
        }
    }
    counts
}

fn unset_bytes(unset: Unset) -> Vec<UnsetBytes> {
    let kernels = unset.kernels.into_iter();
    kernels
        .map(|(kernel, (bytes, launches))| UnsetBytes {
            kernel,
            bytes,
            launches,
        })
        .collect()
}

/// Reads traces, each in a thread of its own.
fn read_all(
    traces: &[&Trace],
    lengths_only: bool,
    options: &Options<'_>,
    masks: &Masks,
) -> Result<Vec<Sequence>, Error> {
    if let Some(read) = options.read {
        // What was read before is read again, with other masks.
        read.store(0, Ordering::Relaxed);
    }
    let read =
        |trace: &Trace| Sequence::read(trace, lengths_only, options.times, masks, options.read);
    on_each(traces.iter().copied(), read).into_iter().collect()
}

/// The calls that are not compared.
fn left_out(a: &Sequence, b: &Sequence) -> Vec<LeftOut> {
    let mut counts: BTreeMap<(&'static str, &str), [u64; 2]> = BTreeMap::new();
    for ((sort, function), &count) in &a.noise {
        counts.entry((sort, function)).or_default()[0] = count;
    }
    for ((sort, function), &count) in &b.noise {
        counts.entry((sort, function)).or_default()[1] = count;
    }
    let counts = counts.into_iter();
    counts
        .map(|((sort, function), counts)| LeftOut {
            sort,
            function: function.to_owned(),
            counts,
        })
        .collect()
}
