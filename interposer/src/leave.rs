//! After the driver has returned: the leave record, and what else is to be done then.

use core::hint::cold_path;
use core::sync::atomic::Ordering;

use cutape_format::fixed::{LeftNumber, ValueForm};
use cutape_format::layout::{LeaveHead, SHORT_TICKS_END, VALUE_TICKS_END, field, record_kind};

use crate::call::{Frame, MEASURING, RECORDING, STATE};
use crate::plan::{Leaving, Output, Plan};
use crate::thread::Thread;
use crate::{clock, cost, errno, host_memory, overrides, pending, snapshot};

/// Called by every entry after the driver, unless `enter` said not to. Writes the leave record, in one go where it can be.
pub(crate) extern "C" fn leave(frame: &mut Frame) {
    if STATE.load(Ordering::Relaxed) != RECORDING {
        cold_path();
        return leave_otherwise(frame);
    }
    let ticks = clock::counter();
    let Some((state, plan)) = returned(frame) else {
        cold_path();
        return;
    };
    match leave_directly(state, frame, plan, ticks) {
        Left::Directly => state.leave(),
        Left::Pair => leave_pair(state, frame, plan, ticks),
        Left::ByAttribute => leave_by_attribute(state, frame, plan, ticks),
        Left::Not => leave_with_care(state, frame, plan, ticks),
    }
}

/// After the recording has stopped, while its cost is measured, or by another clock than the processor's.
#[cold]
extern "C" fn leave_otherwise(frame: &mut Frame) {
    let ticks = clock::ticks();
    if let Some((state, plan)) = returned(frame) {
        leave_with_care(state, frame, plan, ticks);
    }
}

/// Whose call has returned; `None` if the program has called the driver from within that call, or this is a child that was
/// forked from within it.
#[inline(always)]
fn returned(frame: &Frame) -> Option<(&'static Thread, &'static Plan)> {
    // SAFETY: set by `enter` on this thread, which is still there.
    let state = unsafe { &*frame.thread };
    // SAFETY: set by `enter`; plans stay.
    state
        .return_to(frame)
        .then(|| (state, unsafe { &*frame.plan }))
}

/// What `leave_directly` has done.
enum Left {
    /// The leave record is written.
    Directly,
    /// Nothing, and `leave_pair` may do it.
    Pair,
    /// Nothing, and `leave_by_attribute` may do it.
    ByAttribute,
    /// Nothing.
    Not,
}

/// Writes the leave record of nearly every call, unless it takes more than a few stores. What is usual is said to be, so that it
/// stands in one piece: between calls the program's own code fills the caches, and fewer lines and jumps are to be found anew.
#[inline(always)]
fn leave_directly(state: &Thread, frame: &Frame, plan: &Plan, ticks: u64) -> Left {
    if plan.asks_if_idle {
        cold_path();
        if !is_idle() {
            return Left::Not;
        }
    }
    if plan.leaving == Leaving::ByRoles {
        cold_path();
        return Left::Not;
    }
    let result = frame.result as i32;
    if result != 0 {
        cold_path();
        return left(state.put_in_room(|room| room.put_leave(frame.function, ticks, result)));
    }
    let spent = ticks.wrapping_sub(frame.entered);
    if spent >= VALUE_TICKS_END {
        cold_path();
        return Left::Not;
    }
    // No table of places to jump to: the first two are nearly all.
    if plan.leaving == Leaving::Value {
        let (value, form) = (plan.value, plan.value_form);
        return left(put_value(state, frame, value, form, spent));
    }
    if plan.leaving == Leaving::Result {
        return left(state.put_in_room(|room| room.put_short_leave(spent)));
    }
    cold_path();
    match plan.leaving {
        Leaving::Pair => Left::Pair,
        Leaving::ValueByAttribute => Left::ByAttribute,
        _ => Left::Not,
    }
}

#[inline(always)]
fn left(is_written: bool) -> Left {
    if is_written {
        return Left::Directly;
    }
    cold_path();
    Left::Not
}

/// Writes the leave record of a call that succeeded and left two numbers, in one go if it was asked for both.
#[inline(never)]
extern "C" fn leave_pair(state: &Thread, frame: &mut Frame, plan: &Plan, ticks: u64) {
    let [first, second, ..] = plan.outputs;
    let pair = [first, second].map(|output| {
        let address = frame.words[usize::from(output.position % 16)];
        (output, address)
    });
    if pair.iter().any(|&(_, address)| address == 0) {
        return leave_with_care(state, frame, plan, ticks);
    }
    let numbers = pair.map(|(output, address)| LeftNumber {
        parameter: output.position,
        bytes: output.bytes,
        number: snapshot::number_at(address, output.bytes),
    });
    if !state.put_in_room(|room| room.put_leave_pair(frame.function, ticks, numbers)) {
        return leave_with_care(state, frame, plan, ticks);
    }
    state.leave();
}

/// Writes the leave record of a call that succeeded within `VALUE_TICKS_END` and left the value of an attribute, in one go if that is
/// a number.
#[inline(never)]
extern "C" fn leave_by_attribute(state: &Thread, frame: &mut Frame, plan: &Plan, ticks: u64) {
    let Some(bytes) = plan.value_types.bytes(&frame.words) else {
        return leave_with_care(state, frame, plan, ticks);
    };
    let position = plan.value.position;
    let form = ValueForm::new(position, bytes == 4);
    let spent = ticks.wrapping_sub(frame.entered);
    if !put_value(state, frame, Output { position, bytes }, form, spent) {
        return leave_with_care(state, frame, plan, ticks);
    }
    state.leave();
}

/// Writes the leave record of a call that succeeded and left a number; false if it was not asked to, or there is no room.
#[inline(always)]
fn put_value(state: &Thread, frame: &Frame, value: Output, form: ValueForm, spent: u64) -> bool {
    let address = frame.words[usize::from(value.position % 16)];
    if address == 0 {
        cold_path();
        return false;
    }
    let number = snapshot::number_at(address, value.bytes);
    state.put_in_room(|room| room.put_leave_value(spent, form, number))
}

/// Writes the leave record where that may take more than a few stores.
#[inline(never)]
extern "C" fn leave_with_care(state: &Thread, frame: &mut Frame, plan: &Plan, ticks: u64) {
    let is_direct = plan.leaving != Leaving::ByRoles && (!plan.asks_if_idle || is_idle());
    if !(is_direct && put_leave(state, frame, plan, ticks)) {
        leave_by_roles(state, frame, plan, ticks);
    }
    state.attend();
    if STATE.load(Ordering::Relaxed) == MEASURING {
        cost::add(state, ticks, false);
    }
    state.leave();
}

/// Whether a wait proves nothing that anybody waits for.
fn is_idle() -> bool {
    !pending::any() && !host_memory::is_touched()
}

/// Writes the result and the outputs of a function that does nothing else; false if there is no room.
#[inline]
fn put_leave(state: &Thread, frame: &Frame, plan: &Plan, ticks: u64) -> bool {
    let result = frame.result as i32;
    let spent = ticks.wrapping_sub(frame.entered);
    if result == 0 && plan.output_count == 0 && spent < SHORT_TICKS_END {
        return state.write_once(|record| record.commit_short_leave(spent));
    }
    let value = match plan.leaving {
        Leaving::Value => Some(plan.value),
        Leaving::ValueByAttribute => plan.value_types.bytes(&frame.words).map(|bytes| Output {
            bytes,
            ..plan.value
        }),
        _ => None,
    };
    if let Some(output) = value
        && result == 0
        && spent < VALUE_TICKS_END
    {
        let address = frame.words[usize::from(output.position % 16)];
        if address != 0 {
            let number = snapshot::number_at(address, output.bytes);
            return state.write_once(|record| {
                record.commit_leave_value(spent, output.position, number, output.bytes)
            });
        }
    }
    if plan.leaving == Leaving::ValueByAttribute && result == 0 {
        return false;
    }
    state.write_once(|mut record| {
        record.put_leave(LeaveHead { ticks, result })?;
        let count = if result == 0 { plan.output_count } else { 0 };
        for output in plan.outputs.get(..usize::from(count))? {
            let address = *frame.words.get(usize::from(output.position))?;
            if address != 0 {
                snapshot::written(
                    &mut record,
                    output.position,
                    field::POINTEE,
                    address,
                    output.bytes.into(),
                )?;
            }
        }
        record.commit(record_kind::LEAVE, frame.function)
    })
}

/// Does what a function's roles and family ask for when the driver has returned, and writes the `LEAVE`.
#[inline(never)]
fn leave_by_roles(state: &Thread, frame: &mut Frame, plan: &Plan, ticks: u64) {
    let function = frame.function as usize;
    let _errno = plan.disturbs.then(errno::Errno::keep);
    let result = frame.result as i32;
    overrides::leaving(state, frame, plan);
    if result == 0 && plan.waits {
        pending::completed(state, frame, function);
        host_memory::waited(state, frame);
    }
    state.write(record_kind::LEAVE, function as u16, |record| {
        record.put_leave(LeaveHead { ticks, result })?;
        if result == 0 && plan.looks_after {
            snapshot::after(record, frame, function)?;
        }
        overrides::after(record, frame, plan)
    });
    overrides::left(frame, plan);
}
