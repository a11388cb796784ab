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
mod changes;
mod contents;
mod counterparts;
mod describe;
mod differences;
mod hash;
mod list;
mod objects;
mod order;
mod part;
mod plan;
mod reader;
mod report;
mod sequence;
mod settings;
mod threads;
mod times;
mod titles;

use std::collections::BTreeMap;
use std::thread;

use cutape_format::{Error, Trace, WalkSummary};

pub use report::{
    CallSite, Change, Difference, Kind, LeftOut, Report, Setting, Side, Spread, Times,
};

pub use times::FEWEST_CALLS;

use counterparts::{Counterparts, Hint};
use differences::{Kinds, Raw};
use sequence::Sequence;

/// What to compare, and how much to list.
#[derive(Clone, Debug)]
pub struct Options {
    /// Kinds of difference that do not count.
    pub ignored: Vec<Kind>,
    /// List every difference, not one of each sort.
    pub all: bool,
    /// How many to list.
    pub most: usize,
    /// Compare durations of calls too.
    pub times: bool,
}

/// What a comparison found, and what the walks over the traces say about their soundness.
#[derive(Debug)]
pub struct Comparison {
    /// The differences.
    pub report: Report,
    /// Of A and B.
    pub walked: [WalkSummary; 2],
}

/// Compares two traces.
///
/// # Errors
/// If a trace cannot be read.
pub fn compare(a: &Trace, b: &Trace, options: &Options) -> Result<Comparison, Error> {
    let lengths_only = settings::lacks_payloads(a) || settings::lacks_payloads(b);
    let read = |trace| Sequence::read(trace, lengths_only, options.times);
    let (in_a, in_b) = thread::scope(|scope| {
        let of_b = scope.spawn(|| read(b));
        let of_a = read(a);
        // A panic in the other thread is a bug and goes on in this one.
        let of_b = of_b
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (of_a, of_b)
    });
    let (mut in_a, mut in_b) = (in_a?, in_b?);
    let walked = [&mut in_a, &mut in_b].map(|side| std::mem::take(&mut side.summary));
    let ignored = Kinds::of(&options.ignored);
    let differences = |hint| {
        let mut counterparts = Counterparts::find(&in_a, &in_b, hint);
        let found = differences::differences(&in_a, &in_b, &mut counterparts, ignored);
        (counterparts, found)
    };
    let of = |raws: &[Raw]| raws.iter().map(|raw| raw.count).sum::<u64>();
    let (mut counterparts, (mut raws, mut moved)) = differences(Hint::None);
    if !raws.is_empty() {
        // The shorter explanation is the better one.
        let other = differences(Hint::Uses);
        if of(&other.1.0) < of(&raws) {
            (counterparts, (raws, moved)) = other;
        }
    }
    let mut counts = BTreeMap::new();
    let total = of(&raws);
    for raw in &raws {
        for kind in raw.kinds.list() {
            let count = match kind {
                Kind::Leak => raw.leaks.max(1),
                _ => raw.count,
            };
            *counts.entry(kind).or_default() += count;
        }
    }
    let listed = list::list(&raws, options.all, options.most);
    let omitted = listed.omitted;
    let sides = (in_a, in_b);
    let described = list::describe_all((a, b), lengths_only, &listed.raws)?;
    let differences: Vec<Difference> = listed
        .raws
        .iter()
        .map(|raw| titles::difference(raw, (&sides.0, &sides.1), &counterparts, &described))
        .collect();
    let is_machine = |difference: &Difference| difference.kinds == [Kind::Machine];
    let first = differences
        .iter()
        .position(|difference| !is_machine(difference))
        .or(if differences.is_empty() {
            None
        } else {
            Some(0)
        });
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
        omitted,
        counts,
        total,
        left_out,
        moved,
        lengths_only,
        times,
    };
    Ok(Comparison { report, walked })
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
