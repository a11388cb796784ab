//! Memory Management: memset in one and two dimensions, done when the call returns.

use cutape_driver::types::CUDA_MEMSET_NODE_PARAMS_v2;

use crate::answer::{Answer, INVALID_VALUE};
use crate::argument::Stream;
use crate::dispatch::{Entry, bind};
use crate::graph_work::setting;
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
        state.stream_is_there(stream)?;
    }
    // The address must be aligned to the unit; measured INVALID_VALUE for cuMemsetD32.
    if address.is_multiple_of(unit as u64) {
        Ok(())
    } else {
        Err(INVALID_VALUE)
    }
}

fn fill(stream: Option<Stream>, address: u64, unit: &[u8], count: u64) -> Answer {
    let mut state = lock();
    begin(&state, stream, address, unit.len())?;
    if is_captured(&mut state, stream, address, count, unit, count, 1)? || count == 0 {
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
    let mut state = lock();
    begin(&state, stream, address, unit.len())?;
    if is_captured(&mut state, stream, address, pitch, unit, width, height)? {
        return Ok(());
    }
    for segments in &rows_of(&state, address, pitch, unit.len(), width, height)? {
        set_bytes(segments, unit);
    }
    Ok(())
}

/// The rows of a memset, checked.
fn rows_of(
    state: &State,
    address: u64,
    pitch: u64,
    unit: usize,
    width: u64,
    height: u64,
) -> Answer<Vec<Vec<Segment>>> {
    let mut rows = Vec::new();
    if width == 0 || height == 0 {
        return Ok(rows);
    }
    let row = width.checked_mul(unit as u64).ok_or(INVALID_VALUE)?;
    if height > 1 && (!pitch.is_multiple_of(unit as u64) || pitch < row) {
        return Err(INVALID_VALUE);
    }
    for index in 0..height {
        let start = index
            .checked_mul(pitch)
            .and_then(|offset| address.checked_add(offset))
            .ok_or(INVALID_VALUE)?;
        rows.push(state.device_range(start, row)?);
    }
    Ok(rows)
}

/// The rows of a memset node.
pub(crate) fn node_rows(
    state: &State,
    params: &CUDA_MEMSET_NODE_PARAMS_v2,
) -> Answer<Vec<Vec<Segment>>> {
    let unit = params.elementSize as usize;
    if !matches!(unit, 1 | 2 | 4) || !params.dst.is_multiple_of(unit as u64) {
        return Err(INVALID_VALUE);
    }
    let (width, height) = (params.width as u64, params.height as u64);
    rows_of(state, params.dst, params.pitch as u64, unit, width, height)
}

/// Fills rows with the low bytes of a value.
pub(crate) fn set_rows(rows: &[Vec<Segment>], value: u32, size: u32) {
    let unit = value.to_le_bytes();
    for segments in rows {
        set_bytes(segments, &unit[..size as usize]);
    }
}

/// Puts a memset on a stream that captures into the graph; whether it does.
fn is_captured(
    state: &mut State,
    stream: Option<Stream>,
    address: u64,
    pitch: u64,
    unit: &[u8],
    width: u64,
    height: u64,
) -> Answer<bool> {
    let Some(stream) = stream else {
        return Ok(false);
    };
    let Some(site) = state.capture_of(stream)? else {
        return Ok(false);
    };
    let mut value = [0; 4];
    value[..unit.len()].copy_from_slice(unit);
    let params = CUDA_MEMSET_NODE_PARAMS_v2 {
        dst: address,
        pitch: pitch as usize,
        value: u32::from_le_bytes(value),
        elementSize: unit.len() as u32,
        width: width as usize,
        height: height as usize,
        ctx: state.current()? as *mut _,
    };
    let work = setting(state, params)?;
    state.add_captured(site, work)?;
    Ok(true)
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
