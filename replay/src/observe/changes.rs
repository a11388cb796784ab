//! Looks at memory after every call that may have changed it.

use cutape_registry::{Family, GraphOp};

use crate::observation::job::{Moments, Reach};
use crate::observation::observer::Observer;
use crate::observe::graph::prepare_graph;
use crate::observe::wait::{wait, wait_for_call};
use crate::observe::{search, watch};
use crate::player::Job;

/// Before a call: finds what CPU code has written. Before the first call whose changes are wanted:
/// looks at what is there.
pub(super) fn before(job: &Job<'_, '_>, observer: &mut Observer) {
    let call = job.call.index;
    let is_watched = observer.watch.begins_with(call);
    let is_searched = observer.searching.begins_with(call);
    if (is_watched || is_searched) && !job.captures.any_open() {
        match wait(job, observer, "before") {
            Ok(()) => {
                if is_watched {
                    watch::begin(job, observer);
                }
                if is_searched {
                    search::begin(job, observer);
                }
            }
            Err(why) => observer.watch.left_out.push(format!("call {call}: {why}")),
        }
    }
    watch::before(job, observer);
}

/// Before a call: lets a graph run node by node.
pub(super) fn split_graph(job: &Job<'_, '_>, observer: &mut Observer) {
    let call = job.call.index;
    let is_graph = job.function.family == Family::Graph(GraphOp::Launch);
    if !is_graph || !job.call.succeeded() || job.captures.any_open() {
        return;
    }
    let is_watched = observer.watch.has_memory() && observer.watch.is_wanted(call);
    let is_looked_at = is_watched
        || observer.searching.is_active(call)
        || observer.allocates_watched(job.call.argument(0));
    if !is_looked_at {
        return;
    }
    let whole = Moments {
        reach: Reach::All,
        ..Moments::default()
    };
    if let Err(why) = prepare_graph(job, observer, whole, Vec::new()) {
        let text = format!("the graph of call {call} runs as a whole: {why}");
        observer.watch.left_out.push(text);
    }
}

/// After a call, which was given to the driver if `is_issued`.
pub(super) fn after(job: &mut Job<'_, '_>, observer: &mut Observer, is_issued: bool) {
    observer.graph = None;
    if !is_issued {
        return;
    }
    let call = job.call.index;
    if job.traits.destroys {
        search::end_contexts(job, observer);
    }
    let begins = watch::place(job, observer);
    let may_write =
        job.function.changes_device_memory() || matches!(job.function.family, Family::Copy(_));
    let watch = &observer.watch;
    // What was there before the first call whose changes are wanted is seen after the last of the
    // others, so that what CPU code writes between them is found.
    let is_last_before = watch.begins_with(call + 1);
    let is_wanted = (begins || may_write) && watch.is_wanted(call) && watch.has_memory();
    let is_watched = is_wanted || is_last_before;
    let is_searched = may_write && observer.searching.is_active(call);
    let has_new_memory = observer.searching.is_wanted() && search::may_begin_memory(job);
    if job.current.is_captured {
        return;
    }
    if !(is_watched || is_searched || has_new_memory) {
        observer.is_idle &= !may_write;
        return;
    }
    let put_off = |observer: &mut Observer| {
        if is_watched {
            observer.watch.since.get_or_insert(call);
        }
        if is_searched {
            observer.searching.since.get_or_insert(call);
        }
    };
    if job.captures.any_open() || observer.waits_for_memory || observer.endless.is_some() {
        observer.is_idle = false;
        return put_off(observer);
    }
    if let Err(why) = wait_for_call(job, observer) {
        put_off(observer);
        return observer.watch.left_out.push(format!("call {call}: {why}"));
    }
    if is_watched {
        watch::look(job, observer, begins);
    }
    if is_searched || has_new_memory {
        search::look(job, observer, is_searched);
    }
}
