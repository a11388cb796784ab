//! The arguments of a call, and the enter records that hold nothing else.

use cutape_format::slot::Slot;
use cutape_registry::Location;

use super::frame::Frame;
use super::plan::{EnterForm, Plan};
use super::thread::Draft;
use crate::file::trace_file;

/// Puts the arguments into `frame.words`, in the order of the prototype.
#[inline]
pub(crate) fn gather(frame: &mut Frame, plan: &Plan, stack: *const u64) {
    frame.stack = stack;
    if !plan.is_scattered {
        // The entry has stored the registers there already.
        let registers = frame.registers.len();
        let on_stack = usize::from(plan.count).saturating_sub(registers);
        for (index, word) in frame
            .words
            .iter_mut()
            .skip(registers)
            .take(on_stack)
            .enumerate()
        {
            // SAFETY: the prototype has that many arguments on the stack. One by one, as the caller
            // has just stored them: a wider load would wait for all of these stores.
            *word = unsafe { stack.add(index).read_volatile() };
        }
        return;
    }
    let count = usize::from(plan.count);
    for (word, location) in frame.words.iter_mut().zip(plan.locations).take(count) {
        *word = match location {
            Location::Register(at) => frame.registers.get(usize::from(at)).copied(),
            Location::Vector(at) => frame.vectors.get(usize::from(at)).map(|vector| vector[0]),
            // SAFETY: as above.
            Location::Stack(at) => Some(unsafe { *stack.add(usize::from(at)) }),
        }
        .unwrap_or(0);
    }
}

/// Writes the arguments, each as wide as its type.
pub(crate) fn put_arguments(draft: &mut Draft<'_>, frame: &Frame, plan: &Plan) -> Option<()> {
    let arguments = frame.words.iter().zip(&plan.locations).zip(&plan.widths);
    for ((&word, &location), &width) in arguments.take(plan.count.into()) {
        let width = usize::from(width);
        match location {
            Location::Stack(at) if width > 8 => {
                // SAFETY: a struct by value of that many bytes lies there, as the prototype says.
                let bytes = unsafe {
                    core::slice::from_raw_parts(frame.stack.add(usize::from(at)).cast(), width)
                };
                draft.put(bytes)?;
            }
            _ => draft.put_number(word, width)?,
        }
    }
    Some(())
}

/// Writes an enter record of fixed form. Returns its length; 0, and nothing is written, for
/// `EnterForm::Generic`.
#[inline(always)]
pub(crate) fn put_fixed(
    slot: &mut Slot,
    frame: &mut Frame,
    plan: &Plan,
    clock: impl FnOnce() -> u64,
) -> usize {
    match plan.enter {
        EnterForm::Plain => put_plain(slot, frame, plan, clock),
        EnterForm::Launch => put_launch(slot, frame, plan, clock),
        EnterForm::Short => put_short(slot, frame, plan, clock),
        EnterForm::Generic => 0,
    }
}

/// Writes an `ENTER` without snapshots.
#[inline(always)]
pub(crate) fn put_plain(
    slot: &mut Slot,
    frame: &mut Frame,
    plan: &Plan,
    clock: impl FnOnce() -> u64,
) -> usize {
    let words = frame.words.first_chunk().unwrap_or(&[0; _]);
    let (ticks, length) = slot.put_enter(&plan.plain, frame.caller, words, clock);
    frame.start = ticks;
    length
}

/// Writes an `ENTER_SHORT`.
#[inline(always)]
pub(crate) fn put_short(
    slot: &mut Slot,
    frame: &mut Frame,
    plan: &Plan,
    clock: impl FnOnce() -> u64,
) -> usize {
    frame.start = clock();
    let ticks = frame.start.wrapping_sub(trace_file::start_ticks());
    slot.put_short_enter(
        plan.short,
        frame.function,
        ticks,
        frame.caller,
        &frame.words,
        &plan.masks,
    )
}

/// Writes the `ENTER_SHORT` of a `cuLaunchKernel`.
#[inline(always)]
pub(crate) fn put_launch(
    slot: &mut Slot,
    frame: &mut Frame,
    plan: &Plan,
    clock: impl FnOnce() -> u64,
) -> usize {
    let ticks = clock();
    frame.start = ticks;
    let since = ticks.wrapping_sub(trace_file::start_ticks());
    let [f, a, b, c, d, e, g, h, stream, parameters, extra, ..] = frame.words;
    let [a, b, c, d, e, g, h] = [a, b, c, d, e, g, h].map(|word| u64::from(word as u32));
    let arguments = [f, a, b, c, d, e, g, h, stream, parameters, extra];
    slot.put_short_enter_of_launch(frame.function, since, frame.caller, &arguments)
        .unwrap_or_else(|| put_short(slot, frame, plan, || ticks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hot::{plan, thread};
    use crate::overrides::hooks;
    use cutape_format::layout::{EnterHead, RECORD_HEAD_LENGTH, record_kind};
    use cutape_format::write::Record;
    use cutape_format::{Trace, TraceBuilder, ValueType};
    use cutape_registry::FUNCTIONS;
    use proptest::prelude::*;

    /// Encodes a call as `pre_call` does: the kind of the record, and what follows its head.
    fn encode(
        function: u16,
        is_generic: bool,
        registers: [u64; 6],
        vectors: [[u64; 2]; 8],
        stack: &[u64; 16],
    ) -> (u8, Vec<u8>) {
        let mut frame = Frame::for_tests(function, registers, vectors);
        frame.caller = 77;
        let mut plan = plan::make(&FUNCTIONS[usize::from(function)], hooks::bits);
        if is_generic {
            plan.enter = EnterForm::Generic;
        }
        gather(&mut frame, &plan, stack.as_ptr());
        // Old bytes are overwritten, or ignored.
        let mut space = vec![u64::MAX; 64];
        // SAFETY: the words are ours, aligned, and more than a slot has; any bytes make one.
        let slot = unsafe { &mut *space.as_mut_ptr().cast::<Slot>() };
        let length = match plan.enter {
            EnterForm::Generic => {
                // SAFETY: the words are ours and any bytes make words.
                let bytes = unsafe {
                    core::slice::from_raw_parts_mut(
                        space.as_mut_ptr().cast::<u8>(),
                        space.len() * 8,
                    )
                };
                // SAFETY: the state lives as long as its thread, which is this one.
                let thread = unsafe { &*thread::current() };
                let record = Record::new(bytes).expect("space");
                let mut draft = Draft { record, thread };
                let caller = frame.caller;
                draft
                    .put_encoded(EnterHead { ticks: 5, caller })
                    .expect("space");
                put_arguments(&mut draft, &frame, &plan).expect("space");
                draft
                    .record
                    .commit(record_kind::ENTER, function)
                    .expect("space")
            }
            _ => put_fixed(slot, &mut frame, &plan, || 5),
        };
        let bytes: Vec<u8> = space.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(bytes[length..][..8], [0; 8], "the place of the next head");
        let kind = match plan.enter {
            EnterForm::Plain | EnterForm::Generic => record_kind::ENTER,
            EnterForm::Short | EnterForm::Launch => record_kind::ENTER_SHORT,
        };
        (kind, bytes[RECORD_HEAD_LENGTH..length].to_vec())
    }

    /// Numbers of every length.
    fn word() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0..=64_u32).prop_map(|(word, by)| word.checked_shr(by).unwrap_or(0))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]

        /// Readers find the arguments of every function as they were, in the fixed and in the
        /// generic form.
        #[test]
        fn readers_agree(
            registers in prop::array::uniform6(word()), vectors: [[u64; 2]; 8], stack in prop::array::uniform16(word()),
        ) {
            let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
            let functions = [false, true].into_iter().flat_map(|is_generic| {
                FUNCTIONS.iter().map(move |function| (is_generic, function))
            });
            for (is_generic, function) in functions.clone() {
                let (kind, body) = encode(function.id, is_generic, registers, vectors, &stack);
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
                prop_assert_eq!(call.snapshots().count(), 0);
                for (index, location) in plan::make(function, hooks::bits).locations.iter().enumerate().take(function.params.len()) {
                    let word = match *location {
                        Location::Register(at) => registers[usize::from(at)],
                        Location::Vector(at) => vectors[usize::from(at)][0],
                        Location::Stack(at) => stack[usize::from(at)],
                    };
                    let expected = match call.signature.parameters[index].value_type {
                        ValueType::Memory(bytes) => {
                            let Location::Stack(at) = *location else { panic!("{}", function.name) };
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
