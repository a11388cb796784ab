//! Snapshots: the bytes behind pointers, as the registry's roles describe them.

use cutape_format::PayloadPolicy;
use cutape_format::file_range::FileRange;
use cutape_format::layout::{BlobRef, INLINE_LIMIT, field, snapshot_flag};
use cutape_registry::{Arguments, Extent, Function, Length, Param, Role};

use crate::file::rows::{Memory, NotKept, Rows};
use crate::file::size_limit;
use crate::hot::frame::Frame;
use crate::hot::plan::Plan;
use crate::hot::recording::Direction;
use crate::hot::thread::{Draft, Kept};
use crate::process::memory;
use crate::state::leads;

/// Longer strings are not the names, paths and ids that the API takes.
const LONGEST_STRING: usize = 64 << 10;

impl Arguments for Frame {
    fn word(&self, position: u8) -> u64 {
        Frame::word(self, position)
    }

    fn pointee(&self, position: u8, bytes: usize) -> Option<u64> {
        let mut number = [0; 8];
        let target = number.get_mut(..bytes)?;
        memory::read_all(Frame::word(self, position), target).then_some(u64::from_le_bytes(number))
    }
}

/// The parameters of a call that are not NULL and that no override looks behind: position,
/// parameter, address.
fn pointers<'a>(
    function: &'static Function,
    frame: &'a Frame,
    plan: &'a Plan,
) -> impl Iterator<Item = (u8, &'static Param, u64)> + 'a {
    (0_u8..)
        .zip(function.params)
        .zip(frame.words)
        .map(|((position, parameter), address)| (position, parameter, address))
        .filter(|&(position, _, address)| address != 0 && plan.owned & 1 << position == 0)
}

/// Writes what the call is going to read.
pub(crate) fn put_pre_call(draft: &mut Draft<'_>, frame: &Frame, plan: &Plan) -> Option<()> {
    let function = frame.description();
    let bytes_of = |length| bytes_of(length, function, frame);
    for (position, parameter, address) in pointers(function, frame, plan) {
        match parameter.role {
            Role::String => string(draft, position, field::POINTEE, address)?,
            Role::In(length) | Role::InOut(length) => {
                bytes(draft, position, field::POINTEE, address, bytes_of(length))?;
            }
            Role::UseMany(_, length) => {
                let length = bytes_of(length).saturating_mul(8);
                bytes(draft, position, field::POINTEE, address, length)?;
            }
            Role::HostRead(length) => {
                let memory = rows(length, function, frame, address);
                payload(
                    draft,
                    position,
                    field::POINTEE,
                    &memory,
                    Direction::ToDevice,
                )?;
            }
            _ => {}
        }
    }
    Some(())
}

/// Writes what a successful call has written.
pub(crate) fn put_post_call(draft: &mut Draft<'_>, frame: &Frame, plan: &Plan) -> Option<()> {
    let function = frame.description();
    let bytes_of = |length| bytes_of(length, function, frame);
    for (position, parameter, address) in pointers(function, frame, plan) {
        match parameter.role {
            Role::Make(..) | Role::Find(..) | Role::Get(_) => {
                written(draft, position, address, parameter.handle_bytes())?;
            }
            Role::FindMany(_, _, length) => {
                let count = bytes_of(length).min(INLINE_LIMIT as u64 / 8);
                bytes(draft, position, field::POINTEE, address, count * 8)?;
            }
            Role::Out(length @ (Length::Fixed(_) | Length::ByAttribute(..)))
            | Role::InOut(length @ Length::Fixed(_)) => {
                written(draft, position, address, bytes_of(length) as usize)?;
            }
            // The driver may have written less than it was allowed to, so the rest need not be
            // readable.
            Role::Out(length) | Role::InOut(length) => {
                let length = bytes_of(length).min(INLINE_LIMIT as u64);
                bytes(draft, position, field::POINTEE, address, length)?;
            }
            Role::Text(length) => {
                let limit = bytes_of(length).min(INLINE_LIMIT as u64) as usize;
                let length = memory::string_length(address, limit).unwrap_or(limit);
                bytes(draft, position, field::POINTEE, address, length as u64)?;
            }
            Role::OutString => {
                written(draft, position, address, 8)?;
                if let Some(text) = memory::word(address).filter(|&text| text != 0) {
                    string(draft, position, field::TEXT, text)?;
                }
            }
            Role::HostWrite(length) if frame.has_copied() => {
                let memory = rows(length, function, frame, address);
                payload(
                    draft,
                    position,
                    field::POINTEE,
                    &memory,
                    Direction::FromDevice,
                )?;
            }
            _ => {}
        }
    }
    Some(())
}

/// The bytes of a length in this call; 0 if they are not known.
pub(crate) fn bytes_of(length: Length, function: &Function, frame: &Frame) -> u64 {
    length.evaluate(function, frame).map_or(0, Extent::content)
}

/// The memory of a length in this call.
fn rows(length: Length, function: &Function, frame: &Frame, address: u64) -> Rows {
    let extent = length.evaluate(function, frame).unwrap_or_default();
    Rows {
        address,
        row: extent.row,
        pitch: extent.pitch,
        rows: extent.rows,
        slice_pitch: 0,
        slices: 1,
    }
}

/// A NUL-terminated string, its NUL included.
pub(crate) fn string(draft: &mut Draft<'_>, position: u8, field: u8, address: u64) -> Option<()> {
    match memory::string_length(address, LONGEST_STRING) {
        Some(length) => bytes(draft, position, field, address, length as u64),
        None => unreadable(draft, position, field),
    }
}

/// A snapshot of memory that could not be read.
pub(crate) fn unreadable(draft: &mut Draft<'_>, position: u8, field: u8) -> Option<()> {
    draft.put_snapshot(position, field, 0, |_| None)
}

/// Memory of the program, read in a way that cannot fault.
pub(crate) fn bytes(
    draft: &mut Draft<'_>,
    position: u8,
    field: u8,
    address: u64,
    length: u64,
) -> Option<()> {
    if length > INLINE_LIMIT as u64 {
        return blob(draft, position, field, &Rows::flat(address, length));
    }
    draft.put_snapshot(position, field, length as usize, |target| {
        memory::read_all(address, target).then_some(0)
    })
}

/// Our own memory.
pub(crate) fn own(draft: &mut Draft<'_>, position: u8, field: u8, source: &[u8]) -> Option<()> {
    if source.len() > INLINE_LIMIT {
        let memory = Rows::flat(source.as_ptr() as u64, source.len() as u64);
        return blob(draft, position, field, &memory);
    }
    put_flagged(draft, position, field, 0, source)
}

/// The number of 4 or 8 bytes that the driver has just written through a pointer.
#[inline]
pub(crate) fn number_at(address: u64, bytes: u8) -> u64 {
    // The first and the last four bytes, without a branch on whether they are the same: programs
    // ask for both in any order.
    let above = bytes.wrapping_sub(4) & 4;
    // SAFETY: the driver has returned success after writing there.
    let (low, high) = unsafe {
        let low = address as *const u32;
        (
            low.read_unaligned(),
            low.byte_add(above.into()).read_unaligned(),
        )
    };
    u64::from(low) | u64::from(high) << (8 * above)
}

/// Bytes that the driver has just written through a pointer, so that they can be read.
fn written(draft: &mut Draft<'_>, position: u8, address: u64, length: usize) -> Option<()> {
    draft.put_snapshot(position, field::POINTEE, length, |target| {
        // SAFETY: the driver has returned success after writing there.
        unsafe {
            core::ptr::copy_nonoverlapping(address as *const u8, target.as_mut_ptr(), target.len());
        }
        Some(0)
    })
}

/// Bytes that are copied to or from a device, kept as the policy says.
pub(crate) fn payload(
    draft: &mut Draft<'_>,
    position: u8,
    field: u8,
    memory: &(impl Memory + ?Sized),
    direction: Direction,
) -> Option<()> {
    let length = memory.length();
    if direction == Direction::ToDevice {
        leads::look_in(memory);
    }
    if direction.policy() == PayloadPolicy::None {
        return omitted(draft, position, field, length);
    }
    if length > INLINE_LIMIT as u64 {
        return kept(draft, position, field, memory, Some(direction));
    }
    if !size_limit::has_room(direction, length) {
        return omitted(draft, position, field, length);
    }
    draft.put_snapshot(position, field, length as usize, |target| {
        let mut rest = target;
        for (address, length) in memory.pieces() {
            let (row, behind) = rest.split_at_mut_checked(length as usize)?;
            if !memory::read_all(address, row) {
                return None;
            }
            rest = behind;
        }
        Some(0)
    })
}

/// Bytes in a chunk of their own.
pub(crate) fn blob(
    draft: &mut Draft<'_>,
    position: u8,
    field: u8,
    memory: &(impl Memory + ?Sized),
) -> Option<()> {
    kept(draft, position, field, memory, None)
}

/// Bytes that are not in the record.
fn kept(
    draft: &mut Draft<'_>,
    position: u8,
    field: u8,
    memory: &(impl Memory + ?Sized),
    payload: Option<Direction>,
) -> Option<()> {
    match draft.thread.keep(memory, payload) {
        Ok(Kept::Blob(BlobRef {
            position: at,
            length,
        })) => {
            let reference = [at.to_le_bytes(), length.to_le_bytes()];
            let reference = reference.as_flattened();
            put_flagged(draft, position, field, snapshot_flag::BLOB, reference)
        }
        Ok(Kept::InFile(part)) => in_file(draft, position, field, &part.range()),
        Err(NotKept::Unreadable) => unreadable(draft, position, field),
        Err(NotKept::Disk | NotKept::NoRoom) => omitted(draft, position, field, memory.length()),
    }
}

/// Bytes that are in a file.
pub(crate) fn in_file(
    draft: &mut Draft<'_>,
    position: u8,
    field: u8,
    range: &FileRange<'_>,
) -> Option<()> {
    draft.put_snapshot(position, field, range.encoded_length(), |target| {
        range.encode(target)?;
        Some(snapshot_flag::IN_FILE)
    })
}

/// The length of bytes that are not kept.
fn omitted(draft: &mut Draft<'_>, position: u8, field: u8, length: u64) -> Option<()> {
    let length = length.to_le_bytes();
    put_flagged(draft, position, field, snapshot_flag::OMITTED, &length)
}

fn put_flagged(
    draft: &mut Draft<'_>,
    position: u8,
    field: u8,
    flags: u16,
    bytes: &[u8],
) -> Option<()> {
    draft.put_snapshot(position, field, bytes.len(), |target| {
        target.copy_from_slice(bytes);
        Some(flags)
    })
}
