//! Functions that a program may call if it has no NVTX: `docs/ranges.md` shows how to find them.

use core::ffi::c_char;

use cutape_format::layout::{MarkerNote, marker_action, marker_source};

use super::put;
use super::text::Text;

fn put_action(action: u8, text: *const c_char) {
    let note = MarkerNote {
        action,
        source: marker_source::RECORDER,
        ..MarkerNote::default()
    };
    put(note, b"", Text::of_bytes(text as u64).bytes());
}

/// Marks this moment; the text ends in NUL.
#[unsafe(no_mangle)]
extern "C" fn cutape_mark(text: *const c_char) {
    put_action(marker_action::MARK, text);
}

/// Begins a range of this thread, inside the one that it is in.
#[unsafe(no_mangle)]
extern "C" fn cutape_range_push(name: *const c_char) {
    put_action(marker_action::PUSH, name);
}

/// Ends the range of this thread that was begun last.
#[unsafe(no_mangle)]
extern "C" fn cutape_range_pop() {
    put_action(marker_action::POP, core::ptr::null());
}
