//! What stands behind pointers, by the roles of the registry.

use cutape_format::PayloadPolicy;
use cutape_format::file_range::FileRange;
use cutape_format::layout::{BlobRef, INLINE_LIMIT, field, snapshot_flag};
use cutape_format::write::Record;
use cutape_registry::{FUNCTIONS, Length, Role};

use crate::call::{Frame, payload_policy};
use crate::memory as safe_memory;
use crate::pending;
use crate::trace_file::{NotKept, Rows};

/// Longer strings are not the names, paths and ids that the API takes.
const LONGEST_STRING: usize = 64 << 10;

/// Puts what the call is going to read.
pub(crate) fn before(record: &mut Record<'_>, frame: &Frame, function: usize) -> Option<()> {
    let parameters = FUNCTIONS.get(function)?.params;
    for (index, parameter) in parameters.iter().enumerate() {
        let address = frame.words[index];
        if address == 0 || crate::overrides::owns(frame, index) {
            continue;
        }
        let position = index as u8;
        match parameter.role {
            Role::String => string(record, position, field::POINTEE, address)?,
            Role::In(length) | Role::InOut(length) => {
                bytes(
                    record,
                    position,
                    field::POINTEE,
                    address,
                    evaluate(length, frame),
                )?;
            }
            Role::UseMany(_, length) => {
                bytes(
                    record,
                    position,
                    field::POINTEE,
                    address,
                    evaluate(length, frame).saturating_mul(8),
                )?;
            }
            Role::HostRead(length) => {
                payload(
                    record,
                    position,
                    field::POINTEE,
                    &strided(length, frame, address),
                    payload_policy().0,
                )?;
            }
            _ => {}
        }
    }
    Some(())
}

/// Puts what a successful call has written.
pub(crate) fn after(record: &mut Record<'_>, frame: &Frame, function: usize) -> Option<()> {
    let function = FUNCTIONS.get(function)?;
    for (index, parameter) in function.params.iter().enumerate() {
        let address = frame.words[index];
        if address == 0 || crate::overrides::owns(frame, index) {
            continue;
        }
        let position = index as u8;
        match parameter.role {
            Role::Make(..) | Role::Find(..) | Role::Get(_) => {
                written(
                    record,
                    position,
                    field::POINTEE,
                    address,
                    handle_bytes(parameter.c_type),
                )?;
            }
            Role::FindMany(_, _, length) => {
                let count = evaluate(length, frame).min(INLINE_LIMIT as u64 / 8);
                bytes(record, position, field::POINTEE, address, count * 8)?;
            }
            Role::Out(Length::Fixed(length)) | Role::InOut(Length::Fixed(length)) => {
                written(record, position, field::POINTEE, address, length as usize)?;
            }
            // As many bytes as the attribute's type has, and not the number of another parameter.
            Role::Out(length @ Length::ByAttribute(..)) => {
                let length = evaluate(length, frame) as usize;
                written(record, position, field::POINTEE, address, length)?;
            }
            // The driver need not have written all that it was allowed to.
            Role::Out(length) | Role::InOut(length) => {
                let length = evaluate(length, frame).min(INLINE_LIMIT as u64);
                bytes(record, position, field::POINTEE, address, length)?;
            }
            Role::Text(length) => {
                let limit = evaluate(length, frame).min(INLINE_LIMIT as u64) as usize;
                let length = safe_memory::string_length(address, limit).unwrap_or(limit);
                bytes(record, position, field::POINTEE, address, length as u64)?;
            }
            Role::OutString => {
                written(record, position, field::POINTEE, address, 8)?;
                if let Some(text) = safe_memory::word(address).filter(|&text| text != 0) {
                    string(record, position, field::TEXT, text)?;
                }
            }
            Role::HostWrite(length) if !pending::is_asynchronous(function) => {
                payload(
                    record,
                    position,
                    field::POINTEE,
                    &strided(length, frame, address),
                    payload_policy().1,
                )?;
            }
            _ => {}
        }
    }
    Some(())
}

/// Bytes of a handle behind a pointer of that C type.
pub(crate) fn handle_bytes(c_type: &str) -> usize {
    if matches!(c_type, "CUdevice *" | "CUdeviceptr_v1 *") {
        4
    } else {
        8
    }
}

/// The value of a length for this call.
pub(crate) fn evaluate(length: Length, frame: &Frame) -> u64 {
    let word = |at: u8| argument(frame, at);
    match length {
        Length::Fixed(bytes) => u64::from(bytes),
        Length::Param(at) => word(at),
        Length::Product(a, b) => word(a).saturating_mul(word(b)),
        Length::Scaled(at, by) => word(at).saturating_mul(u64::from(by)),
        Length::Pitched(_, element, width, height) => word(element)
            .saturating_mul(word(width))
            .saturating_mul(word(height)),
        Length::PitchedBy(_, element, width, height) => u64::from(element)
            .saturating_mul(word(width))
            .saturating_mul(word(height)),
        Length::AllBut(at, less, by) => word(at)
            .saturating_sub(u64::from(less))
            .saturating_mul(u64::from(by)),
        Length::ByAttribute(at, _) => length
            .attribute_type(word(at))
            .map_or(0, |known| u64::from(known.bytes)),
        Length::Override => 0,
    }
}

/// An argument as a length: its low bytes as its C type has them, or what it points at. Negative counts are none.
fn argument(frame: &Frame, at: u8) -> u64 {
    use cutape_registry::Width;
    let word = frame.words[usize::from(at) % frame.words.len()];
    let Some(parameter) = FUNCTIONS
        .get(frame.function as usize)
        .and_then(|function| function.params.get(usize::from(at)))
    else {
        return 0;
    };
    if parameter.c_type.ends_with('*') {
        // Counts are pointed at as size_t or as int.
        let counted = safe_memory::word(word).unwrap_or(0);
        return if parameter.c_type.contains("int") {
            u64::from(counted as u32)
        } else {
            counted
        };
    }
    match parameter.width {
        Width::Signed(4) => (word as i32).max(0) as u64,
        Width::Unsigned(4) => u64::from(word as u32),
        Width::Unsigned(1) | Width::Signed(1) => u64::from(word as u8),
        _ => word,
    }
}

/// The memory that a length describes.
fn strided(length: Length, frame: &Frame, address: u64) -> Rows {
    let word = |at: u8| argument(frame, at);
    let (pitch, row, rows) = match length {
        Length::Pitched(pitch, element, width, height) => (
            word(pitch),
            word(element).saturating_mul(word(width)),
            word(height),
        ),
        Length::PitchedBy(pitch, element, width, height) => (
            word(pitch),
            u64::from(element).saturating_mul(word(width)),
            word(height),
        ),
        _ => return Rows::flat(address, evaluate(length, frame)),
    };
    Rows {
        address,
        row,
        pitch,
        rows,
        slice_pitch: 0,
        slices: 1,
    }
}

/// A NUL-terminated string, its NUL included.
pub(crate) fn string(record: &mut Record<'_>, position: u8, field: u8, address: u64) -> Option<()> {
    match safe_memory::string_length(address, LONGEST_STRING) {
        Some(length) => bytes(record, position, field, address, length as u64),
        None => unreadable(record, position, field),
    }
}

/// Says that there was something that could not be read.
pub(crate) fn unreadable(record: &mut Record<'_>, position: u8, field: u8) -> Option<()> {
    record.put_snapshot(position, field, 0, |_| None)
}

/// Bytes that the program gave, read in a way that cannot fault.
pub(crate) fn bytes(
    record: &mut Record<'_>,
    position: u8,
    field: u8,
    address: u64,
    length: u64,
) -> Option<()> {
    if length > INLINE_LIMIT as u64 {
        return blob(record, position, field, &Rows::flat(address, length));
    }
    record.put_snapshot(position, field, length as usize, |target| {
        safe_memory::read_all(address, target).then_some(0)
    })
}

/// Bytes of our own.
pub(crate) fn own(record: &mut Record<'_>, position: u8, field: u8, source: &[u8]) -> Option<()> {
    if source.len() > INLINE_LIMIT {
        let memory = Rows::flat(source.as_ptr() as u64, source.len() as u64);
        return blob(record, position, field, &memory);
    }
    record.put_snapshot(position, field, source.len(), |target| {
        target.copy_from_slice(source);
        Some(0)
    })
}

/// The number of 4 or 8 bytes that the driver has just written through a pointer.
#[inline]
pub(crate) fn number_at(address: u64, bytes: u8) -> u64 {
    // Its first and its last four bytes, without asking whether these are the same: programs ask for both in any order.
    let above = bytes.wrapping_sub(4) & 4;
    // SAFETY: the driver returned success after writing there; reading it is no more than it did.
    let (low, high) = unsafe {
        let low = address as *const u32;
        (
            low.read_unaligned(),
            low.byte_add(above.into()).read_unaligned(),
        )
    };
    u64::from(low) | u64::from(high) << (8 * above)
}

/// Bytes that the driver has just written through a pointer that it therefore could write to.
#[inline]
pub(crate) fn written(
    record: &mut Record<'_>,
    position: u8,
    field: u8,
    address: u64,
    length: usize,
) -> Option<()> {
    if field == field::POINTEE && matches!(length, 4 | 8) {
        let number = number_at(address, length as u8);
        return record.put_snapshot_number(position, number, length as u8);
    }
    record.put_snapshot(position, field, length, |target| {
        // SAFETY: the driver returned success after writing there; reading it is no more than it did.
        unsafe {
            core::ptr::copy_nonoverlapping(address as *const u8, target.as_mut_ptr(), target.len())
        };
        Some(0)
    })
}

/// Bytes that are copied to or from a device, kept as the policy says.
pub(crate) fn payload(
    record: &mut Record<'_>,
    position: u8,
    field: u8,
    memory: &Rows,
    policy: PayloadPolicy,
) -> Option<()> {
    let length = memory.length();
    if policy == PayloadPolicy::None {
        return put_flagged(
            record,
            position,
            field,
            snapshot_flag::OMITTED,
            &length.to_le_bytes(),
        );
    }
    if length > INLINE_LIMIT as u64 {
        return blob(record, position, field, memory);
    }
    record.put_snapshot(position, field, length as usize, |target| {
        let mut rest = target;
        for (address, length) in memory.pieces() {
            let (row, behind) = rest.split_at_mut_checked(length as usize)?;
            if !safe_memory::read_all(address, row) {
                return None;
            }
            rest = behind;
        }
        Some(0)
    })
}

/// Bytes in a chunk of their own.
pub(crate) fn blob(record: &mut Record<'_>, position: u8, field: u8, memory: &Rows) -> Option<()> {
    // SAFETY: the state lives as long as its thread, which is this one.
    let state = unsafe { &*crate::thread::current() };
    match state.blob(memory) {
        Ok(BlobRef {
            position: at,
            length,
        }) => {
            let mut reference = [0; 16];
            reference[..8].copy_from_slice(&at.to_le_bytes());
            reference[8..].copy_from_slice(&length.to_le_bytes());
            put_flagged(record, position, field, snapshot_flag::BLOB, &reference)
        }
        Err(NotKept::Unreadable) => unreadable(record, position, field),
        Err(NotKept::Disk) => {
            let length = memory.length();
            put_flagged(
                record,
                position,
                field,
                snapshot_flag::OMITTED,
                &length.to_le_bytes(),
            )
        }
    }
}

/// Bytes that can be had from a file later.
pub(crate) fn in_file(
    record: &mut Record<'_>,
    position: u8,
    field: u8,
    range: &FileRange<'_>,
) -> Option<()> {
    record.put_snapshot(position, field, range.encoded_length(), |target| {
        range.encode(target)?;
        Some(snapshot_flag::IN_FILE)
    })
}

fn put_flagged(
    record: &mut Record<'_>,
    position: u8,
    field: u8,
    flags: u16,
    bytes: &[u8],
) -> Option<()> {
    record.put_snapshot(position, field, bytes.len(), |target| {
        target.copy_from_slice(bytes);
        Some(flags)
    })
}
