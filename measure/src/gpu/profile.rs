//! Profiles a trace: replays it in children, and joins what they measured with the trace.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use cutape_format::Trace;
use cutape_profile::{Method, Profile, RankProfile, Run, Summary, Work, WorkKind};
use cutape_replay::{CallTracer, Guard, Measurements, Measuring, Options, Rank, Report, Tracer};

use crate::error::Error;
use crate::gpu::join::{CallWork, Facts, facts};
use crate::gpu::nvml::Sampler;
use crate::gpu::tracer::{GpuTracer, Measured, MeasuredDevice, unix_ns};

/// How to profile.
#[derive(Clone, Debug)]
pub struct ProfileSettings {
    /// The trace's file, for the profile.
    pub trace: String,
    /// The driver's file, for the profile.
    pub driver: String,
    /// How often the trace is replayed.
    pub repeat: u32,
}

/// Replays a trace in child processes that `command` starts and that call [`profile_as_child`];
/// `progress` gets how many calls are done. The reports are those of the replays.
///
/// # Errors
/// If a child could not measure, or the trace cannot be read.
pub fn profile(
    trace: &Trace,
    settings: &ProfileSettings,
    command: &dyn Fn() -> Command,
    guard: &Guard,
    progress: &mut dyn FnMut(u64),
) -> Result<(Profile, Vec<Report>), Error> {
    let mut measured: Vec<Measured> = Vec::new();
    let mut reports = Vec::new();
    for number in 0..settings.repeat.max(1) {
        let done = reports
            .iter()
            .map(|report: &Report| report.calls_replayed)
            .sum::<u64>();
        let sampler = Sampler::start();
        let started = unix_ns();
        let child = cutape_replay::rerun_guarded(trace, command, guard, &mut |calls| {
            progress(done + calls);
        });
        let child = child.map_err(|error| Error(format!("replay {}: {error}", number + 1)))?;
        measured.push(taken_over(&child, started..unix_ns(), sampler)?);
        reports.push(child.outcome.report);
    }
    let profile = join(trace, settings, measured)?;
    Ok((profile, reports))
}

/// A rank that is profiled with others.
#[derive(Clone, Debug)]
pub struct ProfiledRank {
    /// Its rank, if it has one.
    pub rank: Option<u64>,
    /// For its profile.
    pub settings: ProfileSettings,
}

/// Replays ranks together, once, as [`profile()`] does one trace; `ranks` are those of `replayed`.
/// Their profiles are on one axis, since their processes read the clocks of one machine.
///
/// # Errors
/// If a rank could not be measured, or a trace cannot be read.
pub fn profile_ranks(
    replayed: &[Rank<'_>],
    ranks: Vec<ProfiledRank>,
    guard: &Guard,
    progress: &(dyn Fn(usize, u64) + Sync),
) -> Result<(Vec<RankProfile>, Vec<Report>), Error> {
    let samplers: Vec<Sampler> = replayed.iter().map(|_| Sampler::start()).collect();
    let started = unix_ns();
    let children = cutape_replay::rerun_ranks(replayed, guard, progress);
    let children = children.map_err(|error| Error(error.to_string()))?;
    let lasted = started..unix_ns();
    let taken_over = children
        .iter()
        .zip(samplers)
        .map(|(child, sampler)| taken_over(child, lasted.clone(), sampler));
    let measured: Vec<Measured> = taken_over.collect::<Result<_, _>>()?;
    let earliest = measured.iter().map(|one| one.began_unix_ns).min();
    let profiles = measured.into_iter().zip(ranks).zip(replayed);
    let profiles = profiles.map(|((one, known), replayed)| {
        let offset_ns = one.began_unix_ns - earliest.unwrap_or(one.began_unix_ns);
        let profile = join(replayed.trace, &known.settings, vec![one])?;
        Ok(RankProfile {
            label: replayed.label.clone(),
            rank: known.rank,
            offset_ns,
            summary: Summary::of(&profile),
            profile,
        })
    });
    let profiles = profiles.collect::<Result<_, Error>>()?;
    let reports = children.into_iter().map(|child| child.outcome.report);
    Ok((profiles, reports.collect()))
}

/// What a child has measured, with the time around it.
fn taken_over(
    child: &Measurements,
    lasted: Range<u64>,
    sampler: Sampler,
) -> Result<Measured, Error> {
    // As text, since a million rows as values take gigabytes.
    let text = child.results.as_str().unwrap_or_default();
    let mut one: Measured = serde_json::from_str(text)
        .map_err(|error| Error(format!("the measuring process: {error}")))?;
    let uuid = one.devices.first().map(|device| &*device.uuid);
    one.run.clocks = sampler.finish(uuid);
    let (begin, end) = one.run.span();
    let ended = one.began_unix_ns.saturating_add(end - begin);
    one.run.start_ns = Some(one.began_unix_ns.saturating_sub(lasted.start));
    one.run.finish_ns = Some(lasted.end.saturating_sub(ended));
    Ok(one)
}

/// The child's side of [`profile()`] and [`profile_ranks`]: replays, and reports through a pipe to its parent. `cupti` is
/// the library; `None`: events. Returns the exit status for the process.
pub fn profile_as_child(trace: &Trace, cupti: Option<PathBuf>, options: Options) -> i32 {
    let tracer = Arc::new(GpuTracer::new(cupti));
    let told: Arc<dyn CallTracer> = Arc::clone(&tracer) as _;
    let options = Options {
        keep_going: true,
        // Comparing bytes would add copies.
        timing: Measuring::Span,
        tracer: Some(Tracer(told)),
        ..options
    };
    let results = || {
        let measured = tracer.take();
        let text = measured.and_then(|measured| serde_json::to_string(&measured).ok());
        serde_json::Value::String(text.unwrap_or_default())
    };
    cutape_replay::trace_as_child(trace, &options, &results)
}

fn join(
    trace: &Trace,
    settings: &ProfileSettings,
    measured: Vec<Measured>,
) -> Result<Profile, Error> {
    let calls = measured.iter().flat_map(|one| &one.run.host);
    let calls: HashSet<u64> = calls.map(|host| host.call).collect();
    let facts = facts(trace, calls).map_err(|error| Error(error.to_string()))?;
    let mut notes: BTreeMap<String, u64> = BTreeMap::new();
    let mut runs = Vec::new();
    let mut streams = BTreeMap::new();
    let mut devices = Vec::new();
    let mut method = Method::Events;
    for (number, mut one) in measured.into_iter().enumerate() {
        for (note, count) in one.notes {
            *notes.entry(note).or_default() += count;
        }
        match one.method {
            Method::Events => describe(&mut one.run, &facts),
            Method::Cupti { .. } => adopt_streams(&mut one.run, &facts, &mut streams),
        }
        if number == 0 {
            method = one.method;
            devices = one
                .devices
                .into_iter()
                .map(|MeasuredDevice { device, .. }| device)
                .collect();
        }
        runs.push(one.run);
    }
    if method == Method::Events {
        streams = facts.streams;
    }
    devices_without_records(&runs, &mut devices);
    Ok(Profile {
        trace: settings.trace.clone(),
        driver: settings.driver.clone(),
        method,
        devices,
        streams,
        calls: facts.calls,
        runs,
        counters: None,
        notes,
    })
}

/// Devices that ran work and of which nothing else is known.
fn devices_without_records(runs: &[Run], devices: &mut Vec<cutape_profile::Device>) {
    let used: HashSet<u32> = runs
        .iter()
        .flat_map(|run| &run.work)
        .map(|work| work.device)
        .collect();
    for ordinal in used {
        if devices.iter().all(|device| device.ordinal != ordinal) {
            devices.push(cutape_profile::Device {
                ordinal,
                name: "unknown".to_owned(),
                ..Default::default()
            });
        }
    }
    devices.sort_by_key(|device| device.ordinal);
    devices.dedup_by_key(|device| device.ordinal);
}

/// Says what the work between two events is.
fn describe(run: &mut Run, facts: &Facts) {
    for work in &mut run.work {
        let Some(known) = work.call.and_then(|call| facts.work.get(&call)) else {
            continue;
        };
        let CallWork {
            kind,
            name,
            stream,
            bytes,
            shape,
        } = known;
        let size = |sizes: [u64; 3]| sizes.map(|size| u32::try_from(size).unwrap_or(u32::MAX));
        *work = Work {
            kind: *kind,
            name: name.clone(),
            stream: stream.unwrap_or(0),
            bytes: *bytes,
            grid: shape.map(|[grid, _]| size(grid)),
            block: shape.map(|[_, block]| size(block)),
            ..work.clone()
        };
    }
}

/// Numbers CUPTI's streams as the trace does, by the calls of their work. Streams of graph nodes
/// alone keep numbers of their own.
fn adopt_streams(run: &mut Run, facts: &Facts, streams: &mut BTreeMap<u32, String>) {
    let mut known: BTreeMap<u32, u32> = BTreeMap::new();
    for work in &run.work {
        let recorded = work.call.and_then(|call| facts.work.get(&call));
        let recorded =
            recorded.filter(|known| known.kind != WorkKind::Graph || work.node.is_none());
        if let Some(stream) = recorded.and_then(|known| known.stream) {
            known.entry(work.stream).or_insert(stream);
        }
    }
    let first = facts.streams.keys().last().map_or(0, |last| last + 1);
    for work in &mut run.work {
        let Some(&stream) = known.get(&work.stream) else {
            work.stream += first;
            let name = match work.node {
                Some(_) => "branch of a graph",
                None => "stream of the replay",
            };
            streams
                .entry(work.stream)
                .or_insert_with(|| format!("{name} {}", work.stream));
            continue;
        };
        work.stream = stream;
        if let Some(name) = facts.streams.get(&stream) {
            streams.entry(stream).or_insert_with(|| name.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_named_by_the_trace() {
        let call_work = |kind, stream| CallWork {
            kind,
            name: "k".into(),
            stream: Some(stream),
            bytes: None,
            shape: None,
        };
        let facts = Facts {
            work: [
                (1, call_work(WorkKind::Kernel, 4)),
                (2, call_work(WorkKind::Graph, 4)),
            ]
            .into(),
            streams: [(4, "stream#1".to_owned())].into(),
            ..Facts::default()
        };
        let work = |call, stream, node| {
            let text = format!(
                r#"{{"kind":"kernel","name":"k","begin_ns":0,"end_ns":1,"device":0,"stream":{stream},"call":{call},"node":{node}}}"#
            );
            serde_json::from_str::<Work>(&text).unwrap()
        };
        let mut run = Run {
            work: vec![
                work("1", 0, "null"),
                work("2", 1, "7"),
                work("2", 0, "8"),
                work("null", 2, "null"),
            ],
            ..Run::default()
        };
        let mut streams = BTreeMap::new();
        adopt_streams(&mut run, &facts, &mut streams);
        let numbers: Vec<u32> = run.work.iter().map(|work| work.stream).collect();
        assert_eq!(numbers, [4, 6, 4, 7]);
        let names: Vec<&str> = streams.values().map(String::as_str).collect();
        assert_eq!(
            names,
            ["stream#1", "branch of a graph 6", "stream of the replay 7"]
        );
    }
}
