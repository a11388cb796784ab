//! Batches: three-dimensional copies, prefetches and discards, memory operations of a stream.

use cutape_driver::types::{
    CUDA_MEMCPY3D_BATCH_OP, CUmemLocation, CUmemcpy3DOperand, CUstreamBatchMemOpParams,
};

use crate::call::answer::{Answer, INVALID_VALUE, invalid_if};
use crate::call::argument::{ASYNC, In, Site, Stream, arguments};
use crate::call::entry::entries;
use crate::object::memory::Location;
use crate::state::{Current, State, lock};
use crate::work::batch::{MAX_COUNT, read_starts};
use crate::work::copy::{self, ARRAY, Pitched, UNIFIED, moves};
use crate::work::memory_operation::{self, Operation};
use crate::work::node::MAX_OPERATIONS;

entries! {
    cuMemcpy3DBatchAsync: boxes;
    [symbol] cuMemcpy3DBatchAsync:
        |count: usize, list: In<CUDA_MEMCPY3D_BATCH_OP>, _fail: u64, flags: u64, stream: Stream|
        boxes(count, list, flags, stream);
    cuMemPrefetchBatchAsync: prefetch;
    cuMemDiscardAndPrefetchBatchAsync: prefetch;
    cuMemDiscardBatchAsync: discard;
    cuStreamBatchMemOp: operations;
}

// CUmemcpy3DOperandType.
const POINTER_OPERAND: u32 = 1;
const ARRAY_OPERAND: u32 = 2;

/// An operand in bytes, whose elements have that many bytes.
fn side(state: &State, operand: &CUmemcpy3DOperand, element: u64, rows: u64) -> Answer<Pitched> {
    let mut side = Pitched::default();
    match operand.type_.0 {
        POINTER_OPERAND => {
            // SAFETY: by the type the union holds `ptr`; any bits are numbers.
            let pointer = unsafe { operand.op.ptr };
            side.memory = UNIFIED;
            side.device = pointer.ptr;
            let pitch = (pointer.rowLength as u64).checked_mul(element);
            side.pitch = pitch.ok_or(INVALID_VALUE)?;
            side.height = match pointer.layerHeight {
                0 => rows,
                height => height as u64,
            };
        }
        ARRAY_OPERAND => {
            // SAFETY: by the type the union holds `array`; any bits are numbers.
            let array = unsafe { operand.op.array };
            state.arrays.find(array.array as u64)?;
            side.memory = ARRAY;
            side.array = array.array as u64;
            let x = (array.offset.x as u64).checked_mul(element);
            side.x = x.ok_or(INVALID_VALUE)?;
            (side.y, side.z) = (array.offset.y as u64, array.offset.z as u64);
        }
        _ => return Err(INVALID_VALUE),
    }
    Ok(side)
}

/// Bytes of an element: those of an array that takes part, else one (assumed from the manual's
/// wording).
fn element(state: &State, operation: &CUDA_MEMCPY3D_BATCH_OP) -> Answer<u64> {
    for operand in [&operation.src, &operation.dst] {
        if operand.type_.0 == ARRAY_OPERAND {
            // SAFETY: by the type the union holds `array`; any bits are numbers.
            let array = unsafe { operand.op.array.array };
            return Ok(state.arrays.find(array as u64)?.element());
        }
    }
    Ok(1)
}

fn boxes(count: usize, list: In<CUDA_MEMCPY3D_BATCH_OP>, flags: u64, stream: Stream) -> Answer {
    let mut state = lock();
    state.current()?;
    state.check_uncaptured(stream)?;
    let is_counted = (1..=MAX_COUNT).contains(&count);
    // The default stream is refused (cuMemcpy3DBatchAsync).
    invalid_if(!is_counted || flags != 0 || stream.is_default())?;
    for operation in list.list(count)? {
        let element = element(&state, &operation)?;
        let bytes = (operation.extent.width as u64).checked_mul(element);
        let width = bytes.ok_or(INVALID_VALUE)?;
        let (rows, depth) = (
            operation.extent.height as u64,
            operation.extent.depth as u64,
        );
        // CUmemcpySrcAccessOrder: in stream order, during the call, any.
        let is_ordered = (1..=3).contains(&operation.srcAccessOrder.0);
        let is_empty = width == 0 || rows == 0 || depth == 0;
        invalid_if(is_empty || !is_ordered)?;
        let to = side(&state, &operation.dst, element, rows)?;
        let from = side(&state, &operation.src, element, rows)?;
        let moves = moves(&state, to, from, [width, rows, depth])?;
        let places = (to.place(&state), from.place(&state));
        copy::enqueue(state, Site::<ASYNC>(stream), moves, places)?;
        state = lock();
    }
    Ok(())
}

arguments! {
    /// Ranges of managed memory.
    struct Ranges {
        addresses: In<u64>,
        sizes: In<u64>,
        count: usize,
    }
}

impl Ranges {
    /// The base of each range's allocation.
    fn bases(&self, state: &State) -> Answer<Vec<u64>> {
        let count = self.count;
        invalid_if(count == 0 || count > MAX_COUNT)?;
        let ranges = self
            .addresses
            .list(count)?
            .into_iter()
            .zip(self.sizes.list(count)?);
        ranges
            .map(|(address, size)| state.managed(address, size))
            .collect()
    }
}

fn prefetch(
    mut state: Current,
    ranges: Ranges,
    locations: In<CUmemLocation>,
    indices: In<u64>,
    location_count: usize,
    flags: u64,
    stream: Stream,
) -> Answer {
    state.check_uncaptured(stream)?;
    let bases = ranges.bases(&state)?;
    invalid_if(flags != 0)?;
    let starts = read_starts(indices, location_count, ranges.count)?;
    let locations = locations.list(location_count)?;
    let location_of = |index| {
        let holding = starts.partition_point(|&start| start <= index as u64) - 1;
        let location = Location::from(locations[holding]);
        location.check().map(|()| location)
    };
    let locations = (0..ranges.count)
        .map(location_of)
        .collect::<Answer<Vec<_>>>()?;
    for (base, location) in bases.into_iter().zip(locations) {
        state.note_prefetch(base, location);
    }
    Ok(())
}

fn discard(state: Current, ranges: Ranges, flags: u64, stream: Stream) -> Answer {
    state.check_uncaptured(stream)?;
    ranges.bases(&state)?;
    invalid_if(flags != 0)
}

/// Does one operation after the other; an error leaves the ones before it done.
fn operations(
    stream: Stream,
    count: u32,
    list: In<CUstreamBatchMemOpParams>,
    flags: u32,
) -> Answer {
    lock().check_uncaptured(stream)?;
    invalid_if(count == 0 || count > MAX_OPERATIONS || flags != 0)?;
    for operation in list.list(count as usize)? {
        let operation = Operation::read(&operation)?;
        let mut state = lock();
        state.check_uncaptured(stream)?;
        let work = memory_operation::action(&state, operation)?;
        state.enqueue(stream, work)?;
    }
    Ok(())
}
