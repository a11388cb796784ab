//! What follows from a profile.

use serde::Serialize;

use crate::advice::{Advice, advice};
use crate::host::{HostStall, stalls};
use crate::path::CriticalPath;
use crate::record::{Profile, Run};
use crate::statistics::Spread;
use crate::timeline::Timeline;
use crate::wall::Wall;
use crate::work::{WorkRow, rows};

/// The tables of a profile. Where they are about one replay, it is the one with the median time.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The replay that the timelines, waits and the path are of, from 0.
    pub run: usize,
    /// The time of a replay, from the first call to the end of the last call or work.
    pub wall_ns: Spread,
    /// The time in which a device had work, over the replays.
    pub busy_ns: Spread,
    /// What the time of one of them is made up of.
    pub wall: Wall,
    /// From the first recorded call to the last of those that the driver got, in the recording.
    pub recorded_wall_ns: Option<u64>,
    /// Kernels, copies and memsets of a replay without a recorded call.
    pub without_call: u64,
    /// By kernel, kind of copy, and memset.
    pub work: Vec<WorkRow>,
    /// By device.
    pub timelines: Vec<Timeline>,
    /// By function.
    pub stalls: Vec<HostStall>,
    /// What bounds the time.
    pub critical_path: CriticalPath,
    /// What would be faster, by prediction; the highest gain first.
    pub advice: Vec<Advice>,
}

impl Summary {
    /// Of a profile.
    pub fn of(profile: &Profile) -> Self {
        let wall = |run: &Run| {
            let (begin, end) = run.span();
            end - begin
        };
        let number = profile.median_run();
        let nothing = Run::default();
        let run = profile.runs.get(number).unwrap_or(&nothing);
        let timelines_of = |run: &Run| -> Vec<Timeline> {
            let devices = profile.devices.iter();
            devices
                .map(|device| Timeline::of(profile, run, Some(device.ordinal)))
                .filter(|timeline| !timeline.streams.is_empty())
                .collect()
        };
        let busy = profile.runs.iter().map(|run| {
            let timelines = timelines_of(run);
            timelines
                .iter()
                .map(|timeline| timeline.busy_ns)
                .max()
                .unwrap_or(0) as f64
        });
        let recorded = profile.calls.values();
        let begin = recorded
            .clone()
            .filter_map(|facts| facts.recorded_begin_ns)
            .min();
        let end = recorded
            .filter_map(|facts| facts.recorded_end_ns.or(facts.recorded_begin_ns))
            .max();
        let critical_path = CriticalPath::of(profile, run);
        Self {
            run: number,
            advice: advice(profile, run, &critical_path),
            wall_ns: Spread::of(profile.runs.iter().map(|run| wall(run) as f64)),
            busy_ns: Spread::of(busy),
            wall: Wall::of(profile, run),
            recorded_wall_ns: begin.zip(end).map(|(begin, end)| end - begin),
            without_call: run.work.iter().filter(|work| work.call.is_none()).count() as u64,
            work: rows(profile),
            timelines: timelines_of(run),
            stalls: stalls(profile, run),
            critical_path,
        }
    }
}
