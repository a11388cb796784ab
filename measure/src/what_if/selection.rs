//! Chooses the calls of each edit, and those that are measured.

use std::collections::BTreeSet;
use std::time::Duration;

use cutape_analyzer::decode::function_of;
use cutape_calls::{CallSet, matches_kernel, no_kernel};
use cutape_format::Trace;
use cutape_model::{Scope, TraceState};
use cutape_profile::{Change, Prediction, Profile};
use cutape_registry::{Family, Waits};
use cutape_replay::{Job, Shape, Tolerance, WhatIf};

use crate::error::Error;
use crate::host_time;
use crate::replacement::{self, ReplaceOption};
use crate::what_if::settings::EditSettings;

/// The calls of each edit.
#[derive(Debug, Default)]
pub struct EditSelection {
    first: u64,
    last: u64,
    what_if: WhatIf,
}

impl EditSelection {
    /// Chooses the calls, and reads the images of `--replace-kernel`.
    ///
    /// # Errors
    /// If an option does not fit the trace.
    pub fn of(trace: &Trace, settings: &EditSettings) -> Result<Self, Error> {
        let what_if = WhatIf {
            drop_sync: chosen(trace, "--drop-sync", &settings.drop_sync)?,
            pin_memory: chosen(trace, "--pin-memory", &settings.pin_memory)?,
            overlap: chosen(trace, "--overlap", &settings.overlap)?,
            batch_copies: chosen(trace, "--batch-copies", &settings.batch_copies)?,
            graph: chosen(trace, "--graph", &settings.graph)?,
            rounds: settings.rounds,
            ..WhatIf::default()
        };
        let calls = settings.calls.as_slice();
        let wanted = chosen(trace, "--calls", calls)?;
        let mut selection = Self {
            what_if,
            ..Self::default()
        };
        let bounds = (wanted.first().copied(), wanted.last().copied());
        selection.choose_kernels(trace, settings, bounds)?;
        if settings.host_time {
            let (first, last) = selection.span();
            let between = host_time::between_calls(trace).into_iter();
            let within = between.filter(|(call, _)| (first + 1..=last).contains(call));
            let pauses = within.map(|(call, ns)| (call, Duration::from_nanos(ns)));
            selection.what_if.pauses = pauses.collect();
        }
        Ok(selection)
    }

    /// The first and the last of the measured calls.
    pub fn span(&self) -> (u64, u64) {
        (self.first, self.last)
    }

    /// What the replay does.
    pub(crate) fn job(self, tolerance: Tolerance) -> Job {
        Job {
            calls: (self.first..=self.last).collect(),
            restore: true,
            tolerance,
            what_if: Some(self.what_if),
            ..Job::default()
        }
    }

    /// What the profile lets expect of the edits.
    pub(crate) fn predict(&self, profile: &Profile) -> Prediction {
        let edits = &self.what_if;
        let change = Change {
            calls: Some((self.first, self.last)),
            dropped: edits.drop_sync.clone(),
            pinned: edits.pin_memory.clone(),
            overlapped: edits.overlap.clone(),
            batched: edits.batch_copies.clone(),
            graphed: edits.graph.clone(),
            other_kernels: !edits.replacements.is_empty() || !edits.shapes.is_empty(),
            pauses_ns: edits
                .pauses
                .iter()
                .map(|(&call, lasts)| (call, u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX)))
                .collect(),
        };
        Prediction::of(profile, &change)
    }

    /// The measured calls, within the bounds, and the launches whose kernel or shape is another one.
    fn choose_kernels(
        &mut self,
        trace: &Trace,
        settings: &EditSettings,
        (from, to): (Option<u64>, Option<u64>),
    ) -> Result<(), Error> {
        let mut replaced = replacement::parse("--replace-kernel", &settings.replace_kernel)?;
        let mut shapes = settings
            .launch_shape
            .iter()
            .map(|text| ShapeOption::parse(text))
            .collect::<Result<Vec<_>, _>>()?;
        let asks_for_kernels = !replaced.is_empty() || !shapes.is_empty();
        let mut state = TraceState::new(Scope::Kernels);
        let mut work: Vec<Work> = Vec::new();
        for call in trace.calls() {
            if asks_for_kernels {
                state.observe(&call);
            }
            let Some(function) = function_of(call.signature) else {
                continue;
            };
            let is_within =
                from.is_none_or(|from| call.index >= from) && to.is_none_or(|to| call.index <= to);
            if !is_within || !call.succeeded() {
                continue;
            }
            let is_work = matches!(
                function.family,
                Family::Launch(_) | Family::Copy(_) | Family::Memset | Family::Graph(_)
            );
            let ends = function
                .params
                .iter()
                .any(|param| matches!(param.role, cutape_registry::Role::Destroy(_)));
            if (is_work || function.waits != Waits::No) && !ends {
                work.push(Work {
                    call: call.index,
                    waits: function.waits != Waits::No,
                });
            }
            if asks_for_kernels && matches!(function.family, Family::Launch(_)) {
                let kernel = state.launched_kernel(&call).unwrap_or_default().to_owned();
                self.choose(call.index, &kernel, &mut replaced, &mut shapes)?;
            }
        }
        let unused = replaced.iter().find(|option| !option.is_used);
        let unused = unused.map(|option| ("--replace-kernel", &option.glob));
        let unshaped = shapes.iter().find(|option| !option.is_used);
        let unshaped = unshaped.map(|option| ("--launch-shape", &option.glob));
        if let Some((option, glob)) = unused.or(unshaped) {
            return Err(Error(format!(
                "{option} {glob}: {}",
                no_kernel(glob, trace)
            )));
        }
        let is_bounded = from.is_some() || to.is_some();
        let span = match is_bounded {
            true => work.first().zip(work.last()).map(|(a, b)| (a.call, b.call)),
            false => self.span_of_edits(&work),
        };
        (self.first, self.last) = span.ok_or_else(|| {
            Error("none of the calls enqueues work or waits for it: nothing to measure".to_owned())
        })?;
        Ok(())
    }

    /// From the first work after the last wait before the edited calls to the first wait after them
    /// that is left, so that the time of other parts of the program does not count.
    fn span_of_edits(&self, work: &[Work]) -> Option<(u64, u64)> {
        let edits = &self.what_if;
        let sets = [
            &edits.drop_sync,
            &edits.pin_memory,
            &edits.overlap,
            &edits.batch_copies,
            &edits.graph,
        ];
        let sets = sets.into_iter().flatten().copied();
        let launches = edits.replacements.keys().chain(edits.shapes.keys());
        let edited: BTreeSet<u64> = sets.chain(launches.copied()).collect();
        let is_work = |call: &u64| work.binary_search_by_key(call, |work| work.call).is_ok();
        let first = *edited.iter().find(|call| is_work(call))?;
        let last = *edited.iter().rev().find(|call| is_work(call))?;
        let before = work.partition_point(|work| work.call < first);
        let begin = work.get(..before)?.iter().rposition(|work| work.waits);
        let begin = work.get(begin.map_or(0, |at| at + 1))?.call;
        let behind = work.partition_point(|work| work.call <= last);
        let mut behind = work.get(behind..)?.iter();
        let end = behind.find(|work| work.waits).or_else(|| work.last())?.call;
        Some((begin, end))
    }

    fn choose(
        &mut self,
        call: u64,
        kernel: &str,
        replaced: &mut [ReplaceOption],
        shapes: &mut [ShapeOption],
    ) -> Result<(), Error> {
        if let Some(found) = replacement::for_kernel(replaced, kernel)? {
            self.what_if.replacements.insert(call, found);
        }
        let shape = shapes
            .iter_mut()
            .find(|option| matches_kernel(&option.glob, kernel));
        if let Some(option) = shape {
            option.is_used = true;
            self.what_if.shapes.insert(call, option.shape);
        }
        Ok(())
    }
}

/// A call that enqueues work, or waits for it.
#[derive(Clone, Copy, Debug)]
struct Work {
    call: u64,
    waits: bool,
}

/// The calls of an option's sets.
fn chosen<'s>(
    trace: &Trace,
    option: &str,
    sets: impl IntoIterator<Item = &'s String>,
) -> Result<BTreeSet<u64>, Error> {
    let mut calls = BTreeSet::new();
    for text in sets {
        let fail = |why: String| Error(format!("{option} {}: {why}", text.escape_debug()));
        let set = CallSet::parse(text).and_then(|set| set.resolve(trace));
        let set = set.map_err(fail)?;
        let before = calls.len();
        calls.extend(set.calls(trace));
        if calls.len() == before && set.calls(trace).next().is_none() {
            return Err(fail(set.no_match(trace)));
        }
    }
    Ok(calls)
}

/// One `--launch-shape`.
#[derive(Debug)]
struct ShapeOption {
    glob: String,
    shape: Shape,
    is_used: bool,
}

impl ShapeOption {
    /// `saxpy=264x256`, or `saxpy=8,8x16,16`: blocks in x, y, z, then threads.
    fn parse(text: &str) -> Result<Self, Error> {
        let parsed = text.rsplit_once('=').and_then(|(glob, shape)| {
            let (grid, block) = shape.split_once('x')?;
            let (grid, block) = (sizes(grid)?, sizes(block)?);
            let [a, b, c] = grid;
            let [d, e, f] = block;
            (!glob.is_empty()).then(|| Self {
                glob: glob.to_owned(),
                shape: [a, b, c, d, e, f],
                is_used: false,
            })
        });
        parsed.ok_or_else(|| {
            Error(format!(
                "--launch-shape {text}: not of the form KERNEL=GRIDxBLOCK, e.g. saxpy=264x256 or \
                 blur=8,8x16,16"
            ))
        })
    }
}

/// Up to three sizes from 1, joined by commas.
fn sizes(text: &str) -> Option<[u32; 3]> {
    let mut sizes = [1; 3];
    let mut words = text.split(',');
    for (size, word) in sizes.iter_mut().zip(words.by_ref()) {
        *size = word.trim().parse().ok().filter(|&size| size > 0)?;
    }
    words.next().is_none().then_some(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_parsed() {
        for (text, expected) in [
            ("saxpy=264x256", Some(("saxpy", [264, 1, 1, 256, 1, 1]))),
            ("b*=8,4x16,2,1", Some(("b*", [8, 4, 1, 16, 2, 1]))),
            ("a=b=1x1", Some(("a=b", [1, 1, 1, 1, 1, 1]))),
            ("saxpy=264", None),
            ("saxpy=0x32", None),
            ("saxpy=1,1,1,1x32", None),
            ("=1x32", None),
        ] {
            let parsed = ShapeOption::parse(text).ok();
            let parsed = parsed.map(|option| (option.glob, option.shape));
            let expected = expected.map(|(glob, shape)| (glob.to_owned(), shape));
            assert_eq!(parsed, expected, "{text}");
        }
    }
}
