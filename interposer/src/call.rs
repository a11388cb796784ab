//! Around every call: what is written before the driver is entered and after it has returned.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use cutape_format::Payloads;
use cutape_format::layout::{
    EnterHead, LeaveHead, RECORD_HEAD_LENGTH, SHORT_TICKS_END, VALUE_TICKS_END, field, record_kind,
};
use cutape_format::write::Record;
use cutape_registry::FUNCTIONS;

use crate::plan::{self, Entering, MOST_PARAMETERS, Place, Plan};
use crate::settings::Settings;
use crate::thread::{self, Thread};
use crate::{
    capture, clock, cost, driver, entry, errno, fork, host_memory, identity, layouts, log, maps,
    overrides, pending, trace_file,
};

/// A call in progress, on its thread's stack. The first members are written by the stubs, in this order.
#[repr(C, align(16))]
pub(crate) struct Frame {
    pub(crate) registers: [u64; 6],
    pub(crate) vectors: [[u64; 2]; 8],
    pub(crate) caller: u64,
    pub(crate) stack: *const u64,
    pub(crate) function: u64,
    /// `entry::Shape` of the function.
    pub(crate) shape: u64,
    /// What the driver returned.
    pub(crate) result: u64,
    /// Ticks when it was entered, as its record says.
    pub(crate) entered: u64,
    pub(crate) thread: *const Thread,
    /// By which the thread knows that this is still the frame of its call in progress.
    pub(crate) mark: u64,
    /// The arguments in the order of the prototype; the stub puts the integer registers first.
    pub(crate) words: [u64; MOST_PARAMETERS],
    /// What a function's override keeps from before the call to after it.
    pub(crate) kept: [u64; 3],
}

/// What the stub is to do: where to go, and whether to come back.
#[repr(C)]
pub(crate) struct Entered {
    target: *const c_void,
    recorded: u64,
}

const NOT_STARTED: u8 = 0;
const STARTING: u8 = 1;
const RECORDING: u8 = 2;
/// The calls go to the driver unseen.
const PASSING: u8 = 3;
/// As `RECORDING`, and what that costs is measured.
const MEASURING: u8 = 4;

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
    matches!(state, RECORDING | MEASURING)
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

/// Called by every entry before the driver. The frame is the stub's.
pub(crate) extern "C" fn enter(frame: &mut Frame) -> Entered {
    // SAFETY: the state lives as long as its thread, which is this one.
    let state = unsafe { &*thread::current() };
    if state.is_inside(core::ptr::from_ref(frame).addr()) {
        return pass(frame.function as usize);
    }
    #[cfg(feature = "gum")]
    if crate::hook::is_drivers_own(frame.caller) {
        return pass(frame.function as usize);
    }
    if STATE.load(Ordering::Acquire) != RECORDING {
        return enter_otherwise(state, frame);
    }
    record_enter(state, frame)
}

/// A call before the recording has begun, after it has stopped, or while its cost is measured.
#[cold]
fn enter_otherwise(state: &Thread, frame: &mut Frame) -> Entered {
    if !started(state) {
        return pass(frame.function as usize);
    }
    let began = clock::ticks();
    let entered = record_enter(state, frame);
    if STATE.load(Ordering::Relaxed) == MEASURING {
        cost::add(state, began, true);
    }
    entered
}

#[inline(always)]
fn record_enter(state: &Thread, frame: &mut Frame) -> Entered {
    let function = frame.function as usize;
    state.enter(frame);
    frame.kept = [0; 3];
    let plan = plan::of(function);
    gather(frame, plan);
    let written = match plan.entering {
        Entering::Plain => state.write_once(|record| put_plain(record, frame, plan)),
        Entering::Short => state.write_once(|record| put_short(record, frame, plan)),
        Entering::ByRoles => false,
    };
    if !written && !enter_by_roles(state, frame, plan) {
        state.leave();
        return pass(function);
    }
    // Before the notes: one that empties the stage says which call is the first to be entered after it.
    state.calls.set(state.calls.get() + 1);
    state.attend();
    state.look_ahead();
    if plan.acts_when_entered || plan.has_operands && host_memory::any() {
        let _errno = plan.disturbs.then(errno::Errno::keep);
        overrides::entered(state, frame, plan);
    }
    state.pass_on();
    Entered {
        target: target(function),
        recorded: 1,
    }
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
    record.commit(record_kind::ENTER, frame.function as u16)
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
    record.commit(record_kind::ENTER_SHORT, frame.function as u16)
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

/// Called by every entry after the driver, unless `enter` said not to.
pub(crate) extern "C" fn leave(frame: &mut Frame) {
    let ticks = clock::ticks();
    // SAFETY: set by `enter` on this thread.
    let state = unsafe { &*frame.thread };
    if !state.return_to(frame) {
        // The program has called the driver from within this call, or is a child that was forked from within it.
        return;
    }
    let plan = plan::of(frame.function as usize);
    let is_direct = plan.leaves_directly || plan.leaves_directly_when_idle && is_idle();
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
    if let Some(output) = plan.value
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
        record.commit(record_kind::LEAVE, frame.function as u16)
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

fn pass(function: usize) -> Entered {
    Entered {
        target: target(function),
        recorded: 0,
    }
}

fn target(function: usize) -> *const c_void {
    let real = driver::real(function);
    if real.is_null() {
        missing as *const c_void
    } else {
        real
    }
}

/// Stands for a function that the real driver does not have, or for all of them if there is no driver.
pub(crate) extern "C" fn missing() -> i32 {
    const CUDA_ERROR_NOT_SUPPORTED: i32 = 801;
    CUDA_ERROR_NOT_SUPPORTED
}

/// Puts the arguments in the order of the prototype.
#[inline]
fn gather(frame: &mut Frame, plan: &Plan) {
    if plan.entering != Entering::ByRoles {
        // The stub has put those in registers where they belong.
        let on_stack = usize::from(plan.count).saturating_sub(frame.registers.len());
        for (index, word) in frame.words.iter_mut().skip(6).take(on_stack).enumerate() {
            // SAFETY: the caller has put its stack arguments there, as the prototype says.
            *word = unsafe { *frame.stack.add(index) };
        }
        return;
    }
    for index in 0..usize::from(plan.count) {
        frame.words[index] = match plan.places[index] {
            Place::Register(at) => frame.registers[usize::from(at) % 6],
            Place::Vector(at) => frame.vectors[usize::from(at) % 8][0],
            // SAFETY: the caller has put its stack arguments there, as the prototype says.
            Place::Stack(at) => unsafe { *frame.stack.add(usize::from(at)) },
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
            RECORDING | MEASURING => return true,
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
    trace_file::close();
    let clock = clock::choose();
    if !trace_file::create(&trace, clock) {
        return PASSING;
    }
    identity::write_program();
    maps::write();
    debug_assert_eq!(FUNCTIONS.len(), entry::count());
    cost::forget();
    if settings.measures_cost {
        MEASURING
    } else {
        RECORDING
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutape_format::{Passing, Trace, TraceBuilder};
    use proptest::prelude::*;

    /// Encodes a call as `enter` does, without driver and file: the kind of the record, and what is behind its head. `by_roles`
    /// as it is done where there is more to be put.
    fn encode(
        function: u16,
        by_roles: bool,
        registers: [u64; 6],
        vectors: [[u64; 2]; 8],
        stack: &[u64; 16],
    ) -> (u8, Vec<u8>) {
        let mut frame = Frame {
            registers,
            vectors,
            caller: 77,
            stack: stack.as_ptr(),
            function: function.into(),
            shape: 0,
            result: 0,
            entered: 0,
            thread: core::ptr::null(),
            mark: 0,
            words: [0; MOST_PARAMETERS],
            kept: [0; 3],
        };
        let plan = plan::make(&FUNCTIONS[usize::from(function)]);
        // As the stub does it.
        frame.words[..6].copy_from_slice(&registers);
        gather(&mut frame, &plan);
        let mut space = vec![0u64; 64];
        // SAFETY: the words are ours and any bytes make words.
        let bytes = unsafe {
            core::slice::from_raw_parts_mut(space.as_mut_ptr().cast::<u8>(), space.len() * 8)
        };
        let mut record = Record::new(bytes).expect("room");
        let (kind, length) = match plan.entering {
            Entering::Plain if !by_roles => {
                (record_kind::ENTER, put_plain(record, &mut frame, &plan))
            }
            Entering::Short if !by_roles => (
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
        };
        (
            kind,
            bytes[RECORD_HEAD_LENGTH..length.expect("room")].to_vec(),
        )
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
            let functions = [false, true].into_iter().flat_map(|by_roles| {
                FUNCTIONS.iter().map(move |function| (by_roles, function))
            });
            for (by_roles, function) in functions.clone() {
                let (kind, body) = encode(function.id, by_roles, registers, vectors, &stack);
                builder.record(0, kind, function.id, &body);
            }
            let path = std::env::temp_dir().join(format!("cutape-agree-{}.cutape", std::process::id()));
            builder.write(&path).unwrap();
            let trace = Trace::open(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            let calls: Vec<_> = trace.calls().collect();
            prop_assert_eq!(calls.len(), 2 * FUNCTIONS.len());
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
