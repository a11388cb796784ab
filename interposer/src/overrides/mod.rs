//! What the registry's roles cannot say: one file for each subject, named as on the replaying side
//! if that has code for it.
//!
//! A call runs these hooks, in this order; the table in `hooks` has the code of each family:
//!
//! | hook | runs |
//! |---|---|
//! | `put_pre_call` | while the enter record is written |
//! | `pre_call` | between the enter record and the driver |
//! | `post_call` | between the driver and the leave record, if the call succeeded |
//! | `put_post_call` | while the leave record is written |
//! | `finish_call` | after the leave record |

mod batch;
pub(crate) mod copy;
pub(crate) mod device_memory;
mod entry_point;
mod graph;
pub(crate) mod hooks;
mod image;
mod jit_options;
pub(crate) mod launch;
mod lifetime;
mod link;
mod origin;
mod scatter;
mod sharing;
mod visitor;

use cutape_device_memory::Steps;
use cutape_registry::Family;

use crate::hot::frame::Frame;
use crate::hot::plan::Plan;
use crate::hot::thread::{Draft, Thread};
use crate::loaded::address_space;
use crate::{host_functions, host_memory};
use visitor::Visitor;

/// In a forked child: objects of the parent are not this process's.
pub(crate) fn forget() {
    link::forget();
    address_space::forget();
}

struct PutPreCall<'a, 't> {
    draft: &'a mut Draft<'t>,
    frame: &'a Frame,
    written: Option<()>,
}

impl Visitor for PutPreCall<'_, '_> {
    fn put_pre_call(self, put: impl FnOnce(&mut Draft<'_>, &Frame) -> Option<()>) -> Self {
        let written = self.written.and_then(|()| put(self.draft, self.frame));
        Self { written, ..self }
    }
}

/// Writes what the overrides snapshot before the call.
pub(crate) fn put_pre_call(draft: &mut Draft<'_>, frame: &Frame, plan: &Plan) -> Option<()> {
    let written = Some(());
    hooks::visit(
        plan,
        PutPreCall {
            draft,
            frame,
            written,
        },
    )
    .written
}

struct PreCall<'a> {
    thread: &'a Thread,
    frame: &'a mut Frame,
}

impl Visitor for PreCall<'_> {
    fn pre_call(self, run: impl FnOnce(&Thread, &mut Frame)) -> Self {
        run(self.thread, self.frame);
        self
    }
}

/// Runs between the enter record and the driver.
pub(crate) fn pre_call(thread: &Thread, frame: &mut Frame, plan: &Plan) {
    if plan.looks_at_seen {
        host_functions::note_news(thread);
        host_memory::look_at_seen(thread);
    }
    hooks::visit(plan, PreCall { thread, frame });
    if plan.operands != 0 && host_memory::any() {
        host_memory::before_arguments(thread, frame);
    }
    if plan.steps != Steps::NONE {
        device_memory::pre_call(thread, frame, plan);
    }
}

/// Compares the host memory that a launch can reach.
pub(crate) fn look_at_host_memory(thread: &Thread, frame: &Frame, plan: &Plan) {
    if let Family::Launch(op) = plan.family {
        launch::look_at_host_memory(thread, frame, op);
    }
}

struct PostCall<'a> {
    thread: &'a Thread,
    frame: &'a mut Frame,
}

impl Visitor for PostCall<'_> {
    fn post_call(self, run: impl FnOnce(&Thread, &mut Frame)) -> Self {
        run(self.thread, self.frame);
        self
    }
}

/// Runs between the driver and the leave record.
pub(crate) fn post_call(thread: &Thread, frame: &mut Frame, plan: &Plan) {
    if plan.steps != Steps::NONE {
        device_memory::post_call(thread, frame, plan);
    }
    if frame.succeeded() {
        if plan.looks_at_seen
            && let Family::Global(_) = plan.family
        {
            host_memory::found_variable(frame);
        }
        hooks::visit(plan, PostCall { thread, frame });
    }
}

struct PutPostCall<'a, 't> {
    draft: &'a mut Draft<'t>,
    frame: &'a Frame,
    written: Option<()>,
}

impl Visitor for PutPostCall<'_, '_> {
    fn put_post_call(self, put: impl FnOnce(&mut Draft<'_>, &Frame) -> Option<()>) -> Self {
        let written = self.written.and_then(|()| put(self.draft, self.frame));
        Self { written, ..self }
    }
}

/// Writes what the overrides snapshot after the call, whatever its result.
pub(crate) fn put_post_call(draft: &mut Draft<'_>, frame: &Frame, plan: &Plan) -> Option<()> {
    let written = Some(());
    hooks::visit(
        plan,
        PutPostCall {
            draft,
            frame,
            written,
        },
    )
    .written
}

struct FinishCall<'a> {
    frame: &'a mut Frame,
}

impl Visitor for FinishCall<'_> {
    fn finish_call(self, run: impl FnOnce(&mut Frame)) -> Self {
        run(self.frame);
        self
    }
}

/// Runs when the leave record is written, just before the program continues.
pub(crate) fn finish_call(frame: &mut Frame, plan: &Plan) {
    hooks::visit(plan, FinishCall { frame });
}
