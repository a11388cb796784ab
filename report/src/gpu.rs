//! What a profile of a replay says, for the page.

use std::collections::BTreeMap;

use cutape_profile::{Clocks, Counters, Device, Method, Profile, Summary, WorkKind};
use serde::Serialize;

use crate::columns::{Coding, Column, Columns};
use crate::dictionary::Dictionary;

/// The most kernels, copies and memsets that the page draws, and the most calls; tables count all.
const DRAWN: usize = 1 << 20;

/// The facts; the times of work and calls are columns.
#[derive(Debug, Serialize)]
pub(crate) struct GpuFacts {
    method: Method,
    devices: Vec<Device>,
    /// How many replays were measured.
    runs: usize,
    /// The end of the last call or work of the replay that is shown.
    end: u64,
    summary: Summary,
    clocks: Option<Clocks>,
    lost: u64,
    not_timed: u64,
    /// Work and calls that are not drawn.
    not_drawn: usize,
    names: Vec<WorkName>,
    streams: Vec<GpuStream>,
    counters: Option<Counters>,
    notes: BTreeMap<String, u64>,
}

/// What work is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
struct WorkName {
    kind: WorkKind,
    name: String,
}

/// A stream of a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
struct GpuStream {
    device: u32,
    label: String,
}

impl GpuFacts {
    /// Of a profile; its work and calls become columns.
    pub(crate) fn of(mut profile: Profile, columns: &mut Columns) -> Self {
        let summary = Summary::of(&profile);
        let runs = profile.runs.len();
        let run = profile.take_median_run();
        let mut names = Dictionary::default();
        let mut streams = Dictionary::default();
        let (begin, end) = run.span();
        let [mut begins, mut durations] = [Coding::Times, Coding::Large].map(Column::new);
        let mut calls = Column::new(Coding::Large);
        let [mut name_numbers, mut stream_numbers] = [Coding::Small; 2].map(Column::new);
        for work in run.work.iter().take(DRAWN) {
            begins.push(work.begin_ns - begin);
            durations.push(work.lasted());
            calls.push(work.call.map_or(0, |call| call.saturating_add(1)));
            let name = (work.kind, &*work.name);
            name_numbers.push(names.number(&name, || WorkName {
                kind: work.kind,
                name: work.name.clone(),
            }));
            let stream = (work.device, work.stream);
            stream_numbers.push(streams.number(&stream, || GpuStream {
                device: work.device,
                label: profile.stream(work.stream),
            }));
        }
        columns.add("gpu.begin", begins);
        columns.add("gpu.duration", durations);
        columns.add("gpu.call", calls);
        columns.add("gpu.name", name_numbers);
        columns.add("gpu.stream", stream_numbers);
        let [mut begins, mut durations] = [Coding::Times, Coding::Large].map(Column::new);
        let mut calls = Column::new(Coding::Large);
        for call in run.host.iter().take(DRAWN) {
            begins.push(call.begin_ns - begin);
            durations.push(call.end_ns.saturating_sub(call.begin_ns));
            calls.push(call.call);
        }
        columns.add("replayed.begin", begins);
        columns.add("replayed.duration", durations);
        columns.add("replayed.call", calls);
        let rows = [run.work.len(), run.host.len()];
        // The page shows what follows from them.
        let kernels = profile.counters.iter_mut();
        for kernel in kernels.flat_map(|counters| &mut counters.kernels) {
            kernel.metrics.clear();
        }
        Self {
            method: profile.method,
            devices: profile.devices,
            runs,
            end: end - begin,
            summary,
            clocks: run.clocks,
            lost: run.lost,
            not_timed: run.not_timed,
            not_drawn: rows.iter().map(|rows| rows.saturating_sub(DRAWN)).sum(),
            names: names.values,
            streams: streams.values,
            counters: profile.counters,
            notes: profile.notes,
        }
    }
}
