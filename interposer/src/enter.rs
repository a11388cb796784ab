//! Before the driver is entered: the enter record, and what else is to be done then.

use core::ffi::c_void;
use core::hint::cold_path;
use core::sync::atomic::Ordering;

use cutape_format::layout::{EnterHead, RECORD_HEAD_LENGTH, record_kind};

use crate::arguments::{
    gather, put_arguments, put_launch_in_room, put_plain, put_plain_in_room, put_short,
    put_short_in_room,
};
use crate::call::{Frame, MEASURING, RECORDING, STATE, started};
use crate::layouts::Layout;
use crate::overrides::Handling;
use crate::overrides::launch::{self, NewSnapshot};
use crate::plan::{self, Acting, Entering, Plan};
use crate::thread::{self, Thread};
use crate::{clock, cost, driver, entry, errno, host_memory, overrides, snapshot};

/// What the entry is to do.
#[repr(C)]
pub(crate) struct Entered {
    /// Where to go.
    target: *const c_void,
    /// The shape of the function, if the call is recorded, otherwise `entry::PASSED`.
    how: u64,
}

/// Called by every entry before the driver. The frame is the entry's; `stack` is where arguments are that have no register.
/// Writes the enter record, in one go where it can be.
pub(crate) extern "C" fn enter(frame: &mut Frame, stack: *const u64) -> Entered {
    let Some(known) = thread::known_directly() else {
        cold_path();
        return enter_by_descriptor(frame, stack);
    };
    enter_on(known, frame, stack)
}

/// The same where a thread's state is not at the same distance for all.
#[inline(never)]
extern "C" fn enter_by_descriptor(frame: &mut Frame, stack: *const u64) -> Entered {
    enter_on(thread::known(), frame, stack)
}

/// The same with the thread's state at hand, which is NULL before its first call.
#[inline(always)]
fn enter_on(known: *const Thread, frame: &mut Frame, stack: *const u64) -> Entered {
    // SAFETY: NULL, or the state, which lives as long as its thread, which is this one.
    let Some(state) = (unsafe { known.as_ref() }) else {
        cold_path();
        return enter_otherwise(frame, stack);
    };
    #[cfg(feature = "gum")]
    if crate::hook::is_drivers_own(frame.caller) {
        return pass(frame);
    }
    if !state.is_at_rest() {
        cold_path();
        return enter_otherwise(frame, stack);
    }
    if STATE.load(Ordering::Acquire) != RECORDING {
        cold_path();
        return enter_otherwise(frame, stack);
    }
    let plan = plan::of(frame.index());
    state.enter(frame);
    frame.plan = plan;
    if plan.entering != Entering::Plain {
        cold_path();
        return enter_longer(state, frame, plan, stack);
    }
    if !state.put_in_room(|room| put_plain_in_room(room, frame, plan, clock::counter)) {
        return enter_with_care(state, frame, plan, stack);
    }
    state.calls.set(state.calls.get() + 1);
    state.look_ahead();
    proceed(state, frame, plan)
}

/// The rest of `enter` for a function that has many arguments, or of which more is to be looked at.
#[inline(never)]
extern "C" fn enter_longer(
    state: &Thread,
    frame: &mut Frame,
    plan: &Plan,
    stack: *const u64,
) -> Entered {
    match plan.entering {
        Entering::Launch => enter_launch(state, frame, plan, stack),
        Entering::Short => enter_short(state, frame, plan, stack),
        Entering::Plain | Entering::ByRoles => enter_with_care(state, frame, plan, stack),
    }
}

/// The rest of `enter` for `cuLaunchKernel`.
#[inline(never)]
extern "C" fn enter_launch(
    state: &Thread,
    frame: &mut Frame,
    plan: &Plan,
    stack: *const u64,
) -> Entered {
    frame.stack = stack;
    for (index, word) in frame.words[6..11].iter_mut().enumerate() {
        // One by one, as the caller has just stored them: loaded in wider pieces, they would take long.
        // SAFETY: the prototype has five arguments more than there are registers.
        *word = unsafe { stack.add(index).read_volatile() };
    }
    if !state.put_in_room(|room| put_launch_in_room(room, frame, plan, clock::counter)) {
        return enter_with_care(state, frame, plan, stack);
    }
    state.calls.set(state.calls.get() + 1);
    state.look_ahead();
    launch(state, frame, plan)
}

/// The rest of `enter` for a function with many arguments.
#[inline(never)]
extern "C" fn enter_short(
    state: &Thread,
    frame: &mut Frame,
    plan: &Plan,
    stack: *const u64,
) -> Entered {
    gather(frame, plan, stack);
    if !state.put_in_room(|room| put_short_in_room(room, frame, plan, clock::counter)) {
        return enter_with_care(state, frame, plan, stack);
    }
    state.calls.set(state.calls.get() + 1);
    state.look_ahead();
    proceed(state, frame, plan)
}

/// A thread's first call, a call within another one, before the recording has begun, after it has stopped, while its cost is measured, or by another
/// clock than the processor's.
#[cold]
extern "C" fn enter_otherwise(frame: &mut Frame, stack: *const u64) -> Entered {
    // SAFETY: the state lives as long as its thread, which is this one.
    let state = unsafe { &*thread::current() };
    #[cfg(feature = "gum")]
    if crate::hook::is_drivers_own(frame.caller) {
        return pass(frame);
    }
    if state.is_inside(core::ptr::from_ref(frame).addr()) || !started(state) {
        return pass(frame);
    }
    let began = clock::ticks();
    let plan = plan::of(frame.index());
    state.enter(frame);
    frame.plan = plan;
    let entered = enter_with_care(state, frame, plan, stack);
    if STATE.load(Ordering::Relaxed) == MEASURING {
        cost::add(state, began, true);
    }
    entered
}

/// Writes the enter record where that may take more than a few stores.
#[inline(never)]
extern "C" fn enter_with_care(
    state: &Thread,
    frame: &mut Frame,
    plan: &Plan,
    stack: *const u64,
) -> Entered {
    frame.kept = [0; 3];
    gather(frame, plan, stack);
    let written = match plan.entering {
        Entering::Plain => state.write_once(|record| put_plain(record, frame, plan)),
        Entering::Short | Entering::Launch => {
            state.write_once(|record| put_short(record, frame, plan))
        }
        Entering::ByRoles => false,
    };
    if !written && !enter_by_roles(state, frame, plan) {
        state.leave();
        return pass(frame);
    }
    // Before the notes: one that empties the stage says which call is the first to be entered after it.
    state.calls.set(state.calls.get() + 1);
    state.attend();
    state.look_ahead();
    proceed(state, frame, plan)
}

/// Does what is to be done between the enter record and the driver.
#[inline(always)]
fn proceed(state: &Thread, frame: &mut Frame, plan: &Plan) -> Entered {
    if plan.acting != Acting::Never {
        cold_path();
        return proceed_further(state, frame, plan);
    }
    pass_on(state, frame)
}

/// The same where there is something to be done.
#[inline(never)]
extern "C" fn proceed_further(state: &Thread, frame: &mut Frame, plan: &Plan) -> Entered {
    match plan.acting {
        Acting::OnOperands if host_memory::any() => act_on_operands(state, frame, plan),
        Acting::Never | Acting::OnOperands => pass_on(state, frame),
        Acting::OnLaunch => launch(state, frame, plan),
        Acting::Always => act(state, frame, plan),
    }
}

/// The same for a launch.
#[inline(never)]
extern "C" fn launch(state: &Thread, frame: &mut Frame, plan: &Plan) -> Entered {
    let Handling::Launch { has_extra } = plan.handling else {
        return launch_ex(state, frame, plan);
    };
    let Some(layout) = launch::usual_layout(frame, has_extra) else {
        return act(state, frame, plan);
    };
    if !layout.is_of_words() {
        return launch_of_more(state, frame, plan, layout);
    }
    let captured = launch::capture_directly::<true>(state, frame, layout);
    launched(state, frame, plan, captured)
}

/// The same for a launch whose parameters are more than few words.
#[inline(never)]
extern "C" fn launch_of_more(
    state: &Thread,
    frame: &mut Frame,
    plan: &Plan,
    layout: &Layout,
) -> Entered {
    let captured = launch::capture_directly::<false>(state, frame, layout);
    launched(state, frame, plan, captured)
}

/// The same for a launch by `cuLaunchKernelEx`.
#[inline(never)]
extern "C" fn launch_ex(state: &Thread, frame: &mut Frame, plan: &Plan) -> Entered {
    match launch::capture_ex_directly::<true>(state, frame) {
        None => launch_ex_of_more(state, frame, plan),
        captured => launched(state, frame, plan, captured),
    }
}

/// The same for one whose parameters are more than few words.
#[inline(never)]
extern "C" fn launch_ex_of_more(state: &Thread, frame: &mut Frame, plan: &Plan) -> Entered {
    let captured = launch::capture_ex_directly::<false>(state, frame);
    launched(state, frame, plan, captured)
}

/// What is left to be done for a launch when its parameters have been captured, if they have been.
#[inline(always)]
fn launched(
    state: &Thread,
    frame: &mut Frame,
    plan: &Plan,
    captured: Option<NewSnapshot>,
) -> Entered {
    match captured {
        Some(_) if !host_memory::any() => pass_on(state, frame),
        Some(captured) => look(state, frame, plan, captured),
        None => act(state, frame, plan),
    }
}

/// Looks at host memory for a launch whose parameters have been captured.
#[inline(never)]
extern "C" fn look(
    state: &Thread,
    frame: &mut Frame,
    plan: &Plan,
    captured: NewSnapshot,
) -> Entered {
    launch::look(state, frame, plan.handling, captured);
    pass_on(state, frame)
}

/// The same for a function that does something to memory, where there is host memory that the device reaches.
#[inline(never)]
extern "C" fn act_on_operands(state: &Thread, frame: &mut Frame, plan: &Plan) -> Entered {
    let (mut rest, words) = (plan.operands, &frame.words);
    let operands = core::iter::from_fn(move || {
        let at = rest.trailing_zeros() as usize;
        rest &= rest.wrapping_sub(1);
        words.get(at).copied()
    });
    if host_memory::may_reach(operands) {
        return act(state, frame, plan);
    }
    pass_on(state, frame)
}

/// The same where it is more.
#[inline(never)]
extern "C" fn act(state: &Thread, frame: &mut Frame, plan: &Plan) -> Entered {
    let _errno = plan.disturbs.then(errno::Errno::keep);
    overrides::entered(state, frame, plan);
    pass_on(state, frame)
}

/// Lets the driver have the call.
#[inline(always)]
fn pass_on(state: &Thread, frame: &Frame) -> Entered {
    state.pass_on();
    Entered {
        target: driver::target(frame.index()),
        how: frame.shape.into(),
    }
}

/// The call goes to the driver unseen.
fn pass(frame: &Frame) -> Entered {
    Entered {
        target: driver::target(frame.index()),
        how: entry::PASSED.into(),
    }
}

/// Writes an `ENTER` with what the function's parameters lead to. False if nothing could be written; then recording has stopped.
#[inline(never)]
fn enter_by_roles(state: &Thread, frame: &mut Frame, plan: &Plan) -> bool {
    let function = frame.function as usize;
    let _errno = plan.disturbs.then(errno::Errno::keep);
    let mut entered = 0;
    let written = state.write(record_kind::ENTER, function as u16, |record| {
        record.put_enter(EnterHead {
            ticks: 0,
            caller: frame.caller,
        })?;
        put_arguments(record, frame, plan)?;
        if plan.looks_before {
            snapshot::before(record, frame, function)?;
        }
        overrides::before(record, frame, plan)?;
        // The clock last: looking at memory is not the driver's time.
        entered = clock::ticks();
        record.patch(RECORD_HEAD_LENGTH, entered)
    });
    frame.entered = entered;
    written
}
