//! Batches: three-dimensional copies, prefetches and discards, memory operations of a stream.

use cutape_driver::types::{
    CUDA_MEMCPY3D_BATCH_OP, CUmemLocation, CUmemcpy3DOperand, CUstreamBatchMemOpParams,
};

use crate::answer::{Answer, INVALID_VALUE, NOT_SUPPORTED};
use crate::argument::{In, PER_THREAD, Stream};
use crate::copy::{ARRAY, Pitched, UNIFIED, pitched};
use crate::dispatch::{Entry, bind};
use crate::hint::Place;
use crate::state::{State, lock};
use crate::stream::{wait_value, write};

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuMemcpy3DBatchAsync", bind(boxes)),
    (
        "=cuMemcpy3DBatchAsync",
        bind(
            |count: usize, list: In<CUDA_MEMCPY3D_BATCH_OP>, _fail: u64, flags: u64, s: Stream| {
                boxes(count, list, flags, s)
            },
        ),
    ),
    ("cuMemPrefetchBatchAsync", bind(prefetch)),
    ("cuMemDiscardAndPrefetchBatchAsync", bind(prefetch)),
    ("cuMemDiscardBatchAsync", bind(discard)),
    ("cuStreamBatchMemOp", bind(operations)),
];

/// Longest batch.
const MOST: usize = 1 << 20;
/// Most memory operations of one call (cuStreamBatchMemOp).
const MOST_OPERATIONS: u32 = 256;

/// An operand of a copy in bytes, whose elements are so many bytes.
fn side(state: &State, operand: &CUmemcpy3DOperand, element: u64, rows: u64) -> Answer<Pitched> {
    let mut side = Pitched::default();
    match operand.type_.0 {
        1 => {
            // SAFETY: the type says that the union holds `ptr`; any bits are numbers.
            let pointer = unsafe { operand.op.ptr };
            side.memory = UNIFIED;
            side.device = pointer.ptr;
            side.pitch = (pointer.rowLength as u64)
                .checked_mul(element)
                .ok_or(INVALID_VALUE)?;
            side.height = match pointer.layerHeight {
                0 => rows,
                height => height as u64,
            };
        }
        2 => {
            // SAFETY: the type says that the union holds `array`; any bits are numbers.
            let array = unsafe { operand.op.array };
            state.array(array.array as u64)?;
            side.memory = ARRAY;
            side.array = array.array as u64;
            side.x = (array.offset.x as u64)
                .checked_mul(element)
                .ok_or(INVALID_VALUE)?;
            (side.y, side.z) = (array.offset.y as u64, array.offset.z as u64);
        }
        _ => return Err(INVALID_VALUE),
    }
    Ok(side)
}

/// Bytes of an element: those of an array that takes part, else one (an assumption from the manual's wording).
fn element(state: &State, operation: &CUDA_MEMCPY3D_BATCH_OP) -> Answer<u64> {
    for operand in [&operation.src, &operation.dst] {
        if operand.type_.0 == 2 {
            // SAFETY: the type says that the union holds `array`; any bits are numbers.
            let array = unsafe { operand.op.array.array };
            return Ok(state.array(array as u64)?.element());
        }
    }
    Ok(1)
}

fn boxes(count: usize, list: In<CUDA_MEMCPY3D_BATCH_OP>, flags: u64, stream: Stream) -> Answer {
    let state = lock();
    state.current()?;
    state.check_stream(stream)?;
    // The default stream is refused (cuMemcpy3DBatchAsync).
    if count == 0 || count > MOST || flags != 0 || stream.0 <= PER_THREAD {
        return Err(INVALID_VALUE);
    }
    for operation in list.list(count)? {
        let element = element(&state, &operation)?;
        let (width, rows, depth) = (
            (operation.extent.width as u64)
                .checked_mul(element)
                .ok_or(INVALID_VALUE)?,
            operation.extent.height as u64,
            operation.extent.depth as u64,
        );
        // CUmemcpySrcAccessOrder: in stream order, during the call, any.
        if width == 0 || rows == 0 || depth == 0 || !(1..=3).contains(&operation.srcAccessOrder.0) {
            return Err(INVALID_VALUE);
        }
        let to = side(&state, &operation.dst, element, rows)?;
        let from = side(&state, &operation.src, element, rows)?;
        pitched(&state, to, from, width, rows, depth)?;
    }
    Ok(())
}

/// The ranges of a batch; each is managed memory.
fn ranges(state: &State, addresses: In<u64>, sizes: In<u64>, count: usize) -> Answer<Vec<u64>> {
    if count == 0 || count > MOST {
        return Err(INVALID_VALUE);
    }
    addresses
        .list(count)?
        .into_iter()
        .zip(sizes.list(count)?)
        .map(|(address, size)| state.managed(address, size))
        .collect()
}

#[allow(clippy::too_many_arguments)]
fn prefetch(
    addresses: In<u64>,
    sizes: In<u64>,
    count: usize,
    places: In<CUmemLocation>,
    indices: In<u64>,
    place_count: usize,
    flags: u64,
    stream: Stream,
) -> Answer {
    let mut state = lock();
    state.current()?;
    state.check_stream(stream)?;
    let bases = ranges(&state, addresses, sizes, count)?;
    if flags != 0 || place_count == 0 || place_count > count {
        return Err(INVALID_VALUE);
    }
    let (places, starts) = (places.list(place_count)?, indices.list(place_count)?);
    let rising = starts.windows(2).all(|pair| pair[0] < pair[1]);
    if starts[0] != 0 || !rising || starts[place_count - 1] >= count as u64 {
        return Err(INVALID_VALUE);
    }
    let mut each = Vec::with_capacity(count);
    for index in 0..count as u64 {
        let which = starts.partition_point(|&start| start <= index) - 1;
        let place = Place::of(places[which]);
        place.check()?;
        each.push(place);
    }
    for (base, place) in bases.into_iter().zip(each) {
        state.prefetched(base, place);
    }
    Ok(())
}

fn discard(addresses: In<u64>, sizes: In<u64>, count: usize, flags: u64, stream: Stream) -> Answer {
    let state = lock();
    state.current()?;
    state.check_stream(stream)?;
    ranges(&state, addresses, sizes, count)?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    Ok(())
}

fn operations(
    stream: Stream,
    count: u32,
    list: In<CUstreamBatchMemOpParams>,
    flags: u32,
) -> Answer {
    {
        let state = lock();
        state.check_stream(stream)?;
    }
    if count == 0 || count > MOST_OPERATIONS || flags != 0 {
        return Err(INVALID_VALUE);
    }
    for operation in list.list(count as usize)? {
        // SAFETY: every member of the union begins with `operation`, and any bits are numbers.
        let kind = unsafe { operation.operation.0 };
        // SAFETY: as above; read where the operation says that it is the one.
        let (wait, write_value) = unsafe { (operation.waitValue, operation.writeValue) };
        // SAFETY: as above.
        let (wanted, value) = unsafe {
            (
                wait.__bindgen_anon_1.value64,
                write_value.__bindgen_anon_1.value64,
            )
        };
        let narrow = |value: u64| value & u64::from(u32::MAX);
        match kind {
            1 => wait_value(stream, wait.address, narrow(wanted), wait.flags, 4)?,
            4 => wait_value(stream, wait.address, wanted, wait.flags, 8)?,
            2 => {
                let bytes = (value as u32).to_le_bytes();
                write(stream, write_value.address, &bytes, write_value.flags)?;
            }
            5 => write(
                stream,
                write_value.address,
                &value.to_le_bytes(),
                write_value.flags,
            )?,
            6 => {}                         // BARRIER: everything is done already
            3 => return Err(NOT_SUPPORTED), // FLUSH_REMOTE_WRITES: the device cannot
            _ => return Err(INVALID_VALUE),
        }
    }
    Ok(())
}
