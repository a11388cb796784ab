//! What an observation does before and after a call goes to the driver.

use cutape_registry::{Family, LaunchOp, StreamMemoryOp};
use rustc_hash::FxHashMap;

use crate::api::{NOT_FOUND, result_name};
use crate::issue::player::Job;
use crate::observe::job::{Moments, ObservedCall, Reach};
use crate::observe::launch;
use crate::observe::memory::{Reached, Reader, Region, all_live};
use crate::observe::observer::{Observer, Pending};
use crate::overrides::launch::source_of;

/// Before a call goes to the driver.
#[inline]
pub(crate) fn before(job: &mut Job<'_, '_>) {
    if let Some(mut observer) = job.player.observer.take() {
        begin(job, &mut observer);
        job.player.observer = Some(observer);
    }
}

/// After a call was given to the driver; or was not, for that reason.
#[inline]
pub(crate) fn after(job: &mut Job<'_, '_>, skipped: Option<&str>) {
    if let Some(mut observer) = job.player.observer.take() {
        end(job, &mut observer, skipped);
        job.player.observer = Some(observer);
    }
}

fn begin(job: &mut Job<'_, '_>, observer: &mut Observer) {
    see_variables(job, observer);
    let Some(&moments) = observer.job.calls.get(&job.call.index) else {
        return;
    };
    let observed = ObservedCall {
        call: job.call.index,
        ..ObservedCall::default()
    };
    let mut pending = Pending {
        observed,
        regions: Vec::new(),
        after: moments.after,
    };
    if job.captures.any_open() {
        pending.observed.refused = Some("a stream is capturing at that call".into());
        observer.pending = Some(pending);
        return;
    }
    match observe(job, observer, moments, &mut pending) {
        Ok(()) => observer.pending = Some(pending),
        Err(why) => refuse(observer, pending, why),
    }
}

fn refuse(observer: &mut Observer, pending: Pending, why: String) {
    let observed = ObservedCall {
        refused: Some(why),
        ..pending.observed
    };
    observer.done.push(observed);
}

/// Reads what is wanted before a call.
fn observe(
    job: &mut Job<'_, '_>,
    observer: &mut Observer,
    moments: Moments,
    pending: &mut Pending,
) -> Result<(), String> {
    if job.comparer.host_bytes_missing {
        let why = "bytes that the program copied to the device before are not in the trace";
        return Err(format!("{why}: record it with --payloads all"));
    }
    if observer.waits_for_memory {
        return Err("streams may wait for values in memory".into());
    }
    let is_launch = matches!(job.function.family, Family::Launch(_));
    if moments.reach == Reach::Launch && !is_launch {
        return Err("it is not a launch of a kernel".into());
    }
    if is_launch && let Some(result) = job.call.result().filter(|&result| result != 0) {
        return Err(format!(
            "it failed in the recording: {}",
            result_name(result)
        ));
    }
    wait(job, "before")?;
    let mut regions = all_live(job, &observer.mapped);
    let observed = &mut pending.observed;
    let mut variables = Vec::new();
    if moments.reach == Reach::Launch {
        let described = launch::describe(job)?;
        if let (Some(module), Some(loaded)) = (described.module, described.launch.loaded) {
            variables = variables_of(job, observer, module, loaded, &mut observed.left_out);
        }
        observed.launch = Some(described.launch);
    }
    // Found by their module, with their names.
    regions.retain(|region| {
        variables
            .iter()
            .all(|variable: &Region| variable.live != region.live)
    });
    let longest = observer.job.longest;
    let mut reader = reader(job, observer);
    let mut entries = Vec::new();
    let mut read = |region: &Region, look: &mut dyn FnMut(&[u8])| {
        let mut entry = region.entry();
        if moments.before {
            match reader.read(region, look) {
                Ok(pieces) => entry.before = pieces,
                Err(why) => {
                    return observed
                        .left_out
                        .push(format!("{}: {why}", region.describe()));
                }
            }
        }
        entries.push(entry);
        pending.regions.push(region.clone());
    };
    match &observed.launch {
        None => regions.iter().for_each(|region| read(region, &mut |_| ())),
        Some(launch) => {
            let mut reached = Reached::new(&regions, longest);
            reached.add(&launch.parameters, 4);
            let first = reached.parts();
            let mut further = Reached::new(&regions, longest);
            for region in first.iter().chain(&variables) {
                read(region, &mut |bytes| further.add(bytes, 8));
            }
            for region in further.parts_besides(&first) {
                read(&region, &mut |_| ());
            }
        }
    }
    observed.memory = entries;
    mark_as_loaded(job, observer, pending);
    Ok(())
}

/// Reads memory into the file of an observer.
fn reader<'a>(job: &'a Job<'_, '_>, observer: &'a mut Observer) -> Reader<'a> {
    Reader {
        api: &job.api,
        pages: &mut observer.pages,
        buffer: &mut observer.buffer,
    }
}

/// Waits for all work.
fn wait(job: &Job<'_, '_>, when: &str) -> Result<(), String> {
    let waited = job.wait_for_contexts([]);
    waited.map_err(|code| {
        format!(
            "waiting for the work {when} it returned {}",
            result_name(code)
        )
    })
}

fn end(job: &mut Job<'_, '_>, observer: &mut Observer, skipped: Option<&str>) {
    if skipped.is_none() {
        observer.mapped.follow(job.call, Some(job.function));
    }
    observer.waits_for_memory |= matches!(
        job.function.family,
        Family::StreamMemory(StreamMemoryOp::Wait | StreamMemoryOp::Batch)
    ) && job.call.succeeded();
    let Some(mut pending) = observer.pending.take() else {
        return;
    };
    if pending.observed.refused.is_some() {
        pending.observed.is_captured = job.current.is_captured;
        return observer.done.push(pending.observed);
    }
    if let Some(why) = skipped {
        let why = format!("the replay does not issue it: {why}");
        return refuse(observer, pending, why);
    }
    if pending.after
        && let Err(why) = read_after(job, observer, &mut pending)
    {
        return refuse(observer, pending, why);
    }
    observer.done.push(pending.observed);
}

/// Reads the memory again.
fn read_after(
    job: &Job<'_, '_>,
    observer: &mut Observer,
    pending: &mut Pending,
) -> Result<(), String> {
    wait(job, "after")?;
    let live = all_live(job, &observer.mapped);
    let still_lives =
        |region: &Region| region.is_of_module() || live.iter().any(|other| region.is_in(other));
    let mut reader = reader(job, observer);
    for (region, entry) in pending.regions.iter().zip(&mut pending.observed.memory) {
        if !still_lives(region) {
            continue;
        }
        entry.after = reader
            .read(region, |_| ())
            .map_err(|why| format!("memory is left out: {}: {why}", region.describe()))?;
    }
    Ok(())
}

/// The variables of a launched kernel's module.
fn variables_of(
    job: &Job<'_, '_>,
    observer: &Observer,
    module: u64,
    loaded: u64,
    left_out: &mut Vec<String>,
) -> Vec<Region> {
    let names = observer.job.variables.get(&loaded);
    let mut variables = Vec::new();
    for name in names.into_iter().flatten() {
        match job.api.variable(module, name) {
            Ok((_, 0)) => {}
            Ok(place) => variables.push(Region::variable(name, place, loaded)),
            // A fatbin has variables that are for other devices only.
            Err(NOT_FOUND) => {}
            Err(code) => left_out.push(format!(
                "variable {name}: cuModuleGetGlobal returned {}",
                result_name(code)
            )),
        }
    }
    variables
}

/// Before the first launch of a module's kernels: hashes its variables, so that a later observation
/// knows whether a kernel has written them.
fn see_variables(job: &mut Job<'_, '_>, observer: &mut Observer) {
    let Family::Launch(LaunchOp::Arguments(_) | LaunchOp::Config(_)) = job.function.family else {
        return;
    };
    if observer.job.variables.is_empty() || job.captures.any_open() || !job.call.succeeded() {
        return;
    }
    let Some(source) = source_of(job) else {
        return;
    };
    let Some(loaded) = launch::loaded_by(job, source.handle) else {
        return;
    };
    if observer.first_seen.contains_key(&loaded) || !observer.job.variables.contains_key(&loaded) {
        return;
    }
    let mut hashes = FxHashMap::default();
    if let Ok((_, function)) = launch::live_function(job, source.handle)
        && let Ok(module) = job.api.module_of(function)
    {
        let variables = variables_of(job, observer, module, loaded, &mut Vec::new());
        let mut reader = reader(job, observer);
        for variable in variables {
            if let Ok(hash) = reader.hash(&variable) {
                hashes.insert(variable.name.clone(), hash);
            }
        }
    }
    observer.first_seen.insert(loaded, hashes);
}

/// Marks the variables that hold what they held before the first launch, and that no call of the
/// program can name.
fn mark_as_loaded(job: &Job<'_, '_>, observer: &mut Observer, pending: &mut Pending) {
    let first_seen = std::mem::take(&mut observer.first_seen);
    let mut reader = reader(job, observer);
    let named = |live: u64| job.ranges.all_live().any(|range| range.live == live);
    for (region, entry) in pending.regions.iter().zip(&mut pending.observed.memory) {
        let seen = first_seen.get(&region.made);
        let Some(seen) = seen.and_then(|seen| seen.get(&region.name)) else {
            continue;
        };
        entry.as_loaded = !named(region.live) && reader.hash(region).ok().as_ref() == Some(seen);
    }
    observer.first_seen = first_seen;
}
