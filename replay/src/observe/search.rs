//! Looks for numbers in device memory.

use std::collections::HashMap;

use cutape_registry::{Family, Kind};

use crate::observation::area::Area;
use crate::observation::job::Writer;
use crate::observation::observer::Observer;
use crate::player::{Job, Player};

/// Whether device memory may begin with a call.
pub(super) fn may_begin_memory(job: &Job<'_, '_>) -> bool {
    job.traits.places
        || job.traits.finds_global
        || matches!(
            job.function.family,
            Family::VirtualMemory(_) | Family::Sharing(_)
        )
}

/// Before the first call whose writes are looked at: what was written until then is known. All work
/// must be done.
pub(super) fn begin(job: &Job<'_, '_>, observer: &mut Observer) {
    look(job, observer, false);
    let (searching, mut reader) = observer.search_with(&job.api);
    searching.begin(&mut reader);
}

/// Forgets contexts that have ended, before others get their handles.
pub(super) fn end_contexts(job: &Job<'_, '_>, observer: &mut Observer) {
    let current = job.api.current_context().unwrap_or(0);
    let is_taken = |context| job.handles.is_taken(Kind::Context, context);
    let searching = &mut observer.searching;
    searching.end_contexts(|context| context == current || is_taken(context));
}

/// Follows which memory lives, and looks at it if the call may have written. All work must be done.
pub(super) fn look(job: &Job<'_, '_>, observer: &mut Observer, may_have_written: bool) {
    end_contexts(job, observer);
    let areas = areas(job, observer, |area| observer.searching.within(area));
    observer.searching.place(&job.api, &areas);
    if may_have_written {
        let (searching, mut reader) = observer.search_with(&job.api);
        searching.look(&mut reader, job.call.index, &Writer::Call);
    }
}

/// The device memory that lives, with a live context in which it can be read.
fn areas(
    player: &Player<'_>,
    observer: &Observer,
    within: impl Fn(Area) -> Vec<Area>,
) -> HashMap<Area, u64> {
    let current = player.api.current_context().unwrap_or(0);
    let mut areas = HashMap::new();
    let mut add = |area: Area, context: u64| {
        if context != 0 && area.length > 0 {
            areas.extend(within(area).into_iter().map(|part| (part, context)));
        }
    };
    for range in player.ranges.all_live() {
        let is_of_device = matches!(range.kind, Kind::Memory | Kind::Global);
        if !is_of_device || observer.is_unallocated(range) {
            continue;
        }
        let is_live = player.handles.is_taken(Kind::Context, range.context);
        let area = Area {
            recorded: range.start,
            live: range.live,
            length: range.length,
            made: range.made,
        };
        add(area, if is_live { range.context } else { current });
    }
    let device = player.api.current_device().unwrap_or(-1);
    for (bytes, mapping) in player.mapped.mappings.iter() {
        // Reading without access would end the context.
        if mapping.writers().any(|writer| writer == device) {
            let area = Area {
                recorded: bytes.start,
                live: player.ranges.translate(bytes.start),
                length: bytes.end - bytes.start,
                made: mapping.site.index,
            };
            add(area, current);
        }
    }
    areas
}
