//! Memory Management: copies. They have happened when the call returns, asynchronous ones too.

use cutape_driver::types::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER};

use crate::answer::{Answer, INVALID_CONTEXT, INVALID_VALUE};
use crate::argument::{In, PER_THREAD, Stream};
use crate::dispatch::{Entry, bind};
use crate::graph_work::copying;
use crate::memory::Segment;
use crate::state::{State, lock};

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuMemcpy", bind(unified)),
    ("cuMemcpyAsync", bind(unified_async)),
    ("cuMemcpyPeer", bind(peer)),
    ("cuMemcpyPeerAsync", bind(peer_async)),
    ("cuMemcpyHtoD", bind(host_to_device)),
    ("cuMemcpyDtoH", bind(device_to_host)),
    ("cuMemcpyDtoD", bind(device_to_device)),
    ("cuMemcpyHtoDAsync", bind(host_to_device_async)),
    ("cuMemcpyDtoHAsync", bind(device_to_host_async)),
    ("cuMemcpyDtoDAsync", bind(device_to_device_async)),
    ("cuMemcpy2D", bind(plane)),
    ("cuMemcpy2DUnaligned", bind(plane)),
    ("cuMemcpy2DAsync", bind(plane_async)),
    ("cuMemcpy3D", bind(volume)),
    ("cuMemcpy3DAsync", bind(volume_async)),
    ("cuMemcpyBatchAsync", bind(batch)),
    (
        "=cuMemcpyBatchAsync",
        bind(
            |to: In<u64>,
             from: In<u64>,
             sizes: In<u64>,
             count: usize,
             a: In<u64>,
             i: In<u64>,
             n: usize,
             _fail: u64,
             s: Stream| { batch(to, from, sizes, count, a, i, n, s) },
        ),
    ),
    ("cuMemcpy3DPeer", bind(volume_peer)),
    ("cuMemcpy3DPeerAsync", bind(volume_peer_async)),
];

/// Largest pitch that the device takes (`CU_DEVICE_ATTRIBUTE_MAX_PITCH`).
const MAX_PITCH: u64 = 0x7fff_ffff;

/// `CU_MEMORYTYPE_HOST`.
const HOST: u32 = 1;
/// `CU_MEMORYTYPE_DEVICE`.
const DEVICE: u32 = 2;
/// `CU_MEMORYTYPE_ARRAY`.
pub(crate) const ARRAY: u32 = 3;
/// `CU_MEMORYTYPE_UNIFIED`.
pub(crate) const UNIFIED: u32 = 4;

/// Which side of a copy an address is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Device,
    /// The host side of a host copy, or either side of a unified one.
    Any,
    /// Bytes of an array, checked already.
    Own,
}

impl State {
    fn side(&self, side: Side, address: u64, size: u64) -> Answer<Vec<Segment>> {
        match side {
            Side::Device => self.device_range(address, size),
            Side::Any => self.any_range(address, size),
            Side::Own => Ok(vec![Segment {
                bytes: address,
                size,
            }]),
        }
    }

    fn copy(&self, to: (Side, u64), from: (Side, u64), size: u64) -> Answer {
        self.current()?;
        if size == 0 {
            return Ok(());
        }
        let target = self.side(to.0, to.1, size)?;
        let source = self.side(from.0, from.1, size)?;
        move_bytes(&target, &source);
        Ok(())
    }

    fn copy_on(&mut self, stream: Stream, to: (Side, u64), from: (Side, u64), size: u64) -> Answer {
        self.stream_is_there(stream)?;
        let Some(site) = self.capture_of(stream)? else {
            return self.copy(to, from, size);
        };
        let kind = |side, other| match (side, other) {
            (Side::Device, _) => DEVICE,
            (_, Side::Device) => HOST,
            _ => UNIFIED,
        };
        let mut params = CUDA_MEMCPY3D::default();
        params.srcMemoryType.0 = kind(from.0, to.0);
        params.dstMemoryType.0 = kind(to.0, from.0);
        (params.srcHost, params.srcDevice) = (from.1 as *const _, from.1);
        (params.dstHost, params.dstDevice) = (to.1 as *mut _, to.1);
        (params.WidthInBytes, params.Height, params.Depth) = (size as usize, 1, 1);
        let work = copying(self, params, self.current()?)?;
        self.add_captured(site, work).map(|_| ())
    }
}

/// Copies between lists of pieces of the same total size; the ranges may overlap as the device allows, that is, with
/// unspecified result.
pub(crate) fn move_bytes(target: &[Segment], source: &[Segment]) {
    let mut targets = target.iter().copied();
    let mut to = Segment { bytes: 0, size: 0 };
    for piece in source {
        let mut from = *piece;
        while from.size > 0 {
            if to.size == 0 {
                let Some(next) = targets.next() else { return };
                to = next;
                continue;
            }
            let size = from.size.min(to.size);
            // SAFETY: known pieces lie in living memory of the driver, which the lock keeps alive; host pieces are the
            // program's own pointers, which the C API has it vouch for. `copy` allows overlap.
            unsafe { std::ptr::copy(from.bytes as *const u8, to.bytes as *mut u8, size as usize) };
            from = Segment {
                bytes: from.bytes + size,
                size: from.size - size,
            };
            to = Segment {
                bytes: to.bytes + size,
                size: to.size - size,
            };
        }
    }
}

fn unified(to: u64, from: u64, size: u64) -> Answer {
    lock().copy((Side::Any, to), (Side::Any, from), size)
}

fn unified_async(to: u64, from: u64, size: u64, stream: Stream) -> Answer {
    lock().copy_on(stream, (Side::Any, to), (Side::Any, from), size)
}

fn check_contexts(state: &State, contexts: [u64; 2]) -> Answer {
    let alive = |context| state.contexts.contains_key(context);
    if contexts.iter().all(alive) {
        Ok(())
    } else {
        Err(INVALID_CONTEXT)
    }
}

fn peer(to: u64, to_context: u64, from: u64, from_context: u64, size: u64) -> Answer {
    let state = lock();
    state.current()?;
    check_contexts(&state, [to_context, from_context])?;
    state.copy((Side::Device, to), (Side::Device, from), size)
}

fn peer_async(
    to: u64,
    to_context: u64,
    from: u64,
    from_context: u64,
    size: u64,
    stream: Stream,
) -> Answer {
    let mut state = lock();
    state.current()?;
    check_contexts(&state, [to_context, from_context])?;
    state.copy_on(stream, (Side::Device, to), (Side::Device, from), size)
}

fn host_to_device(to: u64, from: u64, size: u64) -> Answer {
    lock().copy((Side::Device, to), (Side::Any, from), size)
}

fn device_to_host(to: u64, from: u64, size: u64) -> Answer {
    lock().copy((Side::Any, to), (Side::Device, from), size)
}

fn device_to_device(to: u64, from: u64, size: u64) -> Answer {
    lock().copy((Side::Device, to), (Side::Device, from), size)
}

fn host_to_device_async(to: u64, from: u64, size: u64, stream: Stream) -> Answer {
    lock().copy_on(stream, (Side::Device, to), (Side::Any, from), size)
}

fn device_to_host_async(to: u64, from: u64, size: u64, stream: Stream) -> Answer {
    lock().copy_on(stream, (Side::Any, to), (Side::Device, from), size)
}

fn device_to_device_async(to: u64, from: u64, size: u64, stream: Stream) -> Answer {
    lock().copy_on(stream, (Side::Device, to), (Side::Device, from), size)
}

/// One side of a pitched copy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pitched {
    pub(crate) memory: u32,
    host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    pub(crate) x: u64,
    pub(crate) y: u64,
    pub(crate) z: u64,
    pub(crate) pitch: u64,
    pub(crate) height: u64,
}

impl Pitched {
    /// Takes the place and the layout from the array, if this side is one, and checks that the box lies in it.
    fn take_array(&mut self, state: &State, width: u64, height: u64, depth: u64) -> Answer {
        if self.memory != ARRAY {
            return Ok(());
        }
        let (base, row, rows, planes) = state.array(self.array)?.layout();
        let fits = |start: u64, length: u64, limit: u64| {
            start.checked_add(length).is_some_and(|end| end <= limit)
        };
        if !fits(self.x, width, row) || !fits(self.y, height, rows) || !fits(self.z, depth, planes)
        {
            return Err(INVALID_VALUE);
        }
        (self.device, self.pitch, self.height) = (base, row, rows);
        Ok(())
    }

    /// The address of a row, checked for overflow.
    fn row(&self, row: u64, plane: u64) -> Answer<(Side, u64)> {
        let (side, base) = match self.memory {
            1 => (Side::Any, self.host),      // CU_MEMORYTYPE_HOST
            2 => (Side::Device, self.device), // CU_MEMORYTYPE_DEVICE
            UNIFIED => (Side::Any, self.device),
            ARRAY => (Side::Own, self.device),
            _ => return Err(INVALID_VALUE),
        };
        let rows = self
            .z
            .checked_add(plane)
            .and_then(|plane| plane.checked_mul(self.height))
            .and_then(|rows| rows.checked_add(self.y.checked_add(row)?));
        let offset = rows
            .and_then(|rows| rows.checked_mul(self.pitch))
            .and_then(|bytes| bytes.checked_add(self.x));
        let address = offset
            .and_then(|offset| base.checked_add(offset))
            .ok_or(INVALID_VALUE)?;
        Ok((side, address))
    }
}

/// Copies `depth` planes of `height` rows of `width` bytes; everything is checked before anything moves.
pub(crate) fn pitched(
    state: &State,
    to: Pitched,
    from: Pitched,
    width: u64,
    height: u64,
    depth: u64,
) -> Answer {
    for (target, source) in &moves(state, to, from, width, height, depth)? {
        move_bytes(target, source);
    }
    Ok(())
}

/// Pieces of memory that are written, and those that are read for it.
pub(crate) type Moves = Vec<(Vec<Segment>, Vec<Segment>)>;

/// What such a copy moves.
fn moves(
    state: &State,
    mut to: Pitched,
    mut from: Pitched,
    width: u64,
    height: u64,
    depth: u64,
) -> Answer<Moves> {
    state.current()?;
    for side in [&mut to, &mut from] {
        side.take_array(state, width, height, depth)?;
        // A pitch or height of 0 stands for tightly packed where there is one row or plane to go.
        if side.pitch == 0 {
            side.pitch = width;
        }
        if side.height == 0 {
            side.height = height;
        }
        let beyond = side.x.checked_add(width).is_none_or(|end| end > side.pitch);
        let too_low = depth > 1
            && side
                .y
                .checked_add(height)
                .is_none_or(|end| end > side.height);
        if side.pitch > MAX_PITCH || beyond && height.saturating_mul(depth) > 1 || too_low {
            return Err(INVALID_VALUE);
        }
    }
    let mut rows = Vec::new();
    if width == 0 || height == 0 || depth == 0 {
        return Ok(rows);
    }
    for plane in 0..depth {
        for row in 0..height {
            let (to_side, target) = to.row(row, plane)?;
            let (from_side, source) = from.row(row, plane)?;
            rows.push((
                state.side(to_side, target, width)?,
                state.side(from_side, source, width)?,
            ));
        }
    }
    Ok(rows)
}

fn plane(copy: In<CUDA_MEMCPY2D>) -> Answer {
    let state = lock();
    state.current()?;
    let c = copy.get()?;
    let height = c.Height as u64;
    let to = Pitched {
        memory: c.dstMemoryType.0,
        host: c.dstHost as u64,
        device: c.dstDevice,
        array: c.dstArray as u64,
        x: c.dstXInBytes as u64,
        y: c.dstY as u64,
        z: 0,
        pitch: c.dstPitch as u64,
        height,
    };
    let from = Pitched {
        memory: c.srcMemoryType.0,
        host: c.srcHost as u64,
        device: c.srcDevice,
        array: c.srcArray as u64,
        x: c.srcXInBytes as u64,
        y: c.srcY as u64,
        z: 0,
        pitch: c.srcPitch as u64,
        height,
    };
    pitched(&state, to, from, c.WidthInBytes as u64, height, 1)
}

fn plane_async(copy: In<CUDA_MEMCPY2D>, stream: Stream) -> Answer {
    let mut state = lock();
    state.stream_is_there(stream)?;
    let Some(site) = state.capture_of(stream)? else {
        drop(state);
        return plane(copy);
    };
    let c = copy.get()?;
    let params = CUDA_MEMCPY3D {
        srcXInBytes: c.srcXInBytes,
        srcY: c.srcY,
        srcMemoryType: c.srcMemoryType,
        srcHost: c.srcHost,
        srcDevice: c.srcDevice,
        srcArray: c.srcArray,
        srcPitch: c.srcPitch,
        srcHeight: c.Height,
        dstXInBytes: c.dstXInBytes,
        dstY: c.dstY,
        dstMemoryType: c.dstMemoryType,
        dstHost: c.dstHost,
        dstDevice: c.dstDevice,
        dstArray: c.dstArray,
        dstPitch: c.dstPitch,
        dstHeight: c.Height,
        WidthInBytes: c.WidthInBytes,
        Height: c.Height,
        Depth: 1,
        ..CUDA_MEMCPY3D::default()
    };
    let work = copying(&state, params, state.current()?)?;
    state.add_captured(site, work).map(|_| ())
}

fn volume(copy: In<CUDA_MEMCPY3D>) -> Answer {
    let state = lock();
    state.current()?;
    for (target, source) in &volume_moves(&state, &copy.get()?)? {
        move_bytes(target, source);
    }
    Ok(())
}

/// What a copy of a volume moves, checked.
pub(crate) fn volume_moves(state: &State, c: &CUDA_MEMCPY3D) -> Answer<Moves> {
    let to = Pitched {
        memory: c.dstMemoryType.0,
        host: c.dstHost as u64,
        device: c.dstDevice,
        array: c.dstArray as u64,
        x: c.dstXInBytes as u64,
        y: c.dstY as u64,
        z: c.dstZ as u64,
        pitch: c.dstPitch as u64,
        height: c.dstHeight as u64,
    };
    let from = Pitched {
        memory: c.srcMemoryType.0,
        host: c.srcHost as u64,
        device: c.srcDevice,
        array: c.srcArray as u64,
        x: c.srcXInBytes as u64,
        y: c.srcY as u64,
        z: c.srcZ as u64,
        pitch: c.srcPitch as u64,
        height: c.srcHeight as u64,
    };
    if c.srcLOD != 0 || c.dstLOD != 0 || !c.reserved0.is_null() || !c.reserved1.is_null() {
        return Err(INVALID_VALUE);
    }
    moves(
        state,
        to,
        from,
        c.WidthInBytes as u64,
        c.Height as u64,
        c.Depth as u64,
    )
}

fn volume_async(copy: In<CUDA_MEMCPY3D>, stream: Stream) -> Answer {
    let mut state = lock();
    state.stream_is_there(stream)?;
    let Some(site) = state.capture_of(stream)? else {
        drop(state);
        return volume(copy);
    };
    let work = copying(&state, copy.get()?, state.current()?)?;
    state.add_captured(site, work).map(|_| ())
}

fn volume_peer(copy: In<CUDA_MEMCPY3D_PEER>) -> Answer {
    let state = lock();
    state.current()?;
    let c = copy.get()?;
    check_contexts(&state, [c.srcContext as u64, c.dstContext as u64])?;
    let to = Pitched {
        memory: c.dstMemoryType.0,
        host: c.dstHost as u64,
        device: c.dstDevice,
        array: c.dstArray as u64,
        x: c.dstXInBytes as u64,
        y: c.dstY as u64,
        z: c.dstZ as u64,
        pitch: c.dstPitch as u64,
        height: c.dstHeight as u64,
    };
    let from = Pitched {
        memory: c.srcMemoryType.0,
        host: c.srcHost as u64,
        device: c.srcDevice,
        array: c.srcArray as u64,
        x: c.srcXInBytes as u64,
        y: c.srcY as u64,
        z: c.srcZ as u64,
        pitch: c.srcPitch as u64,
        height: c.srcHeight as u64,
    };
    pitched(
        &state,
        to,
        from,
        c.WidthInBytes as u64,
        c.Height as u64,
        c.Depth as u64,
    )
}

fn volume_peer_async(copy: In<CUDA_MEMCPY3D_PEER>, stream: Stream) -> Answer {
    lock().check_stream(stream)?;
    volume_peer(copy)
}

/// Copies in any order; each must have attributes, which change nothing here.
#[allow(clippy::too_many_arguments)]
fn batch(
    to: In<u64>,
    from: In<u64>,
    sizes: In<u64>,
    count: usize,
    attributes: In<u64>,
    indices: In<u64>,
    attribute_count: usize,
    stream: Stream,
) -> Answer {
    let state = lock();
    state.current()?;
    state.check_stream(stream)?;
    let no_attributes = attributes.is_null() || indices.is_null() || attribute_count == 0;
    // The default stream is refused (cuMemcpyBatchAsync).
    if count == 0
        || count > 1 << 20
        || attribute_count > count
        || no_attributes
        || stream.0 <= PER_THREAD
    {
        return Err(INVALID_VALUE);
    }
    let starts = indices.list(attribute_count)?;
    if starts[0] != 0
        || starts.windows(2).any(|pair| pair[0] >= pair[1])
        || starts[attribute_count - 1] >= count as u64
    {
        return Err(INVALID_VALUE);
    }
    let (targets, sources, lengths) = (to.list(count)?, from.list(count)?, sizes.list(count)?);
    let mut pieces = Vec::new();
    for ((target, source), size) in targets.into_iter().zip(sources).zip(lengths) {
        if size == 0 {
            return Err(INVALID_VALUE);
        }
        pieces.push((
            state.any_range(target, size)?,
            state.any_range(source, size)?,
        ));
    }
    for (target, source) in &pieces {
        move_bytes(target, source);
    }
    Ok(())
}
