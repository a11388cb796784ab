//! The arguments of a call, and the enter records that hold nothing else.

use cutape_format::fixed::Room;
use cutape_format::layout::{EnterHead, RECORD_HEAD_LENGTH, record_kind};
use cutape_format::write::Record;

use crate::call::Frame;
use crate::plan::{MOST_PARAMETERS, Place, Plan};
use crate::{clock, trace_file};

/// Puts the arguments in the order of the prototype.
#[inline]
pub(crate) fn gather(frame: &mut Frame, plan: &Plan, stack: *const u64) {
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
pub(crate) fn put_arguments(record: &mut Record<'_>, frame: &Frame, plan: &Plan) -> Option<()> {
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

/// Writes an `ENTER` without snapshots, by its form.
#[inline(always)]
pub(crate) fn put_plain_in_room(
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
pub(crate) fn put_short_in_room(
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
pub(crate) fn put_launch_in_room(
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

/// Writes an `ENTER` without snapshots.
#[inline]
pub(crate) fn put_plain(mut record: Record<'_>, frame: &mut Frame, plan: &Plan) -> Option<usize> {
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
pub(crate) fn put_short(mut record: Record<'_>, frame: &mut Frame, plan: &Plan) -> Option<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{self, Entering};
    use cutape_format::{Trace, TraceBuilder, ValueType};
    use cutape_registry::FUNCTIONS;
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
                prop_assert_eq!(call.snapshots().count(), 0);
                for (index, place) in plan::make(function).places.iter().enumerate().take(function.params.len()) {
                    let word = match *place {
                        Place::Register(at) => registers[usize::from(at)],
                        Place::Vector(at) => vectors[usize::from(at)][0],
                        Place::Stack(at) => stack[usize::from(at)],
                    };
                    let expected = match call.signature.parameters[index].value_type {
                        ValueType::Memory(bytes) => {
                            let Place::Stack(at) = *place else { panic!("{}", function.name) };
                            let words = &stack[usize::from(at)..][..usize::from(bytes) / 8];
                            let expected: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                            prop_assert_eq!(call.argument_bytes(index).into_owned(), expected);
                            continue;
                        }
                        ValueType::Signed(4) => i64::from(word as i32) as u64,
                        ValueType::Unsigned(bytes) | ValueType::Float(bytes) if bytes < 8 => {
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
