//! Host memory that the device reads and writes without a copy: pinned, registered and managed
//! ranges.
//!
//! Before work that can reach such a range, and after a wait for work that may have written it, the
//! range is compared with a shadow copy, and what has changed is recorded. A call whose words point
//! into no such range takes no lock. Otherwise the lock of the table is held while ranges are
//! compared, so that they are not freed meanwhile, but never across a call of the driver. Not seen:
//! what a kernel reads while the host writes it, and what the host learns by polling, unless it is
//! recorded for `play` (`seen_looks.rs`).

mod changes;
mod seen;
mod seen_looks;
mod table;

use core::sync::atomic::{AtomicU8, Ordering};

use cutape_order::Moment;
use cutape_registry::{CopyOp, Extent, Family, HostMemory, Length, Role, StreamMemoryOp};

use crate::file::kept_blobs;
use crate::hot::clock;
use crate::hot::frame::Frame;
use crate::hot::thread::Thread;
use crate::process::errno::Errno;
use crate::process::memory;
use crate::queries::{current_context, has_concurrent_managed_access, is_capturing};
use crate::state::{followed_work, leads};
pub(crate) use seen_looks::{found_variable, look_at_seen};
use table::{KEEPS_NEWS, Range, TABLE, Table};
pub(crate) use table::{Which, any, forget, is_touched};

static POLICY: AtomicU8 = AtomicU8::new(HostMemory::Off as u8);

/// Sets what is to be recorded, whether `take_news` gives words, and whether what the program sees is
/// recorded for `play`.
pub(crate) fn configure(policy: HostMemory, keeps_news: bool, is_cassette: bool) {
    seen::configure(is_cassette && policy != HostMemory::Off);
    KEEPS_NEWS.store(keeps_news, Ordering::Relaxed);
    POLICY.store(policy as u8, Ordering::Relaxed);
    kept_blobs::set_holder(while_held);
}

/// Runs a function while memory cannot be freed, if it lies in one range: a call that ends the
/// range waits for the table. False if that is not known, or if a thread has the table.
fn while_held(address: u64, length: u64, run: &mut dyn FnMut()) -> bool {
    let table = any().then(|| TABLE.try_lock()).flatten();
    let table = table.filter(|table| table.is_lasting(address, length));
    if table.is_some() {
        run();
    }
    table.is_some()
}

fn is_policy(policy: HostMemory) -> bool {
    POLICY.load(Ordering::Relaxed) == policy as u8
}

/// Whether what the program sees is recorded, for `play`.
pub(crate) fn records_for_play() -> bool {
    seen::is_on()
}

/// Whether a call with these words may reach such a range.
#[inline]
pub(crate) fn may_reach(words: impl Iterator<Item = u64> + Clone) -> bool {
    any() && (is_policy(HostMemory::All) || leads::any() || leads::RANGES.may_hold(words))
}

/// How a call makes a range of its first two parameters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Address and length.
    Registered,
    /// Where the address is written, and the length.
    Allocated,
    /// As `Allocated`.
    Managed,
}

/// After a call that makes a range.
pub(crate) fn created(frame: &Frame, origin: Origin) {
    if !frame.succeeded() || is_policy(HostMemory::Off) {
        return;
    }
    let _errno = Errno::keep();
    let [first, second, ..] = frame.words;
    let start = match origin {
        Origin::Registered => Some(first),
        Origin::Allocated | Origin::Managed => memory::word(first),
    };
    // `cuMemHostAlloc` and its like of CUDA 3.1 have a length of 32 bits.
    let length = frame.description().params.get(1);
    let is_narrow = length.is_some_and(|length| length.width.bytes() == 4);
    let length = if is_narrow {
        u64::from(second as u32)
    } else {
        second
    };
    let Some(start) = start.filter(|&start| start != 0 && length != 0) else {
        return;
    };
    let is_exclusive = origin == Origin::Managed && !has_concurrent_managed_access();
    let range = Range {
        length,
        context: current_context(),
        is_exclusive,
        is_managed: origin == Origin::Managed,
        ..Range::default()
    };
    insert(start, range);
}

fn insert(start: u64, range: Range) {
    let mut table = TABLE.lock();
    table.insert(start, range);
    table.publish();
}

/// Before a call that ends ranges: they are not compared any more.
pub(crate) fn ending(which: Which) {
    if any() {
        TABLE.lock().set_ending(which, true);
    }
}

/// After that call.
pub(crate) fn ended(which: Which, succeeded: bool) {
    if !any() {
        return;
    }
    if !succeeded {
        return TABLE.lock().set_ending(which, false);
    }
    let _errno = Errno::keep();
    let mut table = TABLE.lock();
    table.end(which);
    table.publish();
}

/// The words of such memory that a launch of a thread can reach and that have changed before it.
/// For outputs of exchanges.
pub(crate) fn take_news(thread: &Thread) -> Vec<u64> {
    match any() {
        true => TABLE
            .lock()
            .news
            .remove(&thread.ordinal.get())
            .unwrap_or_default(),
        false => Vec::new(),
    }
}

/// Before a launch on a stream: compares the ranges that these words point into, or all if the
/// words are not known.
#[cold]
pub(crate) fn before_launch(thread: &Thread, frame: &Frame, stream: u64, words: Option<&[u64]>) {
    let function = frame.description();
    let words = words.filter(|_| !is_policy(HostMemory::All));
    // Most launches reach no range.
    {
        let mut table = TABLE.lock();
        table.take_leads();
        if table.reached(words).is_empty() {
            return;
        }
    }
    let _errno = Errno::keep();
    // Captured work runs when its graph is launched, and the stream must not be asked anything now.
    if is_capturing(function, stream) {
        return;
    }
    let work = followed_work::begin(thread, frame, stream);
    let mut table = TABLE.lock();
    table.look_for_values(thread);
    let reached = table.reached(words);
    for &start in &reached {
        table.look(thread, start, Some(frame.start));
    }
    if table.touch(&reached, work) {
        thread.set_begun(frame.start);
    }
    table.publish();
}

/// What a call does at an address, as far as it matters for host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// Writes so many bytes from there; 0 if that is not known.
    Write(u64),
    /// Writes so many bytes, which are recorded with the copy.
    Readback(u64),
    /// Writes a value, of so many bytes.
    Value(u64, u64),
    /// Waits for a value. Whoever fulfils the wait writes the value while the stream waits, so the
    /// next wait for the stream looks again.
    Await,
}

/// An address that a call names.
pub(crate) type Operand = (u64, Access);

/// Before a call whose arguments are addresses that the device reads from or writes to.
pub(crate) fn before_arguments(thread: &Thread, frame: &Frame) {
    let function = frame.description();
    let span = |length: Length| length.evaluate(function, frame).map_or(0, Extent::span);
    let access = |at: usize, role: Role| match role {
        Role::DeviceRead(_) => match function.family {
            Family::StreamMemory(StreamMemoryOp::Wait) => Some(Access::Await),
            _ => Some(Access::Read),
        },
        Role::DeviceWrite(length) => match function.family {
            Family::Copy(CopyOp::Unified(_)) => Some(Access::Readback(span(length))),
            Family::StreamMemory(StreamMemoryOp::Write) => {
                let value = frame.words.get(at + 1).copied();
                value.map(|value| Access::Value(value, span(length)))
            }
            _ => Some(Access::Write(span(length))),
        },
        Role::HostWrite(length) => Some(Access::Readback(span(length))),
        _ => None,
    };
    let parameters = function.params.iter().zip(&frame.words).enumerate();
    let operands =
        parameters.filter_map(|(at, (parameter, &word))| Some((word, access(at, parameter.role)?)));
    before_operands(thread, frame, operands);
}

/// Before a call whose work reads or writes at these addresses.
pub(crate) fn before_operands(
    thread: &Thread,
    frame: &Frame,
    operands: impl Iterator<Item = Operand> + Clone,
) {
    if may_reach(operands.clone().map(|(address, _)| address)) {
        look_at_operands(thread, frame, &operands.collect::<Vec<_>>());
    }
}

#[cold]
fn look_at_operands(thread: &Thread, frame: &Frame, operands: &[Operand]) {
    let function = frame.description();
    // A readback into a range that no work can reach needs no look. One of managed memory has none.
    let needs_look = |table: &Table, &(address, access): &Operand| {
        let start = table.find(address)?;
        let is_readback = matches!(access, Access::Readback(_));
        let is_needed = !is_readback
            || table.is_shadowed(start)
            || table.is_managed(start)
            || table.is_seen_at_calls(start);
        is_needed.then_some((start, access))
    };
    {
        let table = TABLE.lock();
        if !operands.iter().any(|one| needs_look(&table, one).is_some()) {
            return;
        }
    }
    let _errno = Errno::keep();
    let stream = function.stream.map_or(0, |at| frame.word(at));
    if function.stream.is_some() && is_capturing(function, stream) {
        return;
    }
    let work = followed_work::begin(thread, frame, stream);
    let mut table = TABLE.lock();
    table.look_for_values(thread);
    let mut touched = Vec::new();
    for operand in operands {
        let Some((start, access)) = needs_look(&table, operand) else {
            continue;
        };
        // What is there now must not be mistaken later for something that the host wrote, nor what
        // the host has written for what the work writes.
        match access {
            Access::Write(length) | Access::Readback(length) | Access::Value(_, length)
                if length != 0 && table.is_shadowed(start) =>
            {
                table.look_at(
                    thread,
                    start,
                    operand.0..operand.0.saturating_add(length),
                    Some(frame.start),
                );
            }
            _ => table.look(thread, start, Some(frame.start)),
        }
        if access != Access::Read {
            touched.push(start);
        }
        if let Access::Value(value, length) = access {
            table.expect_value(operand.0, value, length);
        }
    }
    if table.touch(&touched, work) {
        thread.set_begun(frame.start);
    }
    // Of no launch.
    table.news.remove(&thread.ordinal.get());
    table.publish();
}

/// The call of a thread that was entered then has returned: what it was to write had been enqueued
/// now.
#[cold]
pub(crate) fn enqueued(thread: &Thread, entered: Moment, now: Moment) {
    TABLE.lock().enqueued(thread.ordinal.get(), entered, now);
}

/// After a call that has waited for work: records what completed work has written, so that later
/// changes of the host show as such.
#[inline]
pub(crate) fn waited(thread: &Thread) {
    match is_touched() {
        true => look_after_wait(thread),
        // Another thread may have looked, after this call had returned from the driver.
        false => thread.looked.set(clock::ticks()),
    }
}

#[cold]
fn look_after_wait(thread: &Thread) {
    let mut table = TABLE.lock();
    for start in table.take_completed() {
        table.take_values_in(start);
        table.look(thread, start, None);
        table.look_at_pages(thread, start);
    }
    // While the table is locked: a look of another thread ends before or after.
    thread.looked.set(clock::ticks());
    table.publish();
}
