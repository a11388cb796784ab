//! The parameters of a launch: `kernelParams`, `extra`, and the state of launches of CUDA 3.

use cutape_format::Bytes;
use cutape_format::layout::field;
use cutape_registry::{Kind, rules};

use super::{Check, Refused};
use crate::finding::Severity;
use crate::launch::Launch;
use crate::rules::{Draft, at, code};

/// CU_LAUNCH_PARAM_END, _BUFFER_POINTER and _BUFFER_SIZE of cuda.h.
const END: u64 = 0;
const BUFFER_POINTER: u64 = 1;
const BUFFER_SIZE: u64 = 2;
/// As many words of an `extra` array as a recorder reads.
const MOST_EXTRA: usize = 16;
/// The first page is never mapped, so no pointer is smaller.
const LOWEST_ADDRESS: u64 = 4096;
/// Largest alignment of a parameter (16 bytes), to which a struct may be padded.
const PADDING: u64 = 16;

/// `kernelParams` and `extra` at once.
pub(super) fn both_forms(refused: &Refused<'_, '_>) -> Option<Draft> {
    let launch = refused.launch;
    if launch.pointers.0 == 0 || launch.extra.0 == 0 {
        return None;
    }
    let what = format!(
        "gets the parameters of {} twice, through kernelParams ({:#x}) and through extra ({:#x}). \
         One of the two must be NULL",
        refused.label(),
        launch.pointers.0,
        launch.extra.0,
    );
    let title = "parameters given in two forms";
    Some(refused.draft(rules::EXEC_PARAMS_BOTH_SET, title, what))
}

fn layout(refused: &Refused<'_, '_>) -> Option<Vec<(u32, u32)>> {
    let check = refused.check;
    let handle = refused.launch.function;
    check
        .state
        .parameters_of(handle, check.call.thread, check.context)
}

fn listed(layout: &[(u32, u32)]) -> String {
    let sizes: Vec<String> = layout.iter().map(|(_, size)| size.to_string()).collect();
    match sizes.as_slice() {
        [one] => format!("one parameter of {one} bytes"),
        sizes => format!("{} parameters of {} bytes", sizes.len(), sizes.join(", ")),
    }
}

/// No parameters for a kernel that takes some.
pub(super) fn missing(refused: &Refused<'_, '_>) -> Option<Draft> {
    let launch = refused.launch;
    if launch.pointers.0 != 0 || launch.extra.0 != 0 {
        return None;
    }
    let layout = layout(refused).filter(|layout| !layout.is_empty())?;
    let what = format!(
        "launches {} without parameters, but it takes {}",
        refused.label(),
        listed(&layout)
    );
    let title = "launch without the kernel's parameters";
    Some(refused.draft(rules::EXEC_PARAMS_ARRAY_SHAPE, title, what))
}

/// The program died while the parameters were read: the recorder reads them right before the
/// driver does.
pub(super) fn unreadable(refused: &Refused<'_, '_>) -> Option<Draft> {
    let (check, launch) = (refused.check, refused.launch);
    let signal = check.context.meta("exit.signal");
    // A program that was killed may have been anywhere.
    if signal.is_some_and(|signal| !SIGNALS_OF_FAULTS.contains(&signal)) {
        return None;
    }
    if launch.pointers.0 == 0 || launch.extra.0 != 0 {
        return None;
    }
    let layout = check.state.layout(launch.function)?;
    if layout.is_empty() {
        return None;
    }
    let snapshot = check
        .call
        .snapshot(launch.pointers.1, field::KERNEL_PARAMETERS);
    if snapshot.is_some_and(|snapshot| snapshot.bytes != Bytes::Unreadable) {
        return None;
    }
    let what = format!(
        "launches {} with kernelParams at {:#x}, and an entry of that array, or the array itself, \
         points to memory that cannot be read. The kernel takes {}, so the array needs {} pointers, \
         each to a value; a value in place of its address has this effect",
        refused.label(),
        launch.pointers.0,
        listed(layout),
        layout.len(),
    );
    let title = "kernelParams that cannot be read";
    Some(refused.draft(rules::EXEC_PARAMS_ARRAY_SHAPE, title, what))
}

/// SIGBUS and SIGSEGV, as a trace has them.
const SIGNALS_OF_FAULTS: [&str; 2] = ["7", "11"];

/// The image does not say how the kernel takes its parameters.
pub(super) fn no_metadata(refused: &Refused<'_, '_>) -> Option<Draft> {
    if refused.launch.pointers.0 == 0 {
        return None;
    }
    let what = format!(
        "launches {} with kernelParams, but its image has no records of the kernel's parameters: \
         tools before CUDA 3.2 write none. Build the image again, or pass the parameters through \
         extra",
        refused.label()
    );
    let title = "image without records of the kernel's parameters";
    Some(refused.draft(rules::EXEC_PARAMS_NO_METADATA, title, what))
}

/// A parameter up to this size is one value: a part of it means nothing.
const ONE_VALUE: u32 = 8;

/// A buffer of parameters that is shorter than the kernel's, or longer where the driver refused it.
///
/// A buffer may end in a struct that is the last parameter: NCCL gives 480 of 4096 bytes to kernels
/// that read no more.
pub(super) fn wrong_size(refused: &Refused<'_, '_>) -> Option<Draft> {
    let (check, launch) = (refused.check, refused.launch);
    if launch.extra.0 == 0 {
        return None;
    }
    let buffer = check
        .call
        .snapshot(launch.extra.1, field::KERNEL_PARAMETERS)?;
    let size = buffer.bytes.length()?;
    let layout = layout(refused)?;
    let last = layout
        .iter()
        .map(|&(offset, size)| u64::from(offset) + u64::from(size));
    let needed = last.max().unwrap_or(0);
    let too_long = match check.call.result() {
        // Also if it is longer by padding alone (driver 580.159, H100, 2026-11-26: 16 bytes for 10).
        Some(code::LAUNCH_OUT_OF_RESOURCES) => size > needed,
        Some(code::INVALID_VALUE) => size > needed.next_multiple_of(PADDING),
        _ => false,
    };
    let is_in_struct = || {
        let mut cut = layout
            .iter()
            .filter(|&&(offset, length)| size < u64::from(offset) + u64::from(length));
        cut.all(|&(offset, length)| u64::from(offset) < size && length > ONE_VALUE)
    };
    let is_enough = size >= needed || (!check.went_wrong() && is_in_struct());
    if is_enough && !too_long {
        return None;
    }
    let effect = match (size < needed, check.went_wrong()) {
        (true, false) => {
            " The driver took it, and the kernel gets whatever follows as its other parameters."
        }
        _ => "",
    };
    let what = format!(
        "launches {} with a parameter buffer of {size} bytes, but the kernel's parameters take \
         {needed} bytes ({}).{effect} The buffer must have the layout of the kernel's parameters, \
         with their alignment",
        refused.label(),
        listed(&layout),
    );
    let title = "parameter buffer of the wrong size";
    Some(refused.draft(rules::EXEC_EXTRA_SIZE_MISMATCH, title, what))
}

/// A list of `extra` that has no end, or lacks a part; parameters of the wrong size; and `extra` in
/// a cooperative launch.
pub(super) fn extra(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if !drafts.is_empty() {
        return;
    }
    for launch in Launch::of(check.family(), check.call) {
        let launch = Refused::new(check, &launch);
        // The other form is the cause of what this one lacks.
        if launch.launch.pointers.0 != 0 {
            continue;
        }
        let found = malformed(&launch)
            .or_else(|| wrong_size(&launch))
            .or_else(|| of_cooperative(&launch));
        drafts.extend(found);
    }
}

fn malformed(refused: &Refused<'_, '_>) -> Option<Draft> {
    let (check, launch) = (refused.check, refused.launch);
    let snapshot = check.call.snapshot(launch.extra.1, field::EXTRA)?;
    let words: Vec<u64> = snapshot
        .bytes
        .inline()?
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word))
        .collect();
    let (mut buffer, mut size, mut has_end) = (None, None, false);
    let mut unknown = None;
    for pair in words.chunks(2) {
        match *pair {
            [END] | [END, _] => has_end = true,
            [BUFFER_POINTER, value] => buffer = Some(value),
            [BUFFER_SIZE, value] => size = Some(value),
            [key, ..] => unknown = Some(key),
            [] => {}
        }
        if has_end || unknown.is_some() {
            break;
        }
    }
    let rule = rules::EXEC_EXTRA_MALFORMED;
    let label = refused.label();
    let draft = |title, what: String| Some(refused.draft(rule, title, what));
    let by_value = size.filter(|&value| value != 0 && value < LOWEST_ADDRESS);
    if let Some(value) = by_value {
        return draft(
            "size of the parameter buffer given by value",
            format!(
                "launches {label} with extra, whose CU_LAUNCH_PARAM_BUFFER_SIZE has the value \
                 {value:#x}, which is no address. It takes the address of a size_t"
            ),
        );
    }
    // A kernel without parameters takes any.
    let takes_none = layout(refused).is_some_and(|layout| layout.is_empty());
    match (buffer, size) {
        _ if takes_none && check.call.succeeded() => {}
        (Some(0), _) | (_, Some(0)) => {
            return draft(
                "extra with a value of NULL",
                format!(
                    "launches {label} with extra, in which a name is followed by NULL. Each name \
                     needs its value, an address"
                ),
            );
        }
        (Some(_), None) => {
            return draft(
                "parameter buffer without a size",
                format!(
                    "launches {label} with extra that has CU_LAUNCH_PARAM_BUFFER_POINTER but no \
                     CU_LAUNCH_PARAM_BUFFER_SIZE, so the buffer has no effect"
                ),
            );
        }
        (None, Some(_)) => {
            return draft(
                "parameter size without a buffer",
                format!(
                    "launches {label} with extra that has CU_LAUNCH_PARAM_BUFFER_SIZE but no \
                     CU_LAUNCH_PARAM_BUFFER_POINTER"
                ),
            );
        }
        _ => {}
    }
    // Later drivers may have further names, which are small numbers.
    let is_garbage = unknown.is_some_and(|key| key >= LOWEST_ADDRESS);
    let is_cut = unknown.is_none() && words.len() + 1 < MOST_EXTRA;
    if has_end || !(is_garbage || is_cut) {
        return None;
    }
    let found = match unknown {
        Some(key) => {
            format!("after the last value comes {key:#x}, which is not a CU_LAUNCH_PARAM_ constant")
        }
        None => "the memory after the last value cannot be read".to_owned(),
    };
    let what = format!(
        "launches {label} with extra that has no end: {found}. The list must end with \
         CU_LAUNCH_PARAM_END"
    );
    let title = "extra without an end";
    Some(refused.draft(rules::EXEC_EXTRA_UNTERMINATED, title, what))
}

fn of_cooperative(refused: &Refused<'_, '_>) -> Option<Draft> {
    if !refused.launch.is_cooperative {
        return None;
    }
    let what = format!(
        "launches {} cooperatively by attribute, with its parameters in extra. \
         cuLaunchCooperativeKernel, whose rules the attribute takes over, has no extra, and kernel \
         nodes refuse this combination",
        refused.label()
    );
    let title = "cooperative launch with extra";
    let rule = rules::LAUNCH_CONFIG_COOPERATIVE_EXTRA;
    Some(refused.draft(rule, title, what).severity(Severity::Advice))
}

/// A launch of CUDA 3 after a newer one has overwritten what it needs.
pub(super) fn overwritten(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let Some(id) = check.live(Kind::Function).filter(|_| drafts.is_empty()) else {
        return;
    };
    let Some(Some(site)) = check.state.launches.old_state.get(&id) else {
        return;
    };
    let what = format!(
        "launches {} with the block shape and parameters that earlier calls set, but {} launched \
         the same function since and has overwritten them. Set them again, or use only cuLaunchKernel",
        check.label(id),
        at(*site),
    );
    let title = "launch with overwritten parameters";
    drafts.push(
        check
            .draft(rules::EXEC_LEGACY_LAUNCH_STATE_LOST, title, what)
            .object(id),
    );
}
