//! Memory Management: memset in one and two dimensions, done when the call returns.

use crate::answer::{Answer, INVALID_VALUE};
use crate::argument::Stream;
use crate::dispatch::{Entry, bind};
use crate::memory::Segment;
use crate::state::{State, lock};

pub(crate) const ENTRIES: &[Entry] = &[
    (
        "cuMemsetD8",
        bind(|address: u64, value: u8, n: u64| fill(None, address, &[value], n)),
    ),
    (
        "cuMemsetD16",
        bind(|address: u64, value: u16, n: u64| fill(None, address, &value.to_le_bytes(), n)),
    ),
    (
        "cuMemsetD32",
        bind(|address: u64, value: u32, n: u64| fill(None, address, &value.to_le_bytes(), n)),
    ),
    (
        "cuMemsetD8Async",
        bind(|address: u64, value: u8, n: u64, s: Stream| fill(Some(s), address, &[value], n)),
    ),
    (
        "cuMemsetD16Async",
        bind(|address: u64, value: u16, n: u64, s: Stream| {
            fill(Some(s), address, &value.to_le_bytes(), n)
        }),
    ),
    (
        "cuMemsetD32Async",
        bind(|address: u64, value: u32, n: u64, s: Stream| {
            fill(Some(s), address, &value.to_le_bytes(), n)
        }),
    ),
    (
        "cuMemsetD2D8",
        bind(|a: u64, p: u64, value: u8, w: u64, h: u64| fill_rows(None, a, p, &[value], w, h)),
    ),
    (
        "cuMemsetD2D16",
        bind(|a: u64, p: u64, value: u16, w: u64, h: u64| {
            fill_rows(None, a, p, &value.to_le_bytes(), w, h)
        }),
    ),
    (
        "cuMemsetD2D32",
        bind(|a: u64, p: u64, value: u32, w: u64, h: u64| {
            fill_rows(None, a, p, &value.to_le_bytes(), w, h)
        }),
    ),
    (
        "cuMemsetD2D8Async",
        bind(|a: u64, p: u64, value: u8, w: u64, h: u64, s: Stream| {
            fill_rows(Some(s), a, p, &[value], w, h)
        }),
    ),
    (
        "cuMemsetD2D16Async",
        bind(|a: u64, p: u64, value: u16, w: u64, h: u64, s: Stream| {
            fill_rows(Some(s), a, p, &value.to_le_bytes(), w, h)
        }),
    ),
    (
        "cuMemsetD2D32Async",
        bind(|a: u64, p: u64, value: u32, w: u64, h: u64, s: Stream| {
            fill_rows(Some(s), a, p, &value.to_le_bytes(), w, h)
        }),
    ),
];

fn begin(state: &State, stream: Option<Stream>, address: u64, unit: usize) -> Answer {
    state.current()?;
    if let Some(stream) = stream {
        state.check_stream(stream)?;
    }
    // The address must be aligned to the unit; measured INVALID_VALUE for cuMemsetD32.
    if address.is_multiple_of(unit as u64) {
        Ok(())
    } else {
        Err(INVALID_VALUE)
    }
}

fn fill(stream: Option<Stream>, address: u64, unit: &[u8], count: u64) -> Answer {
    let state = lock();
    begin(&state, stream, address, unit.len())?;
    if count == 0 {
        return Ok(());
    }
    let size = count.checked_mul(unit.len() as u64).ok_or(INVALID_VALUE)?;
    set_bytes(&state.device_range(address, size)?, unit);
    Ok(())
}

fn fill_rows(
    stream: Option<Stream>,
    address: u64,
    pitch: u64,
    unit: &[u8],
    width: u64,
    height: u64,
) -> Answer {
    let state = lock();
    begin(&state, stream, address, unit.len())?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    let row = width.checked_mul(unit.len() as u64).ok_or(INVALID_VALUE)?;
    if !pitch.is_multiple_of(unit.len() as u64) || height > 1 && pitch < row {
        return Err(INVALID_VALUE);
    }
    let mut rows = Vec::new();
    for index in 0..height {
        let start = index
            .checked_mul(pitch)
            .and_then(|offset| address.checked_add(offset))
            .ok_or(INVALID_VALUE)?;
        rows.push(state.device_range(start, row)?);
    }
    for segments in &rows {
        set_bytes(segments, unit);
    }
    Ok(())
}

/// Repeats the unit over the pieces; pieces are multiples of 2 MiB apart from the ends, so no unit straddles two.
fn set_bytes(segments: &[Segment], unit: &[u8]) {
    for segment in segments {
        // SAFETY: the segment lies in living memory of the driver, which the lock held by the caller keeps alive.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(segment.bytes as *mut u8, segment.size as usize)
        };
        if unit.iter().all(|byte| *byte == unit[0]) {
            bytes.fill(unit[0]);
            continue;
        }
        for place in bytes.chunks_mut(unit.len()) {
            place.copy_from_slice(&unit[..place.len()]);
        }
    }
}
