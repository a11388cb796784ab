//! Call stacks: which calls have one, and how it is taken.
//!
//! A stack is taken while the call is in progress, from the registers that its entry has saved.
//! `walk` follows the native frames with the rules of `rules`, which `unwind_table` computes once
//! per return address from `.eh_frame`; `python` reads the frames of Python. `store` writes each
//! distinct stack once. Files, lines and names are found later, by a reader.
//!
//! While stacks are taken, the recording's state is not `RECORDING`, so every call takes the slow
//! path: the fast one has no instruction for stacks.
//!
//! # Why this way
//!
//! | way | 24 frames | each frame more | bytes a call | what it needs |
//! |---|---|---|---|---|
//! | frame pointers | 10 ns | 1 ns | 16 | every function has one; system Python, libcudart and glibc have none |
//! | rules from `.eh_frame`, kept by address | 327 ns | 9 ns | 16 | nothing |
//! | copying the stack, unwound by the reader | 284 ns | 4 ns | 20,000 and more | the program's files wherever it is read; equal stacks are never equal bytes |
//!
//! Nanoseconds that a call takes more, medians (2026-11-22, 2 cores, glibc 2.36, `benches`,
//! `stack_cost`; of the others the walk or the copy alone). 24 frames of Python take 1.3 us, read
//! with a system call for each 19.6 us. While stacks are taken, a call without one takes 13 ns more
//! than otherwise.

mod bounds;
mod memory_view;
mod modules;
mod python;
mod python_layout;
mod rules;
mod store;
mod unwind_table;
mod walk;
mod words;

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use cutape_format::layout::note_kind;
use cutape_registry::{FUNCTIONS, Family, Function, Role, Stacks, Waits};

use crate::hot::frame::Frame;
use crate::hot::thread::Thread;
use crate::process::errno::Errno;
use crate::process::readable;

/// A `Stacks`.
static CHOSEN: AtomicU8 = AtomicU8::new(Stacks::Off as u8);

/// A bit for each function whose calls have a stack, if any have. Not in `Plan`, whose size every
/// call's address computation has.
static WANTED: [AtomicU64; FUNCTIONS.len().div_ceil(64)] =
    [const { AtomicU64::new(0) }; FUNCTIONS.len().div_ceil(64)];

/// CUDA_ERROR_NOT_READY, with which a poll says "not yet".
const NOT_READY: i32 = 600;

/// Prepares what taking stacks needs. To be called when the trace has been created.
pub(crate) fn configure(stacks: Stacks) {
    CHOSEN.store(stacks as u8, Ordering::Relaxed);
    if stacks == Stacks::Off {
        return;
    }
    for (index, function) in FUNCTIONS.iter().enumerate() {
        if let Some(word) = WANTED.get(index / 64) {
            word.fetch_or(
                u64::from(is_wanted(function)) << (index % 64),
                Ordering::Relaxed,
            );
        }
    }
    store::begin();
    modules::begin();
    python::begin();
}

/// In a forked child: the parent's trace has what was stored.
pub(crate) fn forget() {
    if is_on() {
        readable::forget();
    }
    CHOSEN.store(Stacks::Off as u8, Ordering::Relaxed);
    store::forget();
}

/// Whether stacks are taken.
pub(crate) fn is_on() -> bool {
    CHOSEN.load(Ordering::Relaxed) != Stacks::Off as u8
}

/// Whether calls of a function always have a stack: what creates or ends something, or waits.
fn is_wanted(function: &Function) -> bool {
    let begins_or_ends = |role| matches!(role, Role::Make(..) | Role::Destroy(_));
    function.waits != Waits::No
        || function
            .params
            .iter()
            .any(|parameter| begins_or_ends(parameter.role))
        || matches!(
            function.family,
            Family::PrimaryContext(_)
                | Family::ModuleLoad(_)
                | Family::LibraryLoad(_)
                | Family::ModuleUnload
                | Family::LibraryUnload
                | Family::Link(_)
                | Family::Memory(_)
                | Family::HostMemory(_)
                | Family::VirtualMemory(_)
        )
}

fn has_stack(frame: &Frame) -> bool {
    let word = WANTED.get(frame.index() / 64);
    let word = word.map_or(0, |word| word.load(Ordering::Relaxed));
    word >> (frame.index() % 64) & 1 != 0
}

/// Writes the stack of a call whose enter record has been written, if it is to have one already.
#[cold]
pub(crate) fn entered(thread: &Thread, frame: &Frame) {
    let chosen = CHOSEN.load(Ordering::Relaxed);
    if chosen == Stacks::All as u8 || has_stack(frame) && chosen == Stacks::Some as u8 {
        write(thread, frame);
    }
}

/// Writes the stack of a call that has failed, unless it has one.
#[cold]
pub(crate) fn returned(thread: &Thread, frame: &Frame) {
    let result = frame.result as i32;
    let has_failed = result != 0 && result != NOT_READY && frame.description().returns_result;
    let is_chosen = CHOSEN.load(Ordering::Relaxed) == Stacks::Some as u8;
    if is_chosen && has_failed && !has_stack(frame) {
        write(thread, frame);
    }
}

fn write(thread: &Thread, frame: &Frame) {
    let _errno = Errno::keep();
    if let Some(id) = walk::stack_of(thread, frame) {
        thread.note(note_kind::STACK, |draft| draft.put_encoded(id));
    }
}
