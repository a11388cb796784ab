//! `cuGetProcAddress`: the program gets our entry in place of the driver's function.

use core::ffi::c_void;

use cutape_format::layout::{field, note_kind};

use super::visitor::Visitor;
use crate::hot::frame::Frame;
use crate::hot::thread::{Draft, Thread};
use crate::process::memory;
use crate::{driver, entry_addresses, snapshot};

pub(super) fn visit<V: Visitor>(visitor: V, name: u8, address: u8) -> V {
    visitor
        .owns(1 << address)
        .post_call(move |thread, frame| note_unknown(thread, frame, name, address))
        .put_post_call(move |draft, frame| put_address(draft, frame, address))
        .finish_call(move |frame| replace(frame, address))
}

/// Writes the address that the driver has returned, before `replace` overwrites it.
fn put_address(draft: &mut Draft<'_>, frame: &Frame, address: u8) -> Option<()> {
    if !frame.succeeded() || frame.word(address) == 0 {
        return Some(());
    }
    snapshot::bytes(draft, address, field::POINTEE, frame.word(address), 8)
}

/// Records a name that the driver knows and the registry does not: the program gets the driver's
/// own function.
fn note_unknown(thread: &Thread, frame: &Frame, name: u8, address: u8) {
    let Some(answer) = answer(frame, address) else {
        return;
    };
    if driver::by_address(answer).is_some() {
        return;
    }
    let mut text = [0u8; 128];
    let length = memory::string_length(frame.word(name), text.len()).unwrap_or(0);
    let Some(text) = text.get_mut(..length).filter(|text| !text.is_empty()) else {
        return;
    };
    if memory::read_all(frame.word(name), text) {
        thread.note(note_kind::UNKNOWN_SYMBOL, |draft| draft.put(text));
    }
}

/// Replaces the driver's function by our entry.
fn replace(frame: &Frame, address: u8) {
    if driver::is_patched() {
        return;
    }
    if let Some(function) = answer(frame, address).and_then(driver::by_address) {
        let place = frame.word(address) as *mut *mut c_void;
        // SAFETY: the driver has just written a pointer there.
        unsafe { place.write_unaligned(entry_addresses::of(function)) };
    }
}

fn answer(frame: &Frame, address: u8) -> Option<usize> {
    if !frame.succeeded() || frame.word(address) == 0 {
        return None;
    }
    // SAFETY: the driver has just written a pointer there.
    let answer = unsafe { (frame.word(address) as *const usize).read_unaligned() };
    (answer != 0).then_some(answer)
}
