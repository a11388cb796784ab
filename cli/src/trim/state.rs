//! `trim --state replay`: what memory holds where the part begins, from a replay of the source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use cutape_analyzer::decode::function_of;
use cutape_cut::{Memory, MemoryState, Part, Run};
use cutape_format::{Call, StateOrigin, Trace};
use cutape_model::{MemoryReads, Needs};
use cutape_registry::{Family, Kind, Role, SharingOp};
use cutape_render::quantity;
use cutape_replay::{
    LocateError, Moments, Observation, Observed, ObservedCall, ObservedMemory, Reach,
};

use crate::extract::image_files::{RecordedImages, facts};
use crate::guarded::GuardedOptions;
use crate::one_rank::Source;
use crate::{library, observation};
use cutape_terminal::failure::Failure;
use cutape_terminal::output_folder::Folder;
use cutape_terminal::overwrite::Overwrite;
use cutape_terminal::progress::Progress;

/// A part, and what memory holds where it begins.
pub(super) struct PartWithState {
    pub(super) part: Part,
    pub(super) needs: Needs,
    pub(super) state: MemoryState,
    pub(super) origin: StateOrigin,
}

/// Replays up to the part and reads the memory that it can reach.
pub(super) fn take(
    (trace, source): (&Trace, &Source),
    (target, overwrite): (&Path, Overwrite),
    chosen: &[u64],
    driver: Option<&Path>,
    guarded: &GuardedOptions,
) -> Result<PartWithState, Failure> {
    let driver = usable_driver(trace, driver, guarded)?;
    let needs = super::read_needs(trace)?;
    let part = cutape_cut::part_from_state(&needs, chosen);
    super::payloads_are_there(trace, |call| {
        call < part.start || part.calls.get(call as usize) == Some(&true)
    })?;
    let (needs, reads) = read_memory_reads(trace, &part, Vec::new())?;
    let folder = Folder::for_file(target, overwrite)?;
    let contents = folder.path("contents");
    let observation = observation_of(trace, &part, &reads, &contents);
    let observed = observation::observe((trace, source), &driver, guarded, &observation)?;
    let call = before_the_part(trace, &part, &observed, guarded)?;
    let own = without_imports(trace, call.memory);
    let (part, needs) = with_creators(trace, part, needs, chosen, &own)?;
    let memory = memory_of(trace, &part, &own);
    let contents = File::open(&contents)
        .map_err(|error| Failure::unusable(format!("{}: {error}", contents.display())))?;
    let origin = StateOrigin {
        driver: driver_text(&driver, observed.driver_version),
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

/// The driver, unless the result could not be what the recorded program had in memory.
fn usable_driver(
    trace: &Trace,
    given: Option<&Path>,
    guarded: &GuardedOptions,
) -> Result<PathBuf, Failure> {
    let is_of_null = trace.meta_value("driver.kind") == Some("null");
    let advice = "take the state on a machine with a GPU like the recorded one, or leave \
                  --state replay out";
    let path = match given {
        None if is_of_null => library::null_driver()?,
        None if matches!(cutape_replay::locate(), Err(LocateError::NotFound)) => {
            return Err(Failure::unusable(format!(
                "--state replay: no CUDA driver found, and the kernels of {} have to run; {advice}",
                trace.path().display()
            )));
        }
        given => library::driver(given)?,
    };
    let is_null = library::exports(&path, "cutape_null_driver_marker") == Some(true);
    match is_null && !is_of_null && !guarded.is_forced() {
        false => Ok(path),
        true => Err(Failure::unusable(format!(
            "--state replay: the null driver runs no kernels, so that memory would not hold what \
             it held in {}; {advice} (--force takes it nevertheless)",
            trace.path().display()
        ))),
    }
}

fn read_memory_reads(
    trace: &Trace,
    part: &Part,
    also_used: Vec<u64>,
) -> Result<(Needs, MemoryReads), Failure> {
    let mut progress = Progress::over_calls("reading", [trace]);
    Ok(cutape_cut::reads(trace, part, also_used, &mut || {
        progress.step()
    })?)
}

fn observation_of(trace: &Trace, part: &Part, reads: &MemoryReads, contents: &Path) -> Observation {
    let loads = |call: &Call<'_>| {
        let family = function_of(call.signature).map(|function| function.family);
        let loads = matches!(family, Some(Family::ModuleLoad(_) | Family::LibraryLoad(_)));
        // Variables of other modules matter only if a call names them.
        let is_in = part.calls.get(call.index as usize) == Some(&true);
        loads && is_in && call.succeeded() && call.index < part.start
    };
    let images = RecordedImages::read(trace, loads);
    let names = images
        .calls()
        .map(|(call, image)| (call, facts(&image.bytes).variables));
    let moments = Moments {
        reach: Reach::Part,
        before: true,
        ..Moments::default()
    };
    let reads = match reads.is_unknown {
        true => vec![(0, u64::MAX)],
        false => reads
            .ranges
            .iter()
            .map(|range| (range.start, range.end))
            .collect(),
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
    guarded: &GuardedOptions,
) -> Result<ObservedCall, Failure> {
    let start = part.start;
    let cannot = |why: String| {
        let path = trace.path().display();
        Failure::unusable(format!("--state replay: {path}: {why}"))
    };
    let report = &observed.report;
    let before: Vec<_> = report
        .divergences
        .iter()
        .filter(|it| it.call < start)
        .collect();
    if let Some(first) = before.first()
        && !guarded.is_forced()
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
        && !guarded.is_forced()
    {
        return Err(cannot(format!(
            "what call {} changed is missing: {}; memory before call {start} is not what it was; \
             --force takes it nevertheless",
            first.call, first.why
        )));
    }
    let mut causes = report.consequences.iter();
    if let Some(cause) = causes.find(|cause| cause.first < start)
        && !guarded.is_forced()
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
        && !guarded.is_forced()
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
) -> Result<(Part, Needs), Failure> {
    let is_in = |call: u64| part.calls.get(call as usize) == Some(&true);
    let others = memory
        .iter()
        .filter(|memory| !memory.is_of_module && !is_in(memory.made));
    let addresses: Vec<u64> = others.map(|memory| memory.recorded).collect();
    if addresses.is_empty() {
        return Ok((part, needs));
    }
    let (needs, _) = read_memory_reads(trace, &part, addresses)?;
    Ok((cutape_cut::part_from_state(&needs, chosen), needs))
}

/// The memory that is stored: that of calls of the part.
fn memory_of(trace: &Trace, part: &Part, observed: &[ObservedMemory]) -> Vec<Memory> {
    let is_in = |call: u64| part.calls.get(call as usize) == Some(&true);
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
    let run = |piece: &cutape_replay::Piece| Run {
        at: piece.at,
        length: piece.length,
        file: piece.file,
    };
    let memory = observed.iter().filter(|memory| is_in(memory.made));
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
                runs: memory.before.iter().map(run).collect(),
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
fn driver_text(driver: &Path, version: i32) -> String {
    let name = driver.file_name().unwrap_or_default().to_string_lossy();
    let null = match library::exports(driver, "cutape_null_driver_marker") {
        Some(true) => " (null driver: does not run kernels)",
        _ => "",
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
