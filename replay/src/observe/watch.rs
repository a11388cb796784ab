//! Looks at watched memory.

use cutape_registry::Kind;

use crate::observation::job::{WatchedRange, Writer};
use crate::observation::memory::{Region, region_at};
use crate::observation::observer::Observer;
use crate::observe::launch;
use crate::observe::live::all_live;
use crate::place::address::Found;
use crate::player::{Job, Player};

/// Before the first call whose changes are wanted, if nobody has looked after the call before it.
pub(super) fn begin(job: &Job<'_, '_>, observer: &mut Observer) {
    observer
        .watch
        .look(&job.api, job.call.index, &Writer::Host, false);
}

/// Before a call: finds what CPU code has written.
pub(super) fn before(job: &Job<'_, '_>, observer: &mut Observer) {
    let call = job.call.index;
    let is_due = observer.watch.is_host_due || job.decoded.has_notes;
    if is_due && observer.watch.is_wanted(call) {
        observer.watch.look(&job.api, call, &Writer::Host, true);
    }
    // Bytes that the recorder found after a call are put into host memory when the call is over.
    observer.watch.is_host_due = job.decoded.has_notes;
}

/// After a call: finds watched memory again. True if some of it begins, so that it has to be looked
/// at.
pub(super) fn place(job: &Job<'_, '_>, observer: &mut Observer) -> bool {
    let (call, mut watch) = (job.call.index, std::mem::take(&mut observer.watch));
    let begins = watch.place(call, |range| find(job, observer, range));
    observer.watch = watch;
    begins
}

/// Looks at watched memory, of which some begins with the call. All work must be done.
pub(super) fn look(job: &mut Job<'_, '_>, observer: &mut Observer, begins: bool) {
    let call = job.call.index;
    let watch = &mut observer.watch;
    let current = job.api.current_context().unwrap_or(0);
    let is_taken = |context| job.handles.is_taken(Kind::Context, context);
    watch.end_contexts(|context| context == current || is_taken(context));
    let has_changed = watch.look(&job.api, call, &Writer::Call, false);
    if begins {
        watch.keep_first(call);
    }
    watch.since = None;
    if job.traits.is_launch && watch.last_change() == Some(call) {
        name_parameters(job, observer, has_changed);
    }
}

/// Gives the changes of a launch the parameters that point into memory.
fn name_parameters(job: &mut Job<'_, '_>, observer: &mut Observer, has_changed: bool) {
    let call = job.call.index;
    if has_changed && let Ok(described) = launch::describe(job) {
        let watch = &mut observer.watch;
        watch.add_parameters(call, &Writer::Call, &described.launch);
    }
    let regions = all_live(job, observer);
    let first = regions.first().map_or(0, |region| region.live);
    let end = regions.iter().map(Region::end).max().unwrap_or(0);
    observer.watch.resolve_parameters(call, |live| {
        let (_, region) = region_at(&regions, (first, end), live)?;
        Some(region.recorded.wrapping_add(live - region.live))
    });
}

/// Where a recorded range lies, and the memory around it.
pub(super) fn find(
    player: &Player<'_>,
    observer: &Observer,
    range: WatchedRange,
) -> Option<(Region, Region)> {
    let Found::Live(found, _) = player.ranges.find(range.address) else {
        return None;
    };
    if observer.is_unallocated(found) {
        return None;
    }
    let mut whole = match found.kind {
        Kind::Reservation => {
            let (bytes, mapping) = player.mapped.mappings.find(range.address)?;
            let live = player.ranges.translate(bytes.start);
            let length = bytes.end - bytes.start;
            Region::mapped((bytes.start, live), length, mapping.site.index)
        }
        _ => Region::of(found)?,
    };
    if !player.handles.is_taken(Kind::Context, whole.context) {
        whole.context = 0;
    }
    Some((whole.of_range(range), whole))
}
