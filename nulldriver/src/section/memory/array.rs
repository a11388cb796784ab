//! Memory Management: CUDA arrays.

use cutape_driver::types::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY_SPARSE_PROPERTIES,
    CUDA_ARRAY3D_DESCRIPTOR,
};

use crate::call::answer::{
    Answer, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, invalid_if, reject_if,
    valid_if,
};
use crate::call::argument::{ASYNC, In, Out, OutRef, SYNC, Site, arguments};
use crate::call::entry::entries;
use crate::object::array::{Array, MipmappedArray, element_bytes};
use crate::object::device::check_device;
use crate::object::memory::{Place, Segment};
use crate::object::pages::Pages;
use crate::state::{Current, Locked, State, lock};
use crate::work::copy as copies;

entries! {
    cuArrayCreate: create;
    cuArray3DCreate: create_3d;
    cuArrayDestroy: destroy;
    cuArrayGetDescriptor: get_descriptor;
    cuArray3DGetDescriptor: get_descriptor_3d;
    cuMemcpyHtoA: |to: Part, from: u64, size: u64, site: Site<SYNC>|
        copy(Side::Part(to), Side::Host(from), size, site);
    cuMemcpyAtoH: |to: u64, from: Part, size: u64, site: Site<SYNC>|
        copy(Side::Host(to), Side::Part(from), size, site);
    cuMemcpyHtoAAsync: |to: Part, from: u64, size: u64, site: Site<ASYNC>|
        copy(Side::Part(to), Side::Host(from), size, site);
    cuMemcpyAtoHAsync: |to: u64, from: Part, size: u64, site: Site<ASYNC>|
        copy(Side::Host(to), Side::Part(from), size, site);
    cuMemcpyDtoA: |to: Part, from: u64, size: u64, site: Site<SYNC>|
        copy(Side::Part(to), Side::Device(from), size, site);
    cuMemcpyAtoD: |to: u64, from: Part, size: u64, site: Site<SYNC>|
        copy(Side::Device(to), Side::Part(from), size, site);
    cuMemcpyAtoA: |to: Part, from: Part, size: u64, site: Site<SYNC>|
        copy(Side::Part(to), Side::Part(from), size, site);
    cuMipmappedArrayCreate: create_levels;
    cuMipmappedArrayGetLevel: get_level;
    cuMipmappedArrayDestroy: |levels: u64| remove_levels(&mut lock(), levels);
    // No array has several planes, is sparse or is mapped later: INVALID_VALUE
    // (cuArrayGetSparseProperties).
    cuArrayGetPlane: |_plane: OutRef<u64>, array: u64|
        lock().arrays.find(array).and(Err(INVALID_VALUE));
    cuArrayGetSparseProperties: |_result: OutRef<CUDA_ARRAY_SPARSE_PROPERTIES>, array: u64|
        lock().arrays.find(array).and(Err(INVALID_VALUE));
    cuArrayGetMemoryRequirements:
        |_result: OutRef<CUDA_ARRAY_MEMORY_REQUIREMENTS>, array: u64, device: i32|
        lock().arrays.find(array).and(check_device(device)).and(Err(INVALID_VALUE));
    cuMipmappedArrayGetSparseProperties:
        |_result: OutRef<CUDA_ARRAY_SPARSE_PROPERTIES>, levels: u64|
        lock().mipmapped.find(levels).and(Err(INVALID_VALUE));
    cuMipmappedArrayGetMemoryRequirements:
        |_result: OutRef<CUDA_ARRAY_MEMORY_REQUIREMENTS>, levels: u64, device: i32|
        lock().mipmapped.find(levels).and(check_device(device)).and(Err(INVALID_VALUE));
}

arguments! {
    /// The part of a one-dimensional array that a copy starts at.
    struct Part {
        array: u64,
        offset: u64,
    }
}

/// One side of a linear copy.
enum Side {
    Part(Part),
    Host(u64),
    Device(u64),
}

impl Side {
    fn place(&self, state: &State) -> Place {
        match *self {
            Side::Part(_) => Place::Device,
            Side::Host(address) | Side::Device(address) => state.place_at(address),
        }
    }

    fn segments(&self, state: &State, size: u64) -> Answer<Vec<Segment>> {
        match *self {
            Side::Part(Part { array, offset }) => {
                let layout = state.arrays.find(array)?.layout();
                let fits = offset
                    .checked_add(size)
                    .is_some_and(|end| end <= layout.row);
                valid_if(fits && layout.rows * layout.planes == 1)?;
                let bytes = layout.base + offset;
                Ok(vec![Segment::own(bytes, size)])
            }
            // An empty range is not checked.
            Side::Host(_) | Side::Device(_) if size == 0 => Ok(Vec::new()),
            Side::Host(address) => state.any_range(address, size),
            Side::Device(address) => state.device_range(address, size),
        }
    }
}

fn copy<const IS_ASYNC: bool>(to: Side, from: Side, size: u64, site: Site<IS_ASYNC>) -> Answer {
    let state = lock();
    state.current()?;
    if IS_ASYNC {
        state.check_uncaptured(site.0)?;
    }
    // The array is checked first.
    let (target, source) = match to {
        Side::Part(_) => {
            let target = to.segments(&state, size)?;
            (target, from.segments(&state, size)?)
        }
        Side::Host(_) | Side::Device(_) => {
            let source = from.segments(&state, size)?;
            (to.segments(&state, size)?, source)
        }
    };
    let places = (to.place(&state), from.place(&state));
    copies::enqueue(state, site, vec![(target, source)], places)
}

/// Creates an array in the current context.
fn create_array(state: &mut State, shape: CUDA_ARRAY3D_DESCRIPTOR, levels: u64) -> Answer<u64> {
    // Longest sides that the device takes (CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE*).
    let limits = match (shape.Height, shape.Depth) {
        (0, 0) => [131_072, 0, 0],
        (_, 0) => [131_072, 65_536, 0],
        _ => [16_384, 16_384, 16_384],
    };
    let context = state.current()?;
    let element = element_bytes(shape.Format.0, shape.NumChannels)?;
    let sides = [shape.Width, shape.Height, shape.Depth];
    invalid_if(shape.Width == 0 || sides.iter().zip(limits).any(|(&side, limit)| side > limit))?;
    // Layered, surface and gather arrays are stored like others; cube maps, sparse and deferred
    // ones are not supported.
    reject_if(shape.Flags & !0x0b != 0, NOT_SUPPORTED)?;
    let elements: u64 = sides.iter().map(|&side| side.max(1) as u64).product();
    let size = elements * element;
    let device = state.current_device()?;
    state.check_free(device, size)?;
    let pages = Pages::anonymous(size).ok_or(OUT_OF_MEMORY)?;
    state.arrays.add(Array {
        context,
        device,
        shape,
        pages,
        size,
        levels,
    })
}

fn create(state: Current, array: OutRef<u64>, shape: In<CUDA_ARRAY_DESCRIPTOR>) -> Answer {
    let given = shape.get()?;
    let shape = CUDA_ARRAY3D_DESCRIPTOR {
        Width: given.Width,
        Height: given.Height,
        Depth: 0,
        Format: given.Format,
        NumChannels: given.NumChannels,
        Flags: 0,
    };
    create_3d(state, array, In::of(&shape))
}

fn create_3d(mut state: Current, array: OutRef<u64>, shape: In<CUDA_ARRAY3D_DESCRIPTOR>) -> Answer {
    array.set(create_array(&mut state, shape.get()?, 0)?)
}

fn destroy(mut state: Locked, array: u64) -> Answer {
    // A level is destroyed with its mipmapped array.
    reject_if(state.arrays.find(array)?.levels != 0, INVALID_HANDLE)?;
    state.remove_array(array);
    Ok(())
}

fn create_levels(target: Out<u64>, shape: In<CUDA_ARRAY3D_DESCRIPTOR>, count: u32) -> Answer {
    let mut state = lock();
    let context = state.current()?;
    target.check()?;
    let mut shape = shape.get()?;
    let longest = shape.Width.max(shape.Height).max(shape.Depth).max(1);
    // At most down to one element (cuMipmappedArrayCreate); more levels are clamped.
    let count = count.min(longest.ilog2() + 1);
    invalid_if(count == 0)?;
    let handle = state.mipmapped.add(MipmappedArray {
        context,
        levels: Vec::new(),
    })?;
    for _ in 0..count {
        match create_array(&mut state, shape, handle) {
            Ok(level) => state.mipmapped.find_mut(handle)?.levels.push(level),
            Err(code) => {
                remove_levels(&mut state, handle)?;
                return Err(code);
            }
        }
        // A side that is 0 stays 0, others are halved down to 1.
        for side in [&mut shape.Width, &mut shape.Height, &mut shape.Depth] {
            *side = (*side / 2).max(usize::from(*side > 0));
        }
    }
    target.set(handle)
}

fn get_level(state: Locked, array: Out<u64>, levels: u64, index: u32) -> Answer {
    let object = state.mipmapped.find(levels)?;
    array.set(*object.levels.get(index as usize).ok_or(INVALID_VALUE)?)
}

fn remove_levels(state: &mut State, levels: u64) -> Answer {
    for level in state.mipmapped.remove(levels).ok_or(INVALID_HANDLE)?.levels {
        state.remove_array(level);
    }
    Ok(())
}

fn get_descriptor(state: Locked, shape: Out<CUDA_ARRAY_DESCRIPTOR>, array: u64) -> Answer {
    let of = state.arrays.find(array)?.shape;
    shape.set(CUDA_ARRAY_DESCRIPTOR {
        Width: of.Width,
        Height: of.Height,
        Format: of.Format,
        NumChannels: of.NumChannels,
    })
}

fn get_descriptor_3d(state: Locked, shape: Out<CUDA_ARRAY3D_DESCRIPTOR>, array: u64) -> Answer {
    shape.set(state.arrays.find(array)?.shape)
}
