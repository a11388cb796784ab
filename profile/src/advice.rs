//! What would be faster, by what the model of `prediction` makes of it, with the command that
//! verifies it.

use std::collections::{BTreeMap, BTreeSet};

use cutape_analyzer::demangle::bare;
use serde::{Deserialize, Serialize};

use crate::path::{CriticalPath, Link};
use crate::prediction::{Change, Model, PAGEABLE};
use crate::record::{Profile, Run, Work, WorkKind};

/// The most pieces of advice.
const MOST: usize = 6;
/// Gains below this part of the time are none.
const LEAST_SHARE: f64 = 0.01;
/// A bound counts half beside a prediction: the gain is somewhere below it.
const OF_A_BOUND: f64 = 0.5;

/// The most stretches of waits that a command names.
const MOST_STRETCHES: usize = 20;

/// What a kernel takes at least, however many blocks it has (assumed).
const LEAST_KERNEL_NS: u64 = 2000;

/// A change that would make the program faster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// The edit of `what-if`, such as `drop-sync`; `kernel` for a faster kernel or another shape.
    pub edit: String,
    /// What is slow, for people.
    pub what: String,
    /// The predicted gain, in nanoseconds.
    pub gain_ns: u64,
    /// That gain as a part of the time from the first call to the end of all.
    pub share: f64,
    /// The gain is at most that.
    pub is_bound: bool,
    /// The command that verifies it.
    pub command: String,
}

/// The calls that an edit would change, before its gain is known.
struct Candidate {
    edit: &'static str,
    what: String,
    set: String,
    change: Change,
}

/// The advice of a run, that with the highest gain first.
pub(crate) fn advice(profile: &Profile, run: &Run, path: &CriticalPath) -> Vec<Advice> {
    let model = Model::of(profile, run);
    let calls = profile.calls.iter();
    let pauses = calls.map(|(&call, facts)| (call, facts.program_ns));
    let unchanged = Change {
        pauses_ns: pauses.filter(|pause| pause.1 > 0).collect(),
        ..Change::default()
    };
    let whole = model.play(&unchanged);
    let trace = quoted(&profile.trace);
    let found = waits(profile, run)
        .into_iter()
        .chain(pageable(profile, run))
        .chain(serial(run))
        .chain(graphs(run));
    let mut all: Vec<Advice> = found
        .map(|candidate| {
            let change = Change {
                pauses_ns: unchanged.pauses_ns.clone(),
                ..candidate.change
            };
            let gain_ns = whole.saturating_sub(model.play(&change));
            Advice {
                edit: candidate.edit.to_owned(),
                what: candidate.what,
                gain_ns,
                share: gain_ns as f64 / whole.max(1) as f64,
                is_bound: false,
                command: format!(
                    "cutape what-if {trace} --{} {}",
                    candidate.edit,
                    quoted(&candidate.set)
                ),
            }
        })
        .collect();
    all.extend(kernel(profile, run, path, whole));
    all.retain(|one| one.share >= LEAST_SHARE);
    let rank = |one: &Advice| match one.is_bound {
        true => one.gain_ns as f64 * OF_A_BOUND,
        false => one.gain_ns as f64,
    };
    all.sort_by(|one, other| rank(other).total_cmp(&rank(one)));
    all.truncate(MOST);
    all
}

/// As a word of a command line.
fn quoted(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./:=,*".contains(letter);
    match text.chars().all(is_plain) && !text.is_empty() {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

fn is_to_host(work: &Work) -> bool {
    work.kind == WorkKind::Copy && work.name.starts_with("device-to-host")
}

/// Functions that do nothing but wait, where later work of the same stream follows and no copy to the
/// host came before: the program may need what that has brought. Work of another stream may need the
/// wait.
fn waits(profile: &Profile, run: &Run) -> Vec<Candidate> {
    let by_call = work_by_call(run);
    let mut found: BTreeMap<&str, (BTreeSet<u64>, Vec<u64>)> = BTreeMap::new();
    let mut brings = false;
    // Streams with work since the last wait, and the last wait with those before it.
    let mut streams: BTreeSet<u32> = BTreeSet::new();
    let mut last: Option<(u64, BTreeSet<u32>)> = None;
    for (&call, facts) in &profile.calls {
        if let Some(work) = by_call.get(&call) {
            brings |= work.iter().any(|work| is_to_host(work));
            streams.extend(work.iter().map(|work| work.stream));
            if let Some((wait, awaited)) = &last
                && awaited.is_superset(&streams)
                && awaited.len() == 1
            {
                let waited = profile.function(*wait);
                let (droppable, _) = found.entry(waited).or_default();
                droppable.insert(*wait);
            }
            last = None;
        } else if facts.is_wait {
            found.entry(&facts.function).or_default().1.push(call);
            let awaited = std::mem::take(&mut streams);
            last = (!std::mem::take(&mut brings)).then_some((call, awaited));
        }
    }
    let found = found.into_iter();
    let candidates = found.filter(|(_, (droppable, _))| droppable.len() > 1);
    candidates
        .map(|(function, (mut dropped, all))| {
            let mut stretches = stretches(&all, &dropped);
            stretches.truncate(MOST_STRETCHES);
            let last = stretches.last().map_or(0, |stretch| stretch.1);
            dropped.retain(|&call| call <= last);
            let set = match dropped.len() == all.len() {
                true => function.to_owned(),
                false => listed(function, &stretches),
            };
            Candidate {
                edit: "drop-sync",
                what: format!(
                    "the host waits {} times in {function} before it goes on",
                    dropped.len()
                ),
                set,
                change: Change {
                    dropped,
                    ..Change::default()
                },
            }
        })
        .collect()
}

/// Some waits of a function, as stretches without another wait of it: their first and last.
fn stretches(all: &[u64], dropped: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let parts = all.chunk_by(|one, other| dropped.contains(one) == dropped.contains(other));
    let parts = parts.filter_map(|part| Some((*part.first()?, *part.last()?)));
    parts.filter(|part| dropped.contains(&part.0)).collect()
}

/// A set with these stretches of calls of a function.
fn listed(function: &str, stretches: &[(u64, u64)]) -> String {
    let parts = stretches.iter().map(|&(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}..={last}"),
    });
    let parts = parts.collect::<Vec<_>>().join(",");
    match stretches {
        [_] => format!("{function} {parts}"),
        _ => format!("{function} ({parts})"),
    }
}

fn work_by_call(run: &Run) -> BTreeMap<u64, Vec<&Work>> {
    let mut by_call: BTreeMap<u64, Vec<&Work>> = BTreeMap::new();
    for work in &run.work {
        if let Some(call) = work.call {
            by_call.entry(call).or_default().push(work);
        }
    }
    by_call
}

/// Copies of pageable memory.
fn pageable(profile: &Profile, run: &Run) -> Option<Candidate> {
    let is_pageable = |work: &&Work| work.name.ends_with(PAGEABLE);
    let work = run.work.iter().filter(is_pageable);
    let bytes: u64 = work.clone().filter_map(|work| work.bytes).sum();
    let pinned: BTreeSet<u64> = work.filter_map(|work| work.call).collect();
    let functions: BTreeSet<&str> = pinned.iter().map(|&call| profile.function(call)).collect();
    let set: Vec<&str> = functions.into_iter().collect();
    (!pinned.is_empty()).then(|| Candidate {
        edit: "pin-memory",
        what: format!(
            "{} copies of {:.1} MiB use pageable host memory",
            pinned.len(),
            bytes as f64 / f64::from(1 << 20)
        ),
        set: set.join(","),
        change: Change {
            pinned,
            ..Change::default()
        },
    })
}

/// Kernels of one name that follow each other on a stream.
fn serial(run: &Run) -> Vec<Candidate> {
    let mut launches: BTreeMap<&str, (u64, BTreeSet<u64>)> = BTreeMap::new();
    let kernels = run
        .work
        .iter()
        .filter(|work| work.kind == WorkKind::Kernel && work.node.is_none());
    for work in kernels {
        if let Some(call) = work.call {
            let of_name = launches.entry(&work.name).or_default();
            of_name.0 += work.lasted();
            of_name.1.insert(call);
        }
    }
    let mut several: Vec<_> = launches
        .into_iter()
        .filter(|(_, (_, calls))| calls.len() > 1)
        .collect();
    several.sort_by_key(|(_, (lasted, _))| std::cmp::Reverse(*lasted));
    several.truncate(MOST);
    several
        .into_iter()
        .map(|(name, (_, overlapped))| Candidate {
            edit: "overlap",
            what: format!(
                "{} launches of {name} follow each other on a stream although they use different \
                 memory",
                overlapped.len()
            ),
            set: kernel_set(name),
            change: Change {
                overlapped,
                ..Change::default()
            },
        })
        .collect()
}

/// A kernel as sets name it: without its parameters.
fn kernel_set(name: &str) -> String {
    let name = bare(name);
    match name.contains([' ', ',', ':', '(']) {
        true => format!("kernel:\"{name}\""),
        false => format!("kernel:{name}"),
    }
}

/// Launches that follow each other.
fn graphs(run: &Run) -> Option<Candidate> {
    let launches = run.work.iter().filter(|work| {
        work.node.is_none() && matches!(work.kind, WorkKind::Kernel | WorkKind::Memset)
    });
    let graphed: BTreeSet<u64> = launches.filter_map(|work| work.call).collect();
    (graphed.len() > 1).then(|| Candidate {
        edit: "graph",
        what: format!(
            "{} launches and fills are enqueued one by one",
            graphed.len()
        ),
        set: "kind:launch,kind:fill".to_owned(),
        change: Change {
            graphed,
            ..Change::default()
        },
    })
}

/// The kernel with the largest share of the critical path, if its blocks are fewer than the
/// multiprocessors: with more, it could take that part of its time (a bound).
fn kernel(profile: &Profile, run: &Run, path: &CriticalPath, whole: u64) -> Option<Advice> {
    let kernels = path
        .shares
        .iter()
        .filter(|share| share.link == Link::Kernel);
    let share = kernels.max_by_key(|share| share.total_ns)?;
    let mut of_it = run
        .work
        .iter()
        .filter(|work| work.kind == WorkKind::Kernel && work.name == share.name);
    let work = of_it.next()?;
    let mut devices = profile.devices.iter();
    let device = devices.find(|device| device.ordinal == work.device);
    let blocks = work.grid?.into_iter().map(u64::from);
    let blocks = blocks.fold(1, u64::saturating_mul);
    let multiprocessors = device.map_or(0, |device| u64::from(device.multiprocessors));
    let unused = multiprocessors
        .checked_sub(blocks)
        .filter(|&unused| unused > 0)?;
    let least = share.count.saturating_mul(LEAST_KERNEL_NS);
    let gain = share.total_ns.saturating_sub(least) as f64 * unused as f64 / multiprocessors as f64;
    let name = bare(&share.name);
    let threads = work.block?.map(|size| size.to_string()).join(",");
    Some(Advice {
        edit: "kernel".to_owned(),
        what: format!(
            "{} has {blocks} blocks, for {multiprocessors} multiprocessors, and bounds the time",
            share.name
        ),
        gain_ns: gain as u64,
        share: gain / whole.max(1) as f64,
        is_bound: true,
        command: format!(
            "cutape what-if {} --launch-shape {}",
            quoted(&profile.trace),
            quoted(&format!("{name}={multiprocessors}x{threads}"))
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_profile::{host, kernel, profile};

    /// A loop of 50 turns on a device like an H200, in nanoseconds: launches take 2 us, an idle
    /// stream begins work 4 us after the entry of its call, a wait returns 3 us after the work.
    #[derive(Clone, Copy)]
    struct Loop {
        kernels: u64,
        lasts: u64,
        blocks: u32,
        waits: bool,
        /// Pageable bytes that are copied before the kernels.
        copied: u64,
        /// Kernels use memory in turns: that many allocations.
        areas: u64,
    }

    const PLAIN: Loop = Loop {
        kernels: 1,
        lasts: 10_000,
        blocks: 132,
        waits: false,
        copied: 0,
        areas: 1,
    };

    impl Loop {
        fn profile(self) -> Profile {
            let (mut work, mut calls, mut waits) = (Vec::new(), Vec::new(), Vec::new());
            let (mut now, mut call, mut device) = (0, 0, 0u64);
            let mut run = |work: &mut Vec<Work>, one: Work, now: u64, lasts: u64| {
                let begin = (now + 4_000).max(device + 500);
                device = begin + lasts;
                work.push(Work {
                    begin_ns: begin,
                    end_ns: device,
                    ..one
                });
                device
            };
            let mut used = Vec::new();
            for _ in 0..50 {
                if self.copied > 0 {
                    let copy = Work {
                        kind: WorkKind::Copy,
                        name: "host-to-device (pageable)".into(),
                        bytes: Some(self.copied),
                        ..kernel("", call, 0, 0)
                    };
                    // 10 GB/s, and the host is in the call for as long.
                    let end = run(&mut work, copy, now, self.copied / 10);
                    calls.push(host(call, now, end));
                    (now, call) = (end, call + 1);
                }
                for number in 0..self.kernels {
                    let one = Work {
                        grid: Some([self.blocks, 1, 1]),
                        block: Some([128, 1, 1]),
                        registers: Some(16),
                        shared_bytes: Some(0),
                        ..kernel("work(float*)", call, 0, 0)
                    };
                    run(&mut work, one, now, self.lasts);
                    calls.push(host(call, now, now + 2_000));
                    used.push((call, number % self.areas));
                    (now, call) = (now + 2_000, call + 1);
                }
                if self.waits {
                    let end = work.last().unwrap().end_ns.max(now) + 3_000;
                    calls.push(host(call, now, end));
                    waits.push(call);
                    (now, call) = (end, call + 1);
                }
            }
            let end = work.last().unwrap().end_ns.max(now) + 3_000;
            calls.push(host(call, now, end));
            waits.push(call);
            let mut profile = profile(work, calls, &waits);
            for (call, area) in used {
                profile.calls.get_mut(&call).unwrap().areas = vec![0x1000 * (area + 1)];
            }
            profile
        }
    }

    #[test]
    fn a_planted_cause_is_named_first() {
        for (what, slow, expected, command) in [
            (
                "a wait in a loop",
                Loop {
                    waits: true,
                    ..PLAIN
                },
                "drop-sync",
                "cutape what-if app.cutape --drop-sync 'cuCtxSynchronize 1..=97'",
            ),
            (
                "pageable copies",
                Loop {
                    copied: 4 << 20,
                    ..PLAIN
                },
                "pin-memory",
                "cutape what-if app.cutape --pin-memory cuLaunchKernel",
            ),
            (
                "independent work on one stream",
                Loop {
                    kernels: 4,
                    lasts: 50_000,
                    blocks: 8,
                    areas: 4,
                    ..PLAIN
                },
                "overlap",
                "cutape what-if app.cutape --overlap kernel:work",
            ),
            (
                "short launches",
                Loop {
                    kernels: 40,
                    lasts: 400,
                    blocks: 1,
                    waits: true,
                    ..PLAIN
                },
                "graph",
                "cutape what-if app.cutape --graph kind:launch,kind:fill",
            ),
            (
                "a kernel with one block",
                Loop {
                    lasts: 300_000,
                    blocks: 1,
                    ..PLAIN
                },
                "kernel",
                "cutape what-if app.cutape --launch-shape work=132x128,1,1",
            ),
        ] {
            let profile = slow.profile();
            let run = &profile.runs[0];
            let found = advice(&profile, run, &CriticalPath::of(&profile, run));
            let first = found.first().unwrap_or_else(|| panic!("{what}: no advice"));
            assert_eq!(
                (&*first.edit, &*first.command),
                (expected, command),
                "{what}: {found:#?}"
            );
            // The model is that of the profile: without a change it takes what was measured.
            let wall = CriticalPath::of(&profile, run).wall_ns as f64;
            let played = Model::of(&profile, run).play(&Change::default()) as f64;
            assert!(
                (played / wall - 1.0).abs() < 0.02,
                "{what}: {played} of {wall}"
            );
        }
    }

    #[test]
    fn what_cannot_be_faster_has_no_advice() {
        let profile = PLAIN.profile();
        let run = &profile.runs[0];
        let found = advice(&profile, run, &CriticalPath::of(&profile, run));
        assert!(found.is_empty(), "{found:#?}");
    }

    #[test]
    fn waits_that_another_stream_needs_are_no_advice() {
        // In turns: a kernel on stream 1, a wait, a kernel on another stream or the same, a wait.
        for (other, expected) in [(1, true), (2, false)] {
            let (mut work, mut calls, mut waits) = (Vec::new(), Vec::new(), Vec::new());
            for turn in 0..100 {
                let (call, now) = (2 * turn, turn * 20_000);
                let on = if turn % 2 == 0 { 1 } else { other };
                work.push(Work {
                    stream: on,
                    ..kernel("work", call, now + 4_000, now + 14_000)
                });
                calls.push(host(call, now, now + 2_000));
                calls.push(host(call + 1, now + 2_000, now + 17_000));
                waits.push(call + 1);
            }
            let profile = profile(work, calls, &waits);
            let found = super::waits(&profile, &profile.runs[0]);
            assert_eq!(!found.is_empty(), expected, "stream {other}");
        }
    }

    #[test]
    fn a_set_has_no_other_waits() {
        for (dropped, expected) in [
            (&[1, 3, 5][..], "f 1..=5"),
            (&[1, 3, 7], "f (1..=3,7)"),
            (&[3, 7], "f (3,7)"),
        ] {
            let dropped = dropped.iter().copied().collect();
            let stretches = stretches(&[1, 3, 5, 7], &dropped);
            assert_eq!(listed("f", &stretches), expected);
        }
    }

    #[test]
    fn words_of_a_command() {
        for (text, expected) in [
            ("kernel:work", "kernel:work"),
            ("cuCtxSynchronize 1..=9", "'cuCtxSynchronize 1..=9'"),
            ("it's", "'it'\\''s'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(text), expected);
        }
        for (name, expected) in [
            ("saxpy", "kernel:saxpy"),
            ("at::add<float>(int)", "kernel:\"at::add<float>\""),
            (
                "void at::(anonymous namespace)::add<(int)4>(int)",
                "kernel:\"at::(anonymous namespace)::add<(int)4>\"",
            ),
        ] {
            assert_eq!(kernel_set(name), expected);
        }
    }
}
