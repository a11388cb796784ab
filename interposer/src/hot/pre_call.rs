//! Before the driver: writes the enter record, and does what else a function needs then.

use core::ffi::c_void;
use core::hint::cold_path;
use core::sync::atomic::Ordering;

use cutape_format::layout::{EnterHead, RECORD_HEAD_LENGTH, note_kind, record_kind};

use super::arguments::{gather, put_arguments, put_fixed, put_launch, put_plain, put_short};
use super::frame::Frame;
use super::launch::{self, PackedParameters};
use super::plan::{self, EnterForm, OrderForm, Plan, PreCall};
use super::recording::{self, MEASURING, RECORDING, STATE};
use super::shape::NOT_RECORDED;
use super::thread::{self, Activation, Thread};
use super::{clock, cost};
use crate::loaded::address_space;
use crate::process::errno::Errno;
use crate::start::ensure_started;
use crate::state::{captures, followed_work};
use crate::{conditions, device_memory, driver, host_memory, overrides, snapshot, stack};

/// What the entry does next.
#[repr(C)]
pub(crate) struct Dispatch {
    /// The driver's function.
    target: *const c_void,
    /// The shape of the function, or `NOT_RECORDED`.
    how: u64,
}

/// Called by every entry before the driver. The frame is the entry's; `stack` is where the
/// arguments on the stack begin.
pub(crate) extern "C" fn pre_call(frame: &mut Frame, stack: *const u64) -> Dispatch {
    let Some(known) = thread::known_directly() else {
        cold_path();
        return pre_call_by_descriptor(frame, stack);
    };
    pre_call_on(known, frame, stack)
}

/// The same if thread-local memory is not at the same distance in all threads.
#[inline(never)]
extern "C" fn pre_call_by_descriptor(frame: &mut Frame, stack: *const u64) -> Dispatch {
    pre_call_on(thread::known(), frame, stack)
}

/// The fast path: a recorded call of the program, on a thread that has called before. `known` is
/// NULL before a thread's first call.
#[inline(always)]
fn pre_call_on(known: *const Thread, frame: &mut Frame, stack: *const u64) -> Dispatch {
    // SAFETY: NULL, or the state, which lives as long as its thread, which is this one.
    let Some(thread) = (unsafe { known.as_ref() }) else {
        cold_path();
        return pre_call_slowly(frame, stack);
    };
    #[cfg(feature = "gum")]
    if driver::is_own_code(frame.caller) {
        return pass(frame);
    }
    if !thread.is_idle() {
        cold_path();
        return pre_call_slowly(frame, stack);
    }
    let pausing = recording::pausing();
    if pausing != thread.seen.get() {
        cold_path();
        return match pausing.is_paused() {
            true => pre_call_paused(thread, frame, stack),
            false => pre_call_slowly(frame, stack),
        };
    }
    let plan = plan::of(frame.index());
    thread.begin_call(&mut frame.activation);
    frame.plan = plan;
    if plan.enter != EnterForm::Plain {
        cold_path();
        return enter_longer(thread, frame, plan, stack);
    }
    if !thread.put_in_slot(|slot| put_plain(slot, frame, plan, clock::counter)) {
        return enter_in_new_slot(thread, frame, plan, stack);
    }
    thread.calls.set(thread.calls.get() + 1);
    proceed(thread, frame, plan)
}

/// Goes on for a function with many arguments or a generic enter record.
#[inline(never)]
extern "C" fn enter_longer(
    thread: &Thread,
    frame: &mut Frame,
    plan: &Plan,
    stack: *const u64,
) -> Dispatch {
    match plan.enter {
        EnterForm::Launch => enter_launch(thread, frame, plan, stack),
        EnterForm::Short => enter_short(thread, frame, plan, stack),
        EnterForm::Plain | EnterForm::Generic => enter_generic(thread, frame, plan, stack),
    }
}

/// Goes on for `cuLaunchKernel`.
#[inline(never)]
extern "C" fn enter_launch(
    thread: &Thread,
    frame: &mut Frame,
    plan: &Plan,
    stack: *const u64,
) -> Dispatch {
    gather_launch(frame, stack);
    if !thread.put_in_slot(|slot| put_launch(slot, frame, plan, clock::counter)) {
        return enter_in_new_slot(thread, frame, plan, stack);
    }
    thread.calls.set(thread.calls.get() + 1);
    write_parameters(thread, frame, plan)
}

/// `gather` for the five stack arguments of `cuLaunchKernel`.
#[inline(always)]
fn gather_launch(frame: &mut Frame, stack: *const u64) {
    frame.stack = stack;
    let [_, _, _, _, _, _, on_stack @ .., _, _, _, _, _] = &mut frame.words;
    for (index, word) in on_stack.iter_mut().enumerate() {
        // SAFETY: as in `gather`.
        *word = unsafe { stack.add(index).read_volatile() };
    }
}

/// Goes on for other functions with many arguments.
#[inline(never)]
extern "C" fn enter_short(
    thread: &Thread,
    frame: &mut Frame,
    plan: &Plan,
    stack: *const u64,
) -> Dispatch {
    gather(frame, plan, stack);
    if !thread.put_in_slot(|slot| put_short(slot, frame, plan, clock::counter)) {
        return enter_in_new_slot(thread, frame, plan, stack);
    }
    thread.calls.set(thread.calls.get() + 1);
    proceed(thread, frame, plan)
}

/// A call while recording is paused, on a thread that has called before.
#[inline(never)]
extern "C" fn pre_call_paused(thread: &Thread, frame: &mut Frame, stack: *const u64) -> Dispatch {
    let plan = plan::of(frame.index());
    if !recording::is_recording()
        || !may_leave_out(plan)
        || conditions::wait_for_start()
        || device_memory::takes_snapshots()
    {
        return pre_call_slowly(frame, stack);
    }
    leave_out(thread, frame, stack)
}

/// Whether a call can be left out while recording is paused.
#[inline(always)]
fn may_leave_out(plan: &Plan) -> bool {
    plan.changes_no_state
        && !captures::any()
        // Bytes of copies are still awaited, and what proves them complete.
        && !(plan.order == OrderForm::Tells && followed_work::any())
}

/// The call goes to the driver, and is recorded only if it fails.
#[inline(always)]
fn leave_out(thread: &Thread, frame: &mut Frame, stack: *const u64) -> Dispatch {
    frame.activation = Activation::left_out(thread);
    frame.stack = stack;
    Dispatch {
        target: driver::target(frame.index()),
        how: frame.shape.into(),
    }
}

/// Records a call that was to be left out and has failed: enter record and leave record, with the
/// time of its return.
#[cold]
pub(super) fn record_failed(thread: &Thread, frame: &mut Frame) {
    let plan = plan::of(frame.index());
    let _errno = Errno::keep();
    thread.begin_call(&mut frame.activation);
    frame.plan = plan;
    thread.notice_pausing(false);
    if stack::is_on() {
        thread.ask_for_stack();
    }
    let stack = frame.stack;
    let written = match plan.enter {
        EnterForm::Generic => write_generic(thread, frame, plan, stack),
        _ => write_fixed(thread, frame, plan, stack),
    };
    if written {
        thread.calls.set(thread.calls.get() + 1);
        if thread.attend(host_memory::enqueued) {
            attended(thread, frame);
        }
        let (ticks, result) = (clock::ticks(), frame.result as i32);
        thread.put_in_new_slot(|slot| slot.put_leave(frame.function, ticks, result));
    }
    thread.end_call();
}

/// A thread's first call, a call inside another one, or a call that the fast path does not take.
#[cold]
extern "C" fn pre_call_slowly(frame: &mut Frame, stack: *const u64) -> Dispatch {
    // SAFETY: the state lives as long as its thread, which is this one.
    let thread = unsafe { &*thread::current() };
    #[cfg(feature = "gum")]
    if driver::is_own_code(frame.caller) {
        return pass(frame);
    }
    if thread.is_inside_call(core::ptr::from_ref(frame).addr()) {
        return pass_nested(thread, frame);
    }
    if !ensure_started(thread) {
        return pass(frame);
    }
    let plan = plan::of(frame.index());
    conditions::before(frame, plan);
    overrides::device_memory::arrive(thread, frame, plan);
    if recording::pausing().is_paused() && may_leave_out(plan) {
        device_memory::left_out(thread, plan);
        return leave_out(thread, frame, stack);
    }
    let began = clock::ticks();
    let state = STATE.load(Ordering::Relaxed);
    thread.begin_call(&mut frame.activation);
    frame.plan = plan;
    let is_fast = !conditions::count_calls() && !device_memory::takes_snapshots();
    thread.notice_pausing(state == RECORDING && is_fast);
    if crate::stack::is_on() {
        thread.ask_for_stack();
    }
    let dispatch = match plan.enter {
        EnterForm::Generic => enter_generic(thread, frame, plan, stack),
        _ => enter_in_new_slot(thread, frame, plan, stack),
    };
    if state == MEASURING {
        cost::add(&thread.cost, began, true);
    }
    dispatch
}

/// Writes an enter record of fixed form when no slot is free, or something else is to be attended
/// to.
#[inline(never)]
extern "C" fn enter_in_new_slot(
    thread: &Thread,
    frame: &mut Frame,
    plan: &Plan,
    stack: *const u64,
) -> Dispatch {
    let written = write_fixed(thread, frame, plan, stack);
    entered(thread, frame, plan, written)
}

fn write_fixed(thread: &Thread, frame: &mut Frame, plan: &Plan, stack: *const u64) -> bool {
    gather(frame, plan, stack);
    thread.put_in_new_slot(|slot| put_fixed(slot, frame, plan, clock::ticks))
}

/// Writes an `ENTER` with snapshots of what the parameters point at.
#[inline(never)]
extern "C" fn enter_generic(
    thread: &Thread,
    frame: &mut Frame,
    plan: &Plan,
    stack: *const u64,
) -> Dispatch {
    let written = write_generic(thread, frame, plan, stack);
    entered(thread, frame, plan, written)
}

#[inline(always)]
fn write_generic(thread: &Thread, frame: &mut Frame, plan: &Plan, stack: *const u64) -> bool {
    frame.saved = [0; 3];
    gather(frame, plan, stack);
    let errno = plan.may_change_errno.then(Errno::keep);
    let mut start = 0;
    let written = thread.write(record_kind::ENTER, frame.function, |draft| {
        draft.put_encoded(EnterHead {
            ticks: 0,
            caller: frame.caller,
        })?;
        put_arguments(draft, frame, plan)?;
        if plan.snapshots_before {
            snapshot::put_pre_call(draft, frame, plan)?;
        }
        overrides::put_pre_call(draft, frame, plan)?;
        // The clock last: the time of the snapshots is not the driver's.
        start = clock::ticks();
        draft.patch(RECORD_HEAD_LENGTH, start)
    });
    frame.start = start;
    drop(errno);
    written
}

/// Goes on after an enter record that took more than a free slot.
fn entered(thread: &Thread, frame: &mut Frame, plan: &Plan, is_written: bool) -> Dispatch {
    if !is_written {
        thread.end_call();
        device_memory::leave(thread, plan);
        return pass(frame);
    }
    // Before `attend`, which may begin a chunk, whose head has the number of its first call.
    thread.calls.set(thread.calls.get() + 1);
    if thread.attend(host_memory::enqueued) {
        attended(thread, frame);
    }
    proceed(thread, frame, plan)
}

/// Adds what a thread's first call has, or a call while stacks are taken.
#[cold]
extern "C" fn attended(thread: &Thread, frame: &Frame) {
    if thread.calls.get() == 1 {
        address_space::before_first(thread);
    }
    if stack::is_on() {
        stack::entered(thread, frame);
    }
}

/// Does what the function needs between the enter record and the driver: nearly always nothing.
#[inline(always)]
fn proceed(thread: &Thread, frame: &mut Frame, plan: &Plan) -> Dispatch {
    if plan.pre_call != PreCall::Nothing {
        cold_path();
        return proceed_further(thread, frame, plan);
    }
    call_driver(thread, frame)
}

#[inline(never)]
extern "C" fn proceed_further(thread: &Thread, frame: &mut Frame, plan: &Plan) -> Dispatch {
    match plan.pre_call {
        PreCall::Operands if host_memory::any() => check_operands(thread, frame, plan),
        PreCall::Nothing | PreCall::Operands => call_driver(thread, frame),
        PreCall::Launch => write_parameters(thread, frame, plan),
        PreCall::LaunchEx => write_parameters_ex(thread, frame, plan),
        PreCall::Override => run_override(thread, frame, plan),
    }
}

#[inline(never)]
extern "C" fn write_parameters(thread: &Thread, frame: &mut Frame, plan: &Plan) -> Dispatch {
    let parameters = launch::write_parameters(thread, frame, plan);
    launched(thread, frame, plan, parameters)
}

#[inline(never)]
extern "C" fn write_parameters_ex(thread: &Thread, frame: &mut Frame, plan: &Plan) -> Dispatch {
    let parameters = launch::write_parameters_ex(thread, frame);
    launched(thread, frame, plan, parameters)
}

/// Goes on with a launch whose parameters have been written, unless they are `None`.
#[inline(always)]
fn launched(
    thread: &Thread,
    frame: &mut Frame,
    plan: &Plan,
    parameters: Option<PackedParameters>,
) -> Dispatch {
    match parameters {
        Some(_) if !host_memory::any() => call_driver(thread, frame),
        Some(parameters) => check_parameters(thread, frame, plan, parameters),
        None => run_override(thread, frame, plan),
    }
}

/// Records changes of host memory that a launch can read through its parameters.
#[inline(never)]
extern "C" fn check_parameters(
    thread: &Thread,
    frame: &mut Frame,
    plan: &Plan,
    parameters: PackedParameters,
) -> Dispatch {
    if host_memory::may_reach(parameters.words()) {
        overrides::look_at_host_memory(thread, frame, plan);
        thread.note_look(note_kind::LOOKED_BEFORE);
    }
    call_driver(thread, frame)
}

/// Records changes of host memory that a function reads through its operands.
#[inline(never)]
extern "C" fn check_operands(thread: &Thread, frame: &mut Frame, plan: &Plan) -> Dispatch {
    let (mut rest, words) = (plan.operands, &frame.words);
    let operands = core::iter::from_fn(move || {
        let at = rest.trailing_zeros() as usize;
        rest &= rest.wrapping_sub(1);
        words.get(at).copied()
    });
    if host_memory::may_reach(operands) {
        return run_override(thread, frame, plan);
    }
    call_driver(thread, frame)
}

#[inline(never)]
extern "C" fn run_override(thread: &Thread, frame: &mut Frame, plan: &Plan) -> Dispatch {
    let _errno = plan.may_change_errno.then(Errno::keep);
    overrides::pre_call(thread, frame, plan);
    thread.note_look(note_kind::LOOKED_BEFORE);
    call_driver(thread, frame)
}

#[inline(always)]
fn call_driver(thread: &Thread, frame: &Frame) -> Dispatch {
    thread.enter_driver();
    Dispatch {
        target: driver::target(frame.index()),
        how: frame.shape.into(),
    }
}

/// A call inside another one goes to the driver unrecorded. It is noted when it returns if the
/// program makes it, and has not interrupted our own code.
fn pass_nested(thread: &Thread, frame: &mut Frame) -> Dispatch {
    if !thread.is_in_driver() || driver::has_code_at(frame.caller) {
        return pass(frame);
    }
    frame.activation = Activation::nested(thread);
    Dispatch {
        target: driver::target(frame.index()),
        how: frame.shape.into(),
    }
}

/// The call goes to the driver unrecorded.
fn pass(frame: &Frame) -> Dispatch {
    Dispatch {
        target: driver::target(frame.index()),
        how: NOT_RECORDED.into(),
    }
}
