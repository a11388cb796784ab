//! What memory holds where a part begins, from a replay of the source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use cutape_format::{Call, StateOrigin, Trace};
use cutape_model::{Needs, function_of};
use cutape_registry::{Family, Kind, Role, SharingOp};
use cutape_render::quantity;
use cutape_replay::{Moments, Observation, Observed, ObservedCall, ObservedMemory, Reach};

use crate::error::Error;
use crate::image_files::RecordedImages;
use crate::part::Walks;
use crate::part::{Part, needs_of_state};
use crate::state::{Memory, MemoryState};
use crate::trim::{StateReplay, payloads_are_there};

/// A part, and what memory holds where it begins.
pub(super) struct PartWithState {
    pub(super) part: Part,
    pub(super) needs: Needs,
    pub(super) state: MemoryState,
    pub(super) origin: StateOrigin,
}

/// Replays up to the part and reads the memory that it can reach.
pub(super) fn take(
    trace: &Trace,
    chosen: &[u64],
    walks: &Walks<'_>,
    replay: &StateReplay<'_>,
) -> Result<PartWithState, Error> {
    let (part, needs, reads) = needs_of_state(trace, chosen, Default::default(), walks)?;
    payloads_are_there(trace, &needs, &part, true)?;
    let reads = reads.of(&part.calls);
    let reads = match replay.takes_all || reads.is_unknown {
        true => vec![(0, u64::MAX)],
        false => reads.ranges.iter().map(|it| (it.start, it.end)).collect(),
    };
    let observation = observation_of(trace, &part, reads, replay.contents);
    let observed = (replay.observe)(&observation).map_err(Error::Unusable)?;
    let call = before_the_part(trace, &part, &observed, replay.is_forced)?;
    let own = without_imports(trace, call.memory);
    let (part, needs) = with_creators(trace, part, needs, chosen, &own, walks)?;
    let memory = memory_of(trace, &part, &own);
    let contents =
        File::open(replay.contents).map_err(|error| Error::unreadable(replay.contents, &error))?;
    let origin = StateOrigin {
        driver: driver_text(replay, observed.driver_version),
        devices: devices_text(&observed.devices),
        call: part.start,
        bytes: memory.iter().map(|memory| memory.length).sum(),
    };
    Ok(PartWithState {
        part,
        needs,
        state: MemoryState { memory, contents },
        origin,
    })
}

fn observation_of(
    trace: &Trace,
    part: &Part,
    reads: Vec<(u64, u64)>,
    contents: &Path,
) -> Observation {
    let loads = |call: &Call<'_>| {
        let family = function_of(call.signature).map(|function| function.family);
        let loads = matches!(family, Some(Family::ModuleLoad(_) | Family::LibraryLoad(_)));
        // Variables of other modules matter only if a call names them.
        loads && part.contains(call.index) && call.succeeded() && call.index < part.start
    };
    let images = RecordedImages::read(trace, loads);
    let names = images
        .calls()
        .map(|(call, image)| (call, image.facts().variables));
    let moments = Moments {
        reach: Reach::Part,
        before: true,
        ..Moments::default()
    };
    Observation {
        calls: BTreeMap::from([(part.start, moments)]),
        variables: names.filter(|(_, names)| !names.is_empty()).collect(),
        contents: contents.to_owned(),
        longest: u64::MAX,
        most_bytes: u64::MAX,
        reads,
        ..Observation::default()
    }
}

/// What was read before the part; an error if it is not what the recorded program had in memory.
fn before_the_part(
    trace: &Trace,
    part: &Part,
    observed: &Observed,
    is_forced: bool,
) -> Result<ObservedCall, Error> {
    let start = part.start;
    let cannot = |why: String| {
        let path = trace.path().display();
        Error::Unusable(format!("--state replay: {path}: {why}"))
    };
    let report = &observed.report;
    let before: Vec<_> = report
        .divergences
        .iter()
        .filter(|it| it.call < start)
        .collect();
    if let Some(first) = before.first()
        && !is_forced
    {
        let count = quantity::count(report.divergence_count, "divergence");
        return Err(cannot(format!(
            "the replay has {count} before call {start}, the first at call {} {}, so that memory \
             may not be what it was; `cutape replay` explains them, --force takes the memory \
             nevertheless",
            first.call, first.function
        )));
    }
    if let Some(first) = report
        .exchanges
        .first_missing
        .as_ref()
        .filter(|it| it.call < start)
        && !is_forced
    {
        return Err(cannot(format!(
            "what call {} changed is missing: {}; memory before call {start} is not what it was; \
             --force takes it nevertheless",
            first.call, first.why
        )));
    }
    let mut causes = report.consequences.iter();
    if let Some(cause) = causes.find(|cause| cause.first < start)
        && !is_forced
    {
        return Err(cannot(format!(
            "calls from {} on were not re-issued because of {}; memory before call {start} is not \
             what it was; --force takes it nevertheless",
            cause.first, cause.cause
        )));
    }
    let Some(call) = observed.calls.first() else {
        return Err(cannot(format!("the replay did not reach call {start}")));
    };
    if let Some(why) = &call.refused {
        let why = format!("memory cannot be read before call {start}: {why}");
        return Err(cannot(why));
    }
    if let Some(first) = call.left_out.first()
        && !is_forced
    {
        return Err(cannot(format!(
            "{} cannot be read, e.g. {first}; --force leaves it out",
            quantity::count(call.left_out.len() as u64, "range of memory")
        )));
    }
    Ok(call.clone())
}

/// Without what took the place of other processes' memory: a replay of the part does not have it.
fn without_imports(trace: &Trace, mut memory: Vec<ObservedMemory>) -> Vec<ObservedMemory> {
    let is_import = |call: &Call<'_>| {
        let family = function_of(call.signature).map(|function| function.family);
        matches!(family, Some(Family::Sharing(SharingOp::Import(_))))
    };
    let last = memory.iter().map(|memory| memory.made).max().unwrap_or(0);
    let calls = trace.calls().take_while(|call| call.index <= last);
    let imports: BTreeSet<u64> = calls.filter(is_import).map(|call| call.index).collect();
    memory.retain(|memory| !imports.contains(&memory.made));
    memory
}

/// The part with the calls that created the memory, which the calls of the part may name only
/// through other memory.
fn with_creators(
    trace: &Trace,
    part: Part,
    needs: Needs,
    chosen: &[u64],
    memory: &[ObservedMemory],
    walks: &Walks<'_>,
) -> Result<(Part, Needs), Error> {
    let others = memory
        .iter()
        .filter(|memory| !memory.is_of_module && !part.contains(memory.made));
    let addresses: Vec<u64> = others.map(|memory| memory.recorded).collect();
    if addresses.is_empty() {
        return Ok((part, needs));
    }
    let (part, needs, _) = needs_of_state(trace, chosen, (part.first(), addresses), walks)?;
    Ok((part, needs))
}

/// The memory that is stored: that of calls of the part.
fn memory_of(trace: &Trace, part: &Part, observed: &[ObservedMemory]) -> Vec<Memory> {
    let mut loaded: BTreeMap<u64, Option<(u64, bool)>> = observed
        .iter()
        .filter(|memory| memory.is_of_module)
        .map(|memory| (memory.made, None))
        .collect();
    if let Some(&last) = loaded.keys().next_back() {
        for call in trace.calls().take_while(|call| call.index <= last) {
            if let Some(owner) = loaded.get_mut(&call.index) {
                *owner = loaded_by(&call);
            }
        }
    }
    let memory = observed.iter().filter(|memory| part.contains(memory.made));
    memory
        .filter_map(|memory| {
            let owner = loaded.get(&memory.made).filter(|_| memory.is_of_module);
            let variable = match owner {
                Some(&owner) => Some((owner?.0, owner?.1, memory.name.clone())),
                None => None,
            };
            Some(Memory {
                address: if variable.is_some() {
                    0
                } else {
                    memory.recorded
                },
                length: memory.length,
                runs: memory.before.clone(),
                variable,
            })
        })
        .collect()
}

/// The handle of what a call has loaded, and whether it is a library.
fn loaded_by(call: &Call<'_>) -> Option<(u64, bool)> {
    let function = function_of(call.signature)?;
    let params = function.params.iter().enumerate();
    let mut made = params.filter_map(|(position, param)| match param.role {
        Role::Make(Kind::Module, ..) => Some((call.out(position)?, false)),
        Role::Make(Kind::Library, ..) => Some((call.out(position)?, true)),
        _ => None,
    });
    made.next()
}

/// `CUDA 13.0, libcuda.so.580.65.06`.
fn driver_text(replay: &StateReplay<'_>, version: i32) -> String {
    let name = replay.driver.file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    let null = match replay.is_null_driver {
        true => " (null driver: does not run kernels)",
        false => "",
    };
    let (major, minor) = (version / 1000, version % 1000 / 10);
    format!("CUDA {major}.{minor}, {name}{null}")
}

/// `2 × NVIDIA H100 80GB HBM3`.
fn devices_text(devices: &[String]) -> String {
    let mut counts: Vec<(&str, u64)> = Vec::new();
    for device in devices {
        match counts.iter_mut().find(|known| known.0 == device) {
            Some(known) => known.1 += 1,
            None => counts.push((device, 1)),
        }
    }
    let texts = counts.iter().map(|&(name, count)| match count {
        1 => name.to_owned(),
        count => format!("{count} × {name}"),
    });
    texts.collect::<Vec<_>>().join(", ")
}
