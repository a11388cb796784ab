//! Around every call: what is written before the driver is entered and after it has returned.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use cutape_format::Payloads;
use cutape_format::fixed::{Room, ValueForm};
use cutape_format::layout::{
    EnterHead, LeaveHead, RECORD_HEAD_LENGTH, SHORT_TICKS_END, VALUE_TICKS_END, field, record_kind,
};
use cutape_format::write::Record;
use cutape_registry::FUNCTIONS;

use crate::overrides::Handling;
use crate::overrides::launch::{self, Captured};
use crate::plan::{self, Acting, Entering, Leaving, MOST_PARAMETERS, Output, Place, Plan};
use crate::settings::Settings;
use crate::thread::{self, Thread};
use crate::{
    capture, clock, cost, driver, entry, errno, fork, host_memory, identity, layouts, log, maps,
    overrides, pending, stages, trace_file,
};

/// A call in progress, on its thread's stack, where its entry has made it.
#[repr(C, align(16))]
pub(crate) struct Frame {
    /// The argument registers, if the function's entry says `entry::SCATTERED`: only then `words` is not the same.
    pub(crate) vectors: [[u64; 2]; 8],
    pub(crate) registers: [u64; 6],
    /// What a function's override keeps from before the call to after it.
    pub(crate) kept: [u64; 3],
    /// The arguments that are not in registers; set where there are any.
    pub(crate) stack: *const u64,
    pub(crate) thread: *const Thread,
    pub(crate) plan: *const Plan,
    /// By which the thread knows that this is still the frame of its call in progress.
    pub(crate) mark: u64,
    /// Ticks when it was entered, as its record says.
    pub(crate) entered: u64,
    /// The arguments in the order of the prototype; the entry puts the integer registers first.
    pub(crate) words: [u64; MOST_PARAMETERS],
    /// What the driver returned.
    pub(crate) result: u64,
    /// A position in `FUNCTIONS`; see `index`.
    pub(crate) function: u16,
    /// `entry::shape` of the function.
    pub(crate) shape: u16,
    /// The caller's rbp, which the entry pushes, and where the caller goes on.
    pub(crate) base: u64,
    pub(crate) caller: u64,
}

impl Frame {
    /// The function's position in `FUNCTIONS`.
    #[inline(always)]
    pub(crate) fn index(&self) -> usize {
        let index = usize::from(self.function);
        // SAFETY: entries put their function's own number there, and nobody else makes frames, except tests, which do so, too.
        unsafe { core::hint::assert_unchecked(index < FUNCTIONS.len()) };
        index
    }
}

/// What the entry is to do.
#[repr(C)]
pub(crate) struct Entered {
    /// Where to go.
    target: *const c_void,
    /// The shape of the function, if the call is recorded, otherwise `entry::PASSED`.
    how: u64,
}

const NOT_STARTED: u8 = 0;
const STARTING: u8 = 1;
const RECORDING: u8 = 2;
/// The calls go to the driver unseen.
const PASSING: u8 = 3;
/// As `RECORDING`, and what that costs is measured.
const MEASURING: u8 = 4;
/// As `RECORDING`, where the clock is not the processor's counter.
const COUNTING: u8 = 5;

static STATE: AtomicU8 = AtomicU8::new(NOT_STARTED);
static THREADS: AtomicU32 = AtomicU32::new(0);
static PAYLOADS: AtomicU8 = AtomicU8::new(Payloads::All as u8);
static OUTPUTS: AtomicU8 = AtomicU8::new(Payloads::All as u8);

/// What is kept of bytes that go to devices, and of bytes that come back.
pub(crate) fn payload_policy() -> (Payloads, Payloads) {
    let policy = |kept: &AtomicU8| {
        let kept = usize::from(kept.load(Ordering::Relaxed));
        Payloads::EVERY.get(kept).copied().unwrap_or(Payloads::None)
    };
    (policy(&PAYLOADS), policy(&OUTPUTS))
}

/// The ordinal of a thread that makes its first call.
pub(crate) fn next_thread() -> u32 {
    THREADS.fetch_add(1, Ordering::Relaxed)
}

/// Whether this process records.
pub(crate) fn is_recording() -> bool {
    records(STATE.load(Ordering::Relaxed))
}

fn records(state: u8) -> bool {
    matches!(state, RECORDING | MEASURING | COUNTING)
}

/// Stops recording in this process; true for the one caller that did it.
pub(crate) fn stop() -> bool {
    let ends = |state| records(state).then_some(PASSING);
    STATE
        .fetch_update(Ordering::AcqRel, Ordering::Relaxed, ends)
        .is_ok()
}

/// The process ends in order.
pub(crate) fn at_exit() {
    let state = STATE.load(Ordering::Acquire);
    if records(state) {
        let _errno = errno::Errno::keep();
        if state == MEASURING {
            identity::write_cost(cost::total());
        }
        maps::write_if_changed();
    }
}

/// In a forked child: nothing has been recorded here yet.
pub(crate) fn forget() {
    // Also if another thread was about to start the recording: that thread is not here.
    if STATE.load(Ordering::Relaxed) != PASSING {
        STATE.store(NOT_STARTED, Ordering::Relaxed);
    }
    THREADS.store(0, Ordering::Relaxed);
}

/// Called by every entry before the driver. The frame is the entry's; `stack` is where arguments are that have no register.
/// Writes the enter record, in one go where it can be.
pub(crate) extern "C" fn enter(frame: &mut Frame, stack: *const u64) -> Entered {
    // SAFETY: NULL, or the state, which lives as long as its thread, which is this one.
    let Some(state) = (unsafe { thread::known().as_ref() }) else {
        return enter_otherwise(frame, stack);
    };
    #[cfg(feature = "gum")]
    if crate::hook::is_drivers_own(frame.caller) {
        return pass(frame);
    }
    if !state.is_at_rest() {
        return enter_otherwise(frame, stack);
    }
    if STATE.load(Ordering::Acquire) != RECORDING {
        return enter_otherwise(frame, stack);
    }
    let plan = plan::of(frame.index());
    state.enter(frame);
    frame.plan = plan;
    if plan.entering != Entering::Plain {
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
    if plan.acting == Acting::Never {
        return pass_on(state, frame);
    }
    proceed_further(state, frame, plan)
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
    let captured = match plan.handling {
        Handling::Launch { has_extra } => launch::capture_directly::<true>(state, frame, has_extra),
        _ => return launch_ex(state, frame, plan),
    };
    match captured {
        Some(_) if !host_memory::any() => pass_on(state, frame),
        Some(captured) => look(state, frame, plan, captured),
        None => launch_of_more(state, frame, plan),
    }
}

/// The same for a launch by `cuLaunchKernelEx`.
#[inline(never)]
extern "C" fn launch_ex(state: &Thread, frame: &mut Frame, plan: &Plan) -> Entered {
    match launch::capture_ex_directly::<true>(state, frame) {
        Some(_) if !host_memory::any() => pass_on(state, frame),
        Some(captured) => look(state, frame, plan, captured),
        None => launch_of_more(state, frame, plan),
    }
}

/// The same for a launch whose parameters are more than few words.
#[inline(never)]
extern "C" fn launch_of_more(state: &Thread, frame: &mut Frame, plan: &Plan) -> Entered {
    let captured = match plan.handling {
        Handling::Launch { has_extra } => {
            launch::capture_directly::<false>(state, frame, has_extra)
        }
        _ => launch::capture_ex_directly::<false>(state, frame),
    };
    match captured {
        Some(_) if !host_memory::any() => pass_on(state, frame),
        Some(captured) => look(state, frame, plan, captured),
        None => act(state, frame, plan),
    }
}

/// Looks at host memory for a launch whose parameters have been captured.
#[inline(never)]
extern "C" fn look(state: &Thread, frame: &mut Frame, plan: &Plan, captured: Captured) -> Entered {
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

/// Writes an `ENTER` without captures, by its form.
#[inline(always)]
fn put_plain_in_room(
    room: &mut Room,
    frame: &mut Frame,
    plan: &Plan,
    clock: impl FnOnce() -> u64,
) -> usize {
    let words = frame.words.first_chunk().unwrap_or(&[0; _]);
    let (ticks, length) = room.put_enter(&plan.form, frame.caller, words, clock);
    frame.entered = ticks;
    length
}

/// Writes an `ENTER_SHORT`, by its form.
#[inline(always)]
fn put_short_in_room(
    room: &mut Room,
    frame: &mut Frame,
    plan: &Plan,
    clock: impl FnOnce() -> u64,
) -> usize {
    frame.entered = clock();
    room.put_short_enter(
        plan.short_form,
        frame.function,
        frame.entered.wrapping_sub(trace_file::start_ticks()),
        frame.caller,
        &frame.words,
        &plan.masks,
    )
}

/// Writes the `ENTER_SHORT` of a `cuLaunchKernel`.
#[inline(always)]
fn put_launch_in_room(
    room: &mut Room,
    frame: &mut Frame,
    plan: &Plan,
    clock: impl FnOnce() -> u64,
) -> usize {
    let ticks = clock();
    frame.entered = ticks;
    let since = ticks.wrapping_sub(trace_file::start_ticks());
    let [f, a, b, c, d, e, g, h, stream, parameters, extra, ..] = frame.words;
    let [a, b, c, d, e, g, h] = [a, b, c, d, e, g, h].map(|word| u64::from(word as u32));
    let arguments = [f, a, b, c, d, e, g, h, stream, parameters, extra];
    room.put_short_enter_of_small(frame.function, since, frame.caller, &arguments)
        .unwrap_or_else(|| put_short_in_room(room, frame, plan, || ticks))
}

/// Writes an `ENTER` without captures.
#[inline]
fn put_plain(mut record: Record<'_>, frame: &mut Frame, plan: &Plan) -> Option<usize> {
    record.put_enter(EnterHead {
        ticks: 0,
        caller: frame.caller,
    })?;
    let count = usize::from(plan.count);
    record.put_words(frame.words.get(..count)?, plan.widths.get(..count)?)?;
    // The clock last: what is done here is not the driver's time.
    frame.entered = clock::ticks();
    record.patch(RECORD_HEAD_LENGTH, frame.entered)?;
    record.commit(record_kind::ENTER, frame.function)
}

/// Writes an `ENTER_SHORT`.
#[inline]
fn put_short(mut record: Record<'_>, frame: &mut Frame, plan: &Plan) -> Option<usize> {
    let count = usize::from(plan.count);
    let words = frame
        .words
        .get(..count)?
        .iter()
        .zip(plan.masks.get(..count)?);
    frame.entered = clock::ticks();
    let since = frame.entered.wrapping_sub(trace_file::start_ticks());
    record.put_short_enter(since, frame.caller, words.map(|(word, mask)| word & mask))?;
    record.commit(record_kind::ENTER_SHORT, frame.function)
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
            capture::before(record, frame, function)?;
        }
        overrides::before(record, frame, plan)?;
        // The clock last: looking at memory is not the driver's time.
        entered = clock::ticks();
        record.patch(RECORD_HEAD_LENGTH, entered)
    });
    frame.entered = entered;
    written
}

/// Called by every entry after the driver, unless `enter` said not to. Writes the leave record, in one go where it can be.
pub(crate) extern "C" fn leave(frame: &mut Frame) {
    if STATE.load(Ordering::Relaxed) != RECORDING {
        return leave_otherwise(frame);
    }
    let ticks = clock::counter();
    let Some((state, plan)) = returned(frame) else {
        return;
    };
    match leave_directly(state, frame, plan, ticks) {
        Left::Directly => state.leave(),
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
    /// Nothing, and `leave_by_attribute` may do it.
    ByAttribute,
    /// Nothing.
    Not,
}

/// Writes the leave record of nearly every call, unless it takes more than a few stores.
#[inline(always)]
fn leave_directly(state: &Thread, frame: &Frame, plan: &Plan, ticks: u64) -> Left {
    if plan.leaving == Leaving::ByRoles || plan.asks_if_idle && !is_idle() {
        return Left::Not;
    }
    let left = |is_written| {
        if is_written {
            Left::Directly
        } else {
            Left::Not
        }
    };
    let result = frame.result as i32;
    if result != 0 {
        return left(state.put_in_room(|room| room.put_leave(frame.function, ticks, result)));
    }
    let spent = ticks.wrapping_sub(frame.entered);
    if spent >= VALUE_TICKS_END {
        return Left::Not;
    }
    // No table of places to jump to: the first two are nearly all.
    if plan.leaving == Leaving::Result {
        return left(state.put_in_room(|room| room.put_short_leave(spent)));
    }
    if plan.leaving == Leaving::Value {
        let (value, form) = (plan.value, plan.value_form);
        return left(put_value(state, frame, value, form, spent));
    }
    if plan.leaving == Leaving::ValueByAttribute {
        return Left::ByAttribute;
    }
    Left::Not
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
        return false;
    }
    let number = capture::number_at(address, value.bytes);
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
            let number = capture::number_at(address, output.bytes);
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
                capture::written(
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
            capture::after(record, frame, function)?;
        }
        overrides::after(record, frame, plan)
    });
    overrides::left(frame, plan);
}

/// Puts the arguments in the order of the prototype.
#[inline]
fn gather(frame: &mut Frame, plan: &Plan, stack: *const u64) {
    frame.stack = stack;
    if !plan.is_scattered {
        // The entry has put those in registers where they belong.
        let on_stack = usize::from(plan.count).saturating_sub(frame.registers.len());
        for (index, word) in frame.words.iter_mut().skip(6).take(on_stack).enumerate() {
            // SAFETY: the caller has put its stack arguments there, as the prototype says.
            *word = unsafe { *stack.add(index) };
        }
        return;
    }
    for index in 0..usize::from(plan.count) {
        frame.words[index] = match plan.places[index] {
            Place::Register(at) => frame.registers[usize::from(at) % 6],
            Place::Vector(at) => frame.vectors[usize::from(at) % 8][0],
            // SAFETY: the caller has put its stack arguments there, as the prototype says.
            Place::Stack(at) => unsafe { *stack.add(usize::from(at)) },
        };
    }
}

/// Puts the arguments, each as wide as its type.
#[inline]
fn put_arguments(record: &mut Record<'_>, frame: &Frame, plan: &Plan) -> Option<()> {
    if plan.by_value {
        return put_with_structs(record, frame, plan);
    }
    let mut bytes = [0; MOST_PARAMETERS * 8];
    let mut length = 0;
    for (&word, &width) in frame
        .words
        .iter()
        .zip(plan.widths.get(..plan.count.into())?)
    {
        // Whole words: the next argument overwrites the bytes above this one's width.
        *bytes.get_mut(length..)?.first_chunk_mut()? = word.to_le_bytes();
        length += usize::from(width);
    }
    record.put(bytes.get(..length)?)
}

#[cold]
fn put_with_structs(record: &mut Record<'_>, frame: &Frame, plan: &Plan) -> Option<()> {
    for index in 0..usize::from(plan.count) {
        let width = usize::from(plan.widths[index]);
        match plan.places[index] {
            Place::Stack(at) if width > 8 => {
                // SAFETY: a struct by value of that many bytes lies there, as the prototype says.
                let bytes = unsafe {
                    core::slice::from_raw_parts(frame.stack.add(usize::from(at)).cast(), width)
                };
                record.put(bytes)?;
            }
            _ => record.put_number(frame.words[index], width)?,
        }
    }
    Some(())
}

/// Starts recording if that is still to be done.
pub(crate) fn begin(state: &Thread) {
    if STATE.load(Ordering::Acquire) != RECORDING {
        started(state);
    }
}

/// Starts recording if that is still to be done; whether this process records.
#[cold]
fn started(state: &Thread) -> bool {
    loop {
        match STATE.load(Ordering::Acquire) {
            RECORDING | MEASURING | COUNTING => return true,
            PASSING => return false,
            NOT_STARTED => {
                let _errno = errno::Errno::keep();
                // Every thread that comes here loads the driver: who waited for another one would wait for ever if the other
                // waited for the loader, which this thread may hold, as the constructor of a library.
                let next = if state.during_start(load) {
                    STARTING
                } else {
                    PASSING
                };
                let won =
                    STATE.compare_exchange(NOT_STARTED, next, Ordering::AcqRel, Ordering::Relaxed);
                if won.is_ok() && next == STARTING {
                    let records = state.during_start(start);
                    STATE.store(records, Ordering::Release);
                }
            }
            // Another thread is at it, and needs no lock of the loader's that is held for long.
            // SAFETY: no memory is involved.
            _ => unsafe {
                libc::sched_yield();
            },
        }
    }
}

/// Loads the driver before anybody calls it; whether there is one.
#[cfg(feature = "gum")]
pub(crate) fn load_early() -> bool {
    // SAFETY: the state lives as long as its thread, which is this one.
    unsafe { &*thread::current() }.during_start(load)
}

/// Loads the driver; whether there is one.
fn load() -> bool {
    fork::watch();
    log::begin();
    let loaded = driver::is_loaded() || driver::load(Settings::read().driver.as_deref());
    if !loaded {
        log::line(&[b"there is no CUDA driver to pass the calls on to"]);
    }
    loaded
}

/// Creates the trace. What becomes of the calls from now on: a value of `STATE`.
fn start() -> u8 {
    let settings = Settings::read();
    let Some(trace) = settings.trace else {
        return PASSING;
    };
    plan::prepare();
    thread::watch_ends();
    layouts::forget_notes();
    PAYLOADS.store(settings.payloads as u8, Ordering::Relaxed);
    OUTPUTS.store(settings.outputs as u8, Ordering::Relaxed);
    host_memory::configure(settings.host_memory);
    stages::expect_mover(settings.expects_mover);
    trace_file::close();
    let clock = clock::choose();
    if !trace_file::create(&trace, clock) {
        return PASSING;
    }
    identity::write_program();
    maps::write();
    debug_assert_eq!(FUNCTIONS.len(), entry::count());
    cost::forget();
    match clock {
        _ if settings.measures_cost => MEASURING,
        clock::PROCESSOR => RECORDING,
        _ => COUNTING,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutape_format::{Passing, Trace, TraceBuilder};
    use proptest::prelude::*;

    /// By which way a record is written.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Way {
        InRoom,
        ByParts,
        /// As it is done where there is more to be put.
        ByRoles,
    }

    /// Encodes a call as `enter` does, without driver and file: the kind of the record, and what is behind its head.
    fn encode(
        function: u16,
        way: Way,
        registers: [u64; 6],
        vectors: [[u64; 2]; 8],
        stack: &[u64; 16],
    ) -> (u8, Vec<u8>) {
        let mut frame = Frame {
            vectors,
            registers,
            kept: [0; 3],
            stack: core::ptr::null(),
            thread: core::ptr::null(),
            plan: core::ptr::null(),
            mark: 0,
            entered: 0,
            words: [0; MOST_PARAMETERS],
            result: 0,
            function,
            shape: 0,
            base: 0,
            caller: 77,
        };
        let plan = plan::make(&FUNCTIONS[usize::from(function)]);
        // As the entry does it.
        frame.words[..6].copy_from_slice(&registers);
        gather(&mut frame, &plan, stack.as_ptr());
        // What is there already is overwritten, or not looked at.
        let mut space = vec![u64::MAX; 64];
        // SAFETY: the words are ours, aligned, and more than a room has; any bytes make one.
        let room = unsafe { &mut *space.as_mut_ptr().cast::<Room>() };
        let (kind, length) = match (plan.entering, way) {
            (Entering::Plain, Way::InRoom) => {
                let length = put_plain_in_room(room, &mut frame, &plan, || 5);
                (record_kind::ENTER, Some(length))
            }
            (Entering::Launch, Way::InRoom) => {
                let length = put_launch_in_room(room, &mut frame, &plan, || 5);
                (record_kind::ENTER_SHORT, Some(length))
            }
            (Entering::Short, Way::InRoom) => {
                let length = put_short_in_room(room, &mut frame, &plan, || 5);
                (record_kind::ENTER_SHORT, Some(length))
            }
            _ => {
                // SAFETY: the words are ours and any bytes make words.
                let bytes = unsafe {
                    core::slice::from_raw_parts_mut(
                        space.as_mut_ptr().cast::<u8>(),
                        space.len() * 8,
                    )
                };
                let mut record = Record::new(bytes).expect("room");
                match (plan.entering, way) {
                    (Entering::Plain, Way::ByParts) => {
                        (record_kind::ENTER, put_plain(record, &mut frame, &plan))
                    }
                    (Entering::Short | Entering::Launch, Way::ByParts) => (
                        record_kind::ENTER_SHORT,
                        put_short(record, &mut frame, &plan),
                    ),
                    _ => {
                        let caller = frame.caller;
                        let put = record.put_enter(EnterHead { ticks: 5, caller });
                        put.and_then(|()| put_arguments(&mut record, &frame, &plan))
                            .expect("room");
                        (
                            record_kind::ENTER,
                            record.commit(record_kind::ENTER, function),
                        )
                    }
                }
            }
        };
        let length = length.expect("room");
        let bytes: Vec<u8> = space.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(
            bytes[length..][..8],
            [0; 8],
            "where the next head will be looked for"
        );
        (kind, bytes[RECORD_HEAD_LENGTH..length].to_vec())
    }

    /// Numbers of every length.
    fn word() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0..=64_u32).prop_map(|(word, by)| word.checked_shr(by).unwrap_or(0))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]

        /// What is put into the trace here is what a reader takes out of it, for every function and parameter.
        #[test]
        fn readers_agree(
            registers in prop::array::uniform6(word()), vectors: [[u64; 2]; 8], stack in prop::array::uniform16(word()),
        ) {
            let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
            let ways = [Way::InRoom, Way::ByParts, Way::ByRoles];
            let functions = ways.into_iter().flat_map(|way| FUNCTIONS.iter().map(move |function| (way, function)));
            for (way, function) in functions.clone() {
                let (kind, body) = encode(function.id, way, registers, vectors, &stack);
                builder.record(0, kind, function.id, &body);
            }
            let path = std::env::temp_dir().join(format!("cutape-agree-{}.cutape", std::process::id()));
            builder.write(&path).unwrap();
            let trace = Trace::open(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            let calls: Vec<_> = trace.calls().collect();
            prop_assert_eq!(calls.len(), ways.len() * FUNCTIONS.len());
            for (call, (_, function)) in calls.iter().zip(functions) {
                prop_assert_eq!(&call.signature.name, function.name);
                prop_assert_eq!(call.caller, 77);
                prop_assert_eq!(call.captures().count(), 0);
                for (index, place) in plan::make(function).places.iter().enumerate().take(function.params.len()) {
                    let word = match *place {
                        Place::Register(at) => registers[usize::from(at)],
                        Place::Vector(at) => vectors[usize::from(at)][0],
                        Place::Stack(at) => stack[usize::from(at)],
                    };
                    let expected = match call.signature.parameters[index].passing {
                        Passing::Memory(bytes) => {
                            let Place::Stack(at) = *place else { panic!("{}", function.name) };
                            let words = &stack[usize::from(at)..][..usize::from(bytes) / 8];
                            let expected: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                            prop_assert_eq!(call.argument_bytes(index).into_owned(), expected);
                            continue;
                        }
                        Passing::Signed(4) => i64::from(word as i32) as u64,
                        Passing::Unsigned(bytes) | Passing::Float(bytes) if bytes < 8 => {
                            word & ((1 << (8 * bytes)) - 1)
                        }
                        _ => word,
                    };
                    prop_assert_eq!(call.argument(index), expected, "{} {}", function.name, index);
                }
            }
        }
    }
}
