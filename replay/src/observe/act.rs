//! What an observation does before and after a call goes to the driver.

use cutape_registry::{Family, GraphOp, LaunchOp, StreamMemoryOp};

use crate::api::result_name;
use crate::observation::job::{Moments, ObservedCall, Reach};
use crate::observation::memory::{Reader, Region};
use crate::observation::observer::{Observer, Pending};
use crate::observation::read::{Reachable, read_after, read_before};
use crate::observation::texture::arrays_of;
use crate::observation::variables::{hashes_of, mark_as_loaded, named_addresses, variables_of};
use crate::observe::changes;
use crate::observe::graph::{follow_graphs, follow_memory, prepare_graph, see_nodes};
use crate::observe::launch;
use crate::observe::live::{add_variables, all_live, clipped};
use crate::observe::order;
use crate::observe::part::read_reachable;
use crate::observe::session;
use crate::observe::wait::{check_readable, wait};
use crate::overrides::launch::source_of;
use crate::player::Job;

/// Before a call goes to the driver. False if it is not to be issued.
#[inline]
pub(crate) fn before(job: &mut Job<'_, '_>) -> bool {
    let Some(mut observer) = job.player.observer.take() else {
        return true;
    };
    let is_issued = begin(job, &mut observer);
    job.player.observer = Some(observer);
    is_issued
}

/// After a call was given to the driver; or was not, for that reason.
#[inline]
pub(crate) fn after(job: &mut Job<'_, '_>, skipped: Option<&str>) {
    if let Some(mut observer) = job.player.observer.take() {
        end(job, &mut observer, skipped);
        job.player.observer = Some(observer);
    }
}

fn begin(job: &mut Job<'_, '_>, observer: &mut Observer) -> bool {
    see_launch(job, observer);
    if observer.looks_for_changes() {
        changes::before(job, observer);
    }
    order::before(job, observer);
    session::serve(job, observer, false);
    see_nodes(job, observer);
    if observer.looks_for_changes() {
        changes::split_graph(job, observer);
    }
    let Some(&moments) = observer.job.calls.get(&job.call.index) else {
        return true;
    };
    let observed = ObservedCall {
        call: job.call.index,
        ..ObservedCall::default()
    };
    let mut pending = Pending {
        observed,
        after: moments.after,
        ..Pending::default()
    };
    if job.captures.any_open() {
        pending.observed.refused = Some("a stream is capturing at that call".into());
        observer.pending = Some(pending);
        return true;
    }
    let is_issued = moments.reach != Reach::Part;
    match observe(job, observer, moments, &mut pending) {
        Ok(()) if is_issued => observer.pending = Some(pending),
        Ok(()) => observer.done.push(pending.observed),
        Err(why) => refuse(observer, pending, why),
    }
    is_issued
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
    let is_launch = matches!(job.function.family, Family::Launch(_));
    let is_graph = job.function.family == Family::Graph(GraphOp::Launch);
    if moments.reach == Reach::Launch && !is_launch && !is_graph {
        return Err("it is not a launch of a kernel".into());
    }
    if (is_launch || is_graph)
        && moments.reach != Reach::Part
        && let Some(result) = job.call.result().filter(|&result| result != 0)
    {
        return Err(format!(
            "it failed in the recording: {}",
            result_name(result)
        ));
    }
    check_readable(job, observer)?;
    // Which memory is there, does not depend on the work before.
    if moments.before || moments.reach != Reach::All {
        wait(job, observer, "before")?;
    }
    let mut regions = all_live(job, observer);
    if moments.reach == Reach::Part {
        return read_reachable(job, observer, &regions, pending);
    }
    if moments.reach == Reach::Launch {
        add_variables(job, observer, &mut regions);
    }
    if is_graph && moments.reach == Reach::Launch {
        return prepare_graph(job, observer, moments, regions);
    }
    if moments.reach == Reach::All && !observer.job.reads.is_empty() {
        regions = clipped(&regions, &observer.job.reads);
    }
    let longest = observer.job.longest;
    let (mut variables, mut arrays) = (Vec::new(), Vec::new());
    if moments.reach == Reach::Launch {
        let described = launch::describe(job)?;
        if let (Some(module), Some(loaded)) = (described.module, described.launch.loaded)
            && let Some(names) = observer.job.variables.get(&loaded)
        {
            let left_out = &mut pending.observed.left_out;
            variables = variables_of(&job.api, module, (names, loaded), left_out);
        }
        arrays = arrays_of(&job.api, &described.launch.textures, longest)?;
        pending.observed.launch = Some(described.launch);
    }
    // Read as those of the kernel's module.
    regions.retain(|region| {
        let mut variables = variables.iter();
        variables.all(|variable: &Region| variable.live != region.live)
    });
    let reachable = Reachable {
        regions: &regions,
        variables: &variables,
        arrays: &arrays,
        longest,
    };
    let first_seen = std::mem::take(&mut observer.first_seen);
    let mut reader = reader(job, observer);
    read_before(&mut reader, &reachable, pending, moments.before);
    mark_as_loaded(
        &mut reader,
        &first_seen,
        &named_addresses(&job.ranges),
        pending,
    );
    observer.first_seen = first_seen;
    Ok(())
}

/// Reads memory into the file of an observer.
fn reader<'a>(job: &'a Job<'_, '_>, observer: &'a mut Observer) -> Reader<'a> {
    Reader {
        api: &job.api,
        pages: &mut observer.pages,
        buffer: &mut observer.buffer,
        position: Some(&job.issuer.position),
    }
}

fn end(job: &mut Job<'_, '_>, observer: &mut Observer, skipped: Option<&str>) {
    observer.waits_for_memory |= matches!(
        job.function.family,
        Family::StreamMemory(StreamMemoryOp::Wait | StreamMemoryOp::Batch)
    ) && job.call.succeeded()
        && skipped.is_none();
    if skipped.is_none() && job.call.succeeded() {
        follow_graphs(job, observer);
        follow_memory(job, observer);
    }
    order::after(job, observer, skipped);
    if observer.looks_for_changes() && observer.pending.is_none() {
        changes::after(job, observer, skipped.is_none());
    }
    session::serve(job, observer, true);
    let Some(mut pending) = observer.pending.take() else {
        return;
    };
    if pending.observed.refused.is_some() {
        pending.observed.is_captured = job.current.is_captured;
        return observer.done.push(pending.observed);
    }
    let is_graph = job.function.family == Family::Graph(GraphOp::Launch);
    if is_graph && observer.job.is_of_launches(job.call.index) {
        // Its nodes are observed calls of their own.
        if observer.graph.take().is_some() {
            let why = skipped.unwrap_or("the driver was not called");
            refuse(
                observer,
                pending,
                format!("the replay does not issue it: {why}"),
            );
        }
        return;
    }
    if let Some(why) = skipped {
        pending.observed.exchanges_with = job.exchanges.left_out_with(job.call.index);
        let why = format!("the replay does not issue it: {why}");
        return refuse(observer, pending, why);
    }
    if pending.after
        && let Err(why) = read_again(job, observer, &mut pending)
    {
        return refuse(observer, pending, why);
    }
    observer.done.push(pending.observed);
}

/// Reads the memory again.
fn read_again(
    job: &Job<'_, '_>,
    observer: &mut Observer,
    pending: &mut Pending,
) -> Result<(), String> {
    wait(job, observer, "after")?;
    let live = all_live(job, observer);
    let still_lives =
        |region: &Region| region.is_of_launch() || live.iter().any(|other| region.is_in(other));
    read_after(&mut reader(job, observer), still_lives, pending)
}

/// Before a launch: knows where its kernel is from. Before the first launch of a module's kernels:
/// hashes its variables, so that a later observation knows whether a kernel has written them.
fn see_launch(job: &mut Job<'_, '_>, observer: &mut Observer) {
    let Family::Launch(LaunchOp::Arguments(_) | LaunchOp::Config(_)) = job.function.family else {
        return;
    };
    let Some(source) = source_of(job) else { return };
    let Some(loaded) = launch::loaded_by(job, source.handle) else {
        return;
    };
    let Ok((handle, function)) = launch::live_function(job, source.handle) else {
        return;
    };
    observer.launched.insert(loaded, source.handle);
    observer.functions.insert(handle, loaded);
    observer.functions.insert(function, loaded);
    if job.captures.any_open() || observer.first_seen.contains_key(&loaded) {
        return;
    }
    let Some(names) = observer.job.variables.get(&loaded) else {
        return;
    };
    let Ok(module) = job.api.module_of(function) else {
        return;
    };
    let variables = variables_of(&job.api, module, (names, loaded), &mut Vec::new());
    let hashes = hashes_of(&mut reader(job, observer), &variables);
    observer.first_seen.insert(loaded, hashes);
    observer.variables.insert(loaded, variables);
}
