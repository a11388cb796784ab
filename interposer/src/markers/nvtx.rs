//! NVTX 3: its header-only library loads the library that `NVTX_INJECTION64_PATH` names and calls
//! `InitializeInjectionNvtx2`, which replaces its functions. Each library of a program that uses
//! NVTX has a copy of these and does so for itself.
//!
//! Numbers and layouts are those of the public headers (NVTX 3.0 to 3.2): `nvtxTypes.h`,
//! `nvToolsExt.h`.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use cutape_format::layout::{MarkerNote, marker_action, marker_payload, marker_source};
use cutape_registry::RecorderSetting;

use super::text::Text;
use super::{names, put};
use crate::process::{env, readable};

/// The export table that leads to the function tables.
const CALLBACKS: u32 = 1;
/// The function tables: of functions without a domain, and with one.
const CORE: u32 = 1;
const CORE2: u32 = 5;

/// What a push or pop returns if depths are not tracked, and without any tool.
const NOT_TRACKED: c_int = -2;

type GetExportTable = unsafe extern "C" fn(u32) -> *const ExportTable;
/// The place of a function in NVTX's library.
type Place = *mut *const c_void;

#[repr(C)]
struct ExportTable {
    size: usize,
    function_table: Option<unsafe extern "C" fn(u32, *mut *const Place, *mut u32) -> c_int>,
}

/// The start of an event's attributes; `size` bytes of them are valid.
const ATTRIBUTES_LENGTH: usize = 48;

/// Kinds of message in an event's attributes.
mod message {
    pub(super) const BYTES: u32 = 1;
    pub(super) const WIDE: u32 = 2;
    pub(super) const REGISTERED: u32 = 3;
}

/// Attaches us to a copy of NVTX's library. 0 if this process is not to be recorded: then NVTX does
/// nothing more.
///
/// # Safety
/// `get` is NVTX's function.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "NVTX gives the name")]
unsafe extern "C" fn InitializeInjectionNvtx2(get: Option<GetExportTable>) -> c_int {
    if env::is_privileged() || env::variable(RecorderSetting::Trace.c_name()).is_none() {
        return 0;
    }
    // SAFETY: as the caller says; the answer is NULL or a table that is valid for good.
    let Some(table) = get.and_then(|get| unsafe { get(CALLBACKS).as_ref() }) else {
        return 0;
    };
    let Some(function_table) = table
        .function_table
        .filter(|_| table.size >= size_of::<ExportTable>())
    else {
        return 0;
    };
    for (module, functions) in [(CORE, &core_functions()[..]), (CORE2, &domain_functions())] {
        let (mut places, mut count) = (core::ptr::null(), 0);
        // SAFETY: NVTX's function; both targets are valid for writing.
        let found = unsafe { function_table(module, &raw mut places, &raw mut count) };
        if found == 0 || places.is_null() {
            continue;
        }
        for &(number, function) in functions {
            if number < count {
                // SAFETY: the table has `count` entries, each NULL or the place of a function.
                unsafe {
                    let place = places.add(number as usize).read();
                    if !place.is_null() {
                        place.write(function);
                    }
                }
            }
        }
    }
    1
}

/// The functions without a domain, by number.
fn core_functions() -> [(u32, *const c_void); 11] {
    [
        (1, mark_ex as *const c_void),
        (2, mark_bytes as *const c_void),
        (3, mark_wide as *const c_void),
        (4, start_ex as *const c_void),
        (5, start_bytes as *const c_void),
        (6, start_wide as *const c_void),
        (7, end as *const c_void),
        (8, push_ex as *const c_void),
        (9, push_bytes as *const c_void),
        (10, push_wide as *const c_void),
        (11, pop as *const c_void),
    ]
}

/// The functions with a domain, by number.
fn domain_functions() -> [(u32, *const c_void); 9] {
    [
        (1, domain_mark as *const c_void),
        (2, domain_start as *const c_void),
        (3, domain_end as *const c_void),
        (4, domain_push as *const c_void),
        (5, domain_pop as *const c_void),
        (10, register_bytes as *const c_void),
        (11, register_wide as *const c_void),
        (12, create_domain_bytes as *const c_void),
        (13, create_domain_wide as *const c_void),
    ]
}

/// An event before it is written.
fn event(action: u8, id: u64) -> MarkerNote {
    MarkerNote {
        action,
        id,
        source: marker_source::NVTX,
        ..MarkerNote::default()
    }
}

fn put_bytes(action: u8, id: u64, text: u64) {
    put(event(action, id), b"", Text::of_bytes(text).bytes());
}

fn put_wide(action: u8, id: u64, text: u64) {
    put(event(action, id), b"", Text::of_wide(text).bytes());
}

/// Writes an event with attributes.
fn put_attributes(action: u8, id: u64, domain: u64, attributes: u64) {
    let mut note = event(action, id);
    let domain = names::name(domain);
    let mut bytes = [0; ATTRIBUTES_LENGTH];
    if !readable::read_all(attributes, &mut bytes) {
        return put(note, domain, b"");
    }
    let half = |at: usize| {
        let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    let word = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
    // Behind the version (u16) is the size (u16).
    if ((half(0) >> 16) as usize) < ATTRIBUTES_LENGTH {
        return put(note, domain, b"");
    }
    note.category = half(4);
    // 1 is ARGB, the only type.
    note.color = if half(8) == 1 { half(12) } else { 0 };
    note.payload_type = match half(16) {
        known @ 1..=6 => known as u8,
        _ => marker_payload::NONE,
    };
    note.payload = match note.payload_type {
        marker_payload::NONE => 0,
        marker_payload::U64 | marker_payload::I64 | marker_payload::F64 => word(24),
        _ => u64::from(half(24)),
    };
    let message = word(40);
    match half(32) {
        message::BYTES => put(note, domain, Text::of_bytes(message).bytes()),
        message::WIDE => put(note, domain, Text::of_wide(message).bytes()),
        message::REGISTERED => put(note, domain, names::name(message)),
        _ => put(note, domain, b""),
    }
}

/// A new id for a range that is started.
fn new_id() -> u64 {
    static IDS: AtomicU64 = AtomicU64::new(1);
    IDS.fetch_add(1, Ordering::Relaxed)
}

extern "C" fn mark_ex(attributes: u64) {
    put_attributes(marker_action::MARK, 0, 0, attributes);
}

extern "C" fn mark_bytes(text: u64) {
    put_bytes(marker_action::MARK, 0, text);
}

extern "C" fn mark_wide(text: u64) {
    put_wide(marker_action::MARK, 0, text);
}

extern "C" fn start_ex(attributes: u64) -> u64 {
    domain_start(0, attributes)
}

extern "C" fn start_bytes(text: u64) -> u64 {
    let id = new_id();
    put_bytes(marker_action::START, id, text);
    id
}

extern "C" fn start_wide(text: u64) -> u64 {
    let id = new_id();
    put_wide(marker_action::START, id, text);
    id
}

extern "C" fn end(id: u64) {
    domain_end(0, id);
}

extern "C" fn push_ex(attributes: u64) -> c_int {
    domain_push(0, attributes)
}

extern "C" fn push_bytes(text: u64) -> c_int {
    put_bytes(marker_action::PUSH, 0, text);
    NOT_TRACKED
}

extern "C" fn push_wide(text: u64) -> c_int {
    put_wide(marker_action::PUSH, 0, text);
    NOT_TRACKED
}

extern "C" fn pop() -> c_int {
    domain_pop(0)
}

extern "C" fn domain_mark(domain: u64, attributes: u64) {
    put_attributes(marker_action::MARK, 0, domain, attributes);
}

extern "C" fn domain_start(domain: u64, attributes: u64) -> u64 {
    let id = new_id();
    put_attributes(marker_action::START, id, domain, attributes);
    id
}

extern "C" fn domain_end(domain: u64, id: u64) {
    put(event(marker_action::END, id), names::name(domain), b"");
}

extern "C" fn domain_push(domain: u64, attributes: u64) -> c_int {
    put_attributes(marker_action::PUSH, 0, domain, attributes);
    NOT_TRACKED
}

extern "C" fn domain_pop(domain: u64) -> c_int {
    put(event(marker_action::POP, 0), names::name(domain), b"");
    NOT_TRACKED
}

extern "C" fn register_bytes(_domain: u64, text: u64) -> u64 {
    names::register(Text::of_bytes(text).bytes())
}

extern "C" fn register_wide(_domain: u64, text: u64) -> u64 {
    names::register(Text::of_wide(text).bytes())
}

extern "C" fn create_domain_bytes(name: u64) -> u64 {
    names::register(Text::of_bytes(name).bytes())
}

extern "C" fn create_domain_wide(name: u64) -> u64 {
    names::register(Text::of_wide(name).bytes())
}
