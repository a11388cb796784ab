//! `cuGetProcAddress`: the driver is asked, and its answer is mapped to our entry by address.

use core::ffi::c_void;

use cutape_format::layout::{field, note_kind, record_kind};
use cutape_format::write::Record;

use crate::call::Frame;
use crate::thread::Thread;
use crate::{driver, entry, hook, memory, snapshot};

const NAME: usize = 0;
const ADDRESS: usize = 1;

/// Puts the address that the driver gave, which `replace` is about to overwrite.
pub(super) fn after(record: &mut Record<'_>, frame: &Frame) -> Option<()> {
    if frame.result as i32 != 0 || frame.words[ADDRESS] == 0 {
        return Some(());
    }
    snapshot::bytes(
        record,
        ADDRESS as u8,
        field::POINTEE,
        frame.words[ADDRESS],
        8,
    )
}

/// Notes a name that the driver knows and we do not: the program gets the driver's own function.
pub(super) fn note_unknown(state: &Thread, frame: &Frame) {
    let Some(address) = answer(frame) else { return };
    if driver::by_address(address).is_some() {
        return;
    }
    let mut name = [0u8; 128];
    let length = memory::string_length(frame.words[NAME], name.len()).unwrap_or(0);
    if length > 0 && memory::read_all(frame.words[NAME], &mut name[..length]) {
        state.write(record_kind::NOTE, note_kind::UNKNOWN_SYMBOL, |record| {
            record.put(&name[..length])
        });
    }
}

/// Puts our entry in the place of the driver's.
pub(super) fn replace(frame: &Frame) {
    if hook::is_patched() {
        return;
    }
    if let Some(function) = answer(frame).and_then(driver::by_address) {
        let place = frame.words[ADDRESS] as *mut *mut c_void;
        // SAFETY: the driver has just written a pointer there.
        unsafe { place.write_unaligned(entry::address(function)) };
    }
}

fn answer(frame: &Frame) -> Option<usize> {
    if frame.result as i32 != 0 || frame.words[ADDRESS] == 0 {
        return None;
    }
    // SAFETY: the driver has just written a pointer there.
    let address = unsafe { (frame.words[ADDRESS] as *const usize).read_unaligned() };
    (address != 0).then_some(address)
}
