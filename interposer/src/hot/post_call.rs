//! After the driver: writes the leave record, and does what else a function needs then.

use core::hint::cold_path;
use core::sync::atomic::Ordering;

use cutape_format::layout::{
    LeaveHead, NestedCallNote, SHORT_TICKS_END, VALUE_TICKS_END, note_kind, record_kind,
};
use cutape_format::slot::{OutNumber, Slot, ValueForm};

use super::frame::Frame;
use super::plan::{self, LeaveForm, OrderForm, Output, Plan};
use super::pre_call::record_failed;
use super::recording::{MEASURING, RECORDING, STATE};
use super::thread::Thread;
use super::{clock, cost};
use crate::process::errno::Errno;
use crate::state::followed_work;
use crate::{async_readback, device_memory, host_memory, overrides, snapshot, stack};

/// CUDA_ERROR_NOT_READY: a poll that has not succeeded, and no failure.
const NOT_READY: i32 = 600;

/// Called by every entry after the driver, unless `pre_call` returned `NOT_RECORDED`.
pub(crate) extern "C" fn post_call(frame: &mut Frame) {
    if STATE.load(Ordering::Relaxed) != RECORDING {
        cold_path();
        return post_call_slowly(frame);
    }
    let Some((thread, plan)) = returned(frame) else {
        cold_path();
        return other_returned(frame);
    };
    let ticks = clock::counter();
    match leave_fast::<false>(thread, frame, plan, ticks) {
        LeaveOutcome::Written => thread.end_call(),
        LeaveOutcome::Pair => leave_pair(thread, frame, plan, ticks),
        LeaveOutcome::ByAttribute => leave_by_attribute(thread, frame, plan, ticks),
        LeaveOutcome::Slow => leave_slowly(thread, frame, plan, ticks),
    }
}

/// While the state is not `RECORDING`.
#[cold]
extern "C" fn post_call_slowly(frame: &mut Frame) {
    let ticks = clock::ticks();
    let Some((thread, plan)) = returned(frame) else {
        return other_returned(frame);
    };
    stack::returned(thread, frame);
    leave_slowly(thread, frame, plan, ticks);
}

/// A call has returned that is not the one in progress: it is left out, or the program has made it
/// inside that one.
#[inline(never)]
extern "C" fn other_returned(frame: &mut Frame) {
    let thread = frame.thread();
    if frame.activation.is_left_out() {
        if device_memory::takes_snapshots() {
            device_memory::leave(thread, plan::of(frame.index()));
        }
        match frame.result as i32 {
            0 | NOT_READY => thread.leave_out(),
            _ => record_failed(thread, frame),
        }
    } else if frame.activation.is_nested() {
        thread.note_nested(NestedCallNote {
            caller: frame.caller,
            result: frame.result as i32,
            function: frame.function,
        });
    }
}

/// Thread and plan of the call that has returned; `None` if the program has called the driver from
/// within that call, or this is a child that was forked from within it.
#[inline(always)]
fn returned(frame: &Frame) -> Option<(&'static Thread, &'static Plan)> {
    let thread = frame.thread();
    // SAFETY: `pre_call` has set the plan, and plans are never freed.
    thread
        .leave_driver(&frame.activation)
        .then(|| (thread, unsafe { &*frame.plan }))
}

/// What is left to do after `leave_fast`.
enum LeaveOutcome {
    /// Nothing: the leave record is written.
    Written,
    /// `leave_pair` may write it.
    Pair,
    /// `leave_by_attribute` may write it.
    ByAttribute,
    /// It takes more: a generic record, or a free slot.
    Slow,
}

impl LeaveOutcome {
    #[inline(always)]
    fn of(is_written: bool) -> Self {
        if is_written {
            return Self::Written;
        }
        cold_path();
        Self::Slow
    }
}

/// Writes a record of fixed form in a free slot; if `MAKES_ROOM`, makes one.
#[inline(always)]
fn put<const MAKES_ROOM: bool>(thread: &Thread, put: impl FnOnce(&mut Slot) -> usize) -> bool {
    if MAKES_ROOM {
        thread.put_in_new_slot(put)
    } else {
        thread.put_in_slot(put)
    }
}

/// Writes the leave record of nearly every call: a result, and perhaps one number.
///
/// `cold_path` marks everything else, so that these instructions lie in one piece: between two
/// calls, the program's own code fills the instruction cache.
#[inline(always)]
fn leave_fast<const MAKES_ROOM: bool>(
    thread: &Thread,
    frame: &Frame,
    plan: &Plan,
    ticks: u64,
) -> LeaveOutcome {
    if plan.order != OrderForm::Nothing {
        cold_path();
        let is_seen_to = MAKES_ROOM && plan.order == OrderForm::Enqueues;
        if !is_seen_to && followed_work::any() {
            return LeaveOutcome::Slow;
        }
    }
    if plan.leave == LeaveForm::Generic {
        cold_path();
        return LeaveOutcome::Slow;
    }
    let result = frame.result as i32;
    if result != 0 {
        cold_path();
        return LeaveOutcome::of(put::<MAKES_ROOM>(thread, |slot| {
            slot.put_leave(frame.function, ticks, result)
        }));
    }
    let spent = ticks.wrapping_sub(frame.start);
    if spent >= VALUE_TICKS_END {
        cold_path();
        return if MAKES_ROOM {
            leave_long(thread, frame, plan, ticks)
        } else {
            LeaveOutcome::Slow
        };
    }
    // Comparisons instead of a jump table: the first two forms are nearly all.
    if plan.leave == LeaveForm::Value {
        return LeaveOutcome::of(put_value::<MAKES_ROOM>(
            thread,
            frame,
            plan.value,
            plan.value_form,
            spent,
        ));
    }
    if plan.leave == LeaveForm::Result {
        return LeaveOutcome::of(put::<MAKES_ROOM>(thread, |slot| {
            slot.put_short_leave(spent)
        }));
    }
    cold_path();
    match plan.leave {
        LeaveForm::Pair => LeaveOutcome::Pair,
        LeaveForm::ValueByAttribute => LeaveOutcome::ByAttribute,
        _ => LeaveOutcome::Slow,
    }
}

/// The same after a call that took so long that its ticks do not fit a record with a number.
fn leave_long(thread: &Thread, frame: &Frame, plan: &Plan, ticks: u64) -> LeaveOutcome {
    let spent = ticks.wrapping_sub(frame.start);
    match plan.leave {
        LeaveForm::Result => LeaveOutcome::of(thread.put_in_new_slot(|slot| {
            if spent < SHORT_TICKS_END {
                slot.put_short_leave(spent)
            } else {
                slot.put_leave(frame.function, ticks, 0)
            }
        })),
        LeaveForm::Pair => LeaveOutcome::Pair,
        _ => LeaveOutcome::Slow,
    }
}

/// Writes a `LEAVE_VALUE`; false if the caller passed NULL for the number, or no slot is free.
#[inline(always)]
fn put_value<const MAKES_ROOM: bool>(
    thread: &Thread,
    frame: &Frame,
    value: Output,
    form: ValueForm,
    spent: u64,
) -> bool {
    let address = frame.word(value.position);
    if address == 0 {
        cold_path();
        return false;
    }
    let number = snapshot::number_at(address, value.bytes);
    put::<MAKES_ROOM>(thread, |slot| slot.put_leave_value(spent, form, number))
}

/// Writes a `LEAVE` with two numbers; false if one of the addresses is NULL, or no slot is free.
#[inline(always)]
fn put_pair<const MAKES_ROOM: bool>(
    thread: &Thread,
    frame: &Frame,
    plan: &Plan,
    ticks: u64,
) -> bool {
    let pair = plan
        .pair
        .map(|output| (output, frame.word(output.position)));
    if pair.iter().any(|&(_, address)| address == 0) {
        return false;
    }
    let numbers = pair.map(|(output, address)| OutNumber {
        parameter: output.position,
        bytes: output.bytes,
        number: snapshot::number_at(address, output.bytes),
    });
    put::<MAKES_ROOM>(thread, |slot| {
        slot.put_leave_pair(frame.function, ticks, numbers)
    })
}

/// Writes a `LEAVE_VALUE` with the value of an attribute; false if that is not a number of 4 or 8
/// bytes, or no slot is free.
#[inline(always)]
fn put_attribute<const MAKES_ROOM: bool>(
    thread: &Thread,
    frame: &Frame,
    plan: &Plan,
    ticks: u64,
) -> bool {
    let Some(bytes) = plan.attribute_bytes.of(&frame.words) else {
        return false;
    };
    let position = plan.value.position;
    let form = ValueForm::new(position, bytes == 4);
    let spent = ticks.wrapping_sub(frame.start);
    put_value::<MAKES_ROOM>(thread, frame, Output { position, bytes }, form, spent)
}

#[inline(never)]
extern "C" fn leave_pair(thread: &Thread, frame: &mut Frame, plan: &Plan, ticks: u64) {
    if !put_pair::<false>(thread, frame, plan, ticks) {
        return leave_slowly(thread, frame, plan, ticks);
    }
    thread.end_call();
}

#[inline(never)]
extern "C" fn leave_by_attribute(thread: &Thread, frame: &mut Frame, plan: &Plan, ticks: u64) {
    if !put_attribute::<false>(thread, frame, plan, ticks) {
        return leave_slowly(thread, frame, plan, ticks);
    }
    thread.end_call();
}

/// Writes the leave record, making room for it, or a generic one, after what work in flight asks for.
#[inline(never)]
extern "C" fn leave_slowly(thread: &Thread, frame: &mut Frame, plan: &Plan, ticks: u64) {
    if plan.order == OrderForm::Enqueues && followed_work::any() {
        followed_work::enqueued_beside(thread, frame);
    }
    let is_written = match leave_fast::<true>(thread, frame, plan, ticks) {
        LeaveOutcome::Written => true,
        LeaveOutcome::Pair => put_pair::<true>(thread, frame, plan, ticks),
        LeaveOutcome::ByAttribute => put_attribute::<true>(thread, frame, plan, ticks),
        LeaveOutcome::Slow => false,
    };
    if !is_written {
        leave_generic(thread, frame, plan, ticks);
    }
    thread.attend(host_memory::enqueued);
    if STATE.load(Ordering::Relaxed) == MEASURING {
        cost::add(&thread.cost, ticks, false);
    }
    thread.end_call();
}

/// Does what the function's roles and override need, and writes a `LEAVE` with snapshots.
#[inline(never)]
fn leave_generic(thread: &Thread, frame: &mut Frame, plan: &Plan, ticks: u64) {
    let _errno = plan.may_change_errno.then(Errno::keep);
    let result = frame.result as i32;
    overrides::post_call(thread, frame, plan);
    if result == 0 && plan.order == OrderForm::Tells && followed_work::any() {
        let _errno = Errno::keep();
        if let Some(entered) = thread.take_begun() {
            // A call without a stream may wait for its own work, which then counts from its entry.
            let returned = match frame.description().stream {
                None => frame.start,
                Some(_) => clock::ticks(),
            };
            host_memory::enqueued(thread, entered, returned);
        }
        followed_work::observe(thread, frame);
        if plan.waits {
            async_readback::complete(thread);
            host_memory::waited(thread);
        }
    }
    // After a wait, or a copy that turned out to be complete.
    thread.note_look(note_kind::LOOKED);
    thread.write(record_kind::LEAVE, frame.function, |draft| {
        draft.put_encoded(LeaveHead { ticks, result })?;
        if result == 0 && plan.snapshots_after {
            snapshot::put_post_call(draft, frame, plan)?;
        }
        overrides::put_post_call(draft, frame, plan)
    });
    overrides::finish_call(frame, plan);
}
