//! Memory Management: CUDA arrays. Their bytes are rows without gaps.

use cutape_driver::types::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY_SPARSE_PROPERTIES,
    CUDA_ARRAY3D_DESCRIPTOR,
};
use cutape_registry::Kind;

use crate::answer::{Answer, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY};
use crate::argument::{In, Out, Stream};
use crate::copy::move_bytes;
use crate::dispatch::{Entry, bind};
use crate::memory::Segment;
use crate::physical::Pages;
use crate::state::{State, check_device, lock};
use crate::texture;

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuArrayCreate", bind(create)),
    ("cuArray3DCreate", bind(create_3d)),
    ("cuArrayDestroy", bind(destroy)),
    ("cuArrayGetDescriptor", bind(get_descriptor)),
    ("cuArray3DGetDescriptor", bind(get_descriptor_3d)),
    (
        "cuMemcpyHtoA",
        bind(|to: u64, offset: u64, from: u64, size: u64| {
            host_to_array(to, offset, from, size, None)
        }),
    ),
    (
        "cuMemcpyAtoH",
        bind(|to: u64, from: u64, offset: u64, size: u64| {
            array_to_host(to, from, offset, size, None)
        }),
    ),
    (
        "cuMemcpyHtoAAsync",
        bind(|to: u64, offset: u64, from: u64, size: u64, s: Stream| {
            host_to_array(to, offset, from, size, Some(s))
        }),
    ),
    (
        "cuMemcpyAtoHAsync",
        bind(|to: u64, from: u64, offset: u64, size: u64, s: Stream| {
            array_to_host(to, from, offset, size, Some(s))
        }),
    ),
    ("cuMemcpyDtoA", bind(device_to_array)),
    ("cuMemcpyAtoD", bind(array_to_device)),
    ("cuMemcpyAtoA", bind(array_to_array)),
    ("cuMipmappedArrayCreate", bind(create_levels)),
    ("cuMipmappedArrayGetLevel", bind(get_level)),
    ("cuMipmappedArrayDestroy", bind(destroy_levels)),
    ("cuArrayGetPlane", bind(get_plane)),
    ("cuArrayGetSparseProperties", bind(get_sparse)),
    ("cuArrayGetMemoryRequirements", bind(get_requirements)),
    (
        "cuMipmappedArrayGetSparseProperties",
        bind(get_levels_sparse),
    ),
    (
        "cuMipmappedArrayGetMemoryRequirements",
        bind(get_levels_requirements),
    ),
];

/// An array.
#[derive(Debug)]
pub(crate) struct Array {
    pub(crate) context: u64,
    device: i32,
    shape: CUDA_ARRAY3D_DESCRIPTOR,
    pages: Pages,
    size: u64,
    /// The mipmapped array that it is a level of, or 0.
    levels: u64,
}

/// A mipmapped array: its levels, the largest first.
#[derive(Debug)]
pub(crate) struct Mipmapped {
    pub(crate) context: u64,
    levels: Vec<u64>,
}

impl Array {
    /// Bytes of a device that the array takes.
    pub(crate) fn size_on(&self, device: i32) -> u64 {
        if self.device == device { self.size } else { 0 }
    }

    /// Bytes of an element.
    pub(crate) fn element(&self) -> u64 {
        element_bytes(&self.shape).unwrap_or(1)
    }

    /// Whether surfaces may be made of it (`CUDA_ARRAY3D_SURFACE_LDST`).
    pub(crate) fn is_for_surfaces(&self) -> bool {
        self.shape.Flags & 2 != 0
    }

    /// Where its bytes are, bytes a row, rows a plane, planes.
    pub(crate) fn layout(&self) -> (u64, u64, u64, u64) {
        let element = self.element();
        let (rows, planes) = (
            self.shape.Height.max(1) as u64,
            self.shape.Depth.max(1) as u64,
        );
        (
            self.pages.base(),
            self.shape.Width as u64 * element,
            rows,
            planes,
        )
    }
}

/// Bytes of an element; the plain formats only.
fn element_bytes(shape: &CUDA_ARRAY3D_DESCRIPTOR) -> Answer<u64> {
    texture::element_bytes(shape.Format.0, shape.NumChannels)
}

impl State {
    pub(crate) fn array(&self, handle: u64) -> Answer<&Array> {
        self.arrays.get(&handle).ok_or(INVALID_HANDLE)
    }

    /// Bytes of a one-dimensional array.
    fn array_range(&self, handle: u64, offset: u64, size: u64) -> Answer<Vec<Segment>> {
        let array = self.array(handle)?;
        let (base, row, rows, planes) = array.layout();
        let fits = offset.checked_add(size).is_some_and(|end| end <= row);
        if !fits || rows * planes > 1 {
            return Err(INVALID_VALUE);
        }
        Ok(vec![Segment {
            bytes: base + offset,
            size,
        }])
    }

    /// Ends an array.
    pub(crate) fn remove_array(&mut self, handle: u64) {
        if self.arrays.remove(&handle).is_some() {
            self.release(Kind::Array, handle);
        }
    }
}

/// Makes an array in the current context.
fn make_array(state: &mut State, shape: CUDA_ARRAY3D_DESCRIPTOR, levels: u64) -> Answer<u64> {
    // Longest sides that the device takes (CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE*).
    let limits = match (shape.Height, shape.Depth) {
        (0, 0) => [131_072, 0, 0],
        (_, 0) => [131_072, 65_536, 0],
        _ => [16_384, 16_384, 16_384],
    };
    let context = state.current()?;
    let element = element_bytes(&shape)?;
    let sides = [shape.Width, shape.Height, shape.Depth];
    if shape.Width == 0 || sides.iter().zip(limits).any(|(&side, limit)| side > limit) {
        return Err(INVALID_VALUE);
    }
    // Layered, surface and gather arrays are stored like others; cube maps, sparse and deferred ones are not made.
    if shape.Flags & !0x0b != 0 {
        return Err(NOT_SUPPORTED);
    }
    let size = sides
        .iter()
        .map(|&side| side.max(1) as u64)
        .product::<u64>()
        * element;
    let device = state.current_device()?;
    state.check_room(device, size)?;
    let pages = Pages::anonymous(size).ok_or(OUT_OF_MEMORY)?;
    let handle = state.make(Kind::Array)?;
    state.arrays.insert(
        handle,
        Array {
            context,
            device,
            shape,
            pages,
            size,
            levels,
        },
    );
    Ok(handle)
}

fn create(array: Out<u64>, shape: In<CUDA_ARRAY_DESCRIPTOR>) -> Answer {
    let given = shape.get()?;
    let shape = CUDA_ARRAY3D_DESCRIPTOR {
        Width: given.Width,
        Height: given.Height,
        Depth: 0,
        Format: given.Format,
        NumChannels: given.NumChannels,
        Flags: 0,
    };
    let mut state = lock();
    state.current()?;
    array.check()?;
    array.set(make_array(&mut state, shape, 0)?)
}

fn create_3d(array: Out<u64>, shape: In<CUDA_ARRAY3D_DESCRIPTOR>) -> Answer {
    let mut state = lock();
    state.current()?;
    array.check()?;
    array.set(make_array(&mut state, shape.get()?, 0)?)
}

fn destroy(array: u64) -> Answer {
    let mut state = lock();
    if state.array(array)?.levels != 0 {
        // A level goes with its mipmapped array.
        return Err(INVALID_HANDLE);
    }
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
    if count == 0 {
        return Err(INVALID_VALUE);
    }
    let handle = state.make(Kind::MipmappedArray)?;
    let mut levels = Vec::new();
    for _ in 0..count {
        match make_array(&mut state, shape, handle) {
            Ok(level) => levels.push(level),
            Err(code) => {
                levels
                    .into_iter()
                    .for_each(|level| state.remove_array(level));
                state.release(Kind::MipmappedArray, handle);
                return Err(code);
            }
        }
        // A side that is 0 stays 0, others are halved down to 1.
        for side in [&mut shape.Width, &mut shape.Height, &mut shape.Depth] {
            *side = (*side / 2).max(usize::from(*side > 0));
        }
    }
    state
        .mipmapped
        .insert(handle, Mipmapped { context, levels });
    target.set(handle)
}

fn get_level(array: Out<u64>, levels: u64, index: u32) -> Answer {
    let state = lock();
    let object = state.mipmapped.get(&levels).ok_or(INVALID_HANDLE)?;
    array.set(*object.levels.get(index as usize).ok_or(INVALID_VALUE)?)
}

fn destroy_levels(levels: u64) -> Answer {
    let mut state = lock();
    let object = state.mipmapped.remove(&levels).ok_or(INVALID_HANDLE)?;
    object
        .levels
        .into_iter()
        .for_each(|level| state.remove_array(level));
    state.release(Kind::MipmappedArray, levels);
    Ok(())
}

fn get_descriptor(shape: Out<CUDA_ARRAY_DESCRIPTOR>, array: u64) -> Answer {
    let state = lock();
    let of = state.array(array)?.shape;
    shape.set(CUDA_ARRAY_DESCRIPTOR {
        Width: of.Width,
        Height: of.Height,
        Format: of.Format,
        NumChannels: of.NumChannels,
    })
}

fn get_descriptor_3d(shape: Out<CUDA_ARRAY3D_DESCRIPTOR>, array: u64) -> Answer {
    let state = lock();
    shape.set(state.array(array)?.shape)
}

/// Only arrays of several planes (NV12 and its like) have planes to ask for, and those are not made here.
fn get_plane(plane: Out<u64>, array: u64, _index: u32) -> Answer {
    let state = lock();
    plane.check()?;
    state.array(array)?;
    Err(INVALID_VALUE)
}

/// Sparse arrays are not made here; others have no such properties (cuArrayGetSparseProperties).
fn get_sparse(properties: Out<CUDA_ARRAY_SPARSE_PROPERTIES>, array: u64) -> Answer {
    let state = lock();
    properties.check()?;
    state.array(array)?;
    Err(INVALID_VALUE)
}

fn get_levels_sparse(properties: Out<CUDA_ARRAY_SPARSE_PROPERTIES>, levels: u64) -> Answer {
    let state = lock();
    properties.check()?;
    state.mipmapped.get(&levels).ok_or(INVALID_HANDLE)?;
    Err(INVALID_VALUE)
}

/// Only arrays whose mapping was deferred have requirements, and those are not made here.
fn get_requirements(
    requirements: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>,
    array: u64,
    device: i32,
) -> Answer {
    let state = lock();
    requirements.check()?;
    state.array(array)?;
    check_device(device)?;
    Err(INVALID_VALUE)
}

fn get_levels_requirements(
    requirements: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>,
    levels: u64,
    device: i32,
) -> Answer {
    let state = lock();
    requirements.check()?;
    state.mipmapped.get(&levels).ok_or(INVALID_HANDLE)?;
    check_device(device)?;
    Err(INVALID_VALUE)
}

fn begin(state: &State, stream: Option<Stream>) -> Answer {
    state.current()?;
    stream.map_or(Ok(()), |stream| state.check_stream(stream))
}

fn host_to_array(to: u64, offset: u64, from: u64, size: u64, stream: Option<Stream>) -> Answer {
    let state = lock();
    begin(&state, stream)?;
    let target = state.array_range(to, offset, size)?;
    if size > 0 {
        move_bytes(&target, &state.any_range(from, size)?);
    }
    Ok(())
}

fn array_to_host(to: u64, from: u64, offset: u64, size: u64, stream: Option<Stream>) -> Answer {
    let state = lock();
    begin(&state, stream)?;
    let source = state.array_range(from, offset, size)?;
    if size > 0 {
        move_bytes(&state.any_range(to, size)?, &source);
    }
    Ok(())
}

fn device_to_array(to: u64, offset: u64, from: u64, size: u64) -> Answer {
    let state = lock();
    begin(&state, None)?;
    let target = state.array_range(to, offset, size)?;
    if size > 0 {
        move_bytes(&target, &state.device_range(from, size)?);
    }
    Ok(())
}

fn array_to_device(to: u64, from: u64, offset: u64, size: u64) -> Answer {
    let state = lock();
    begin(&state, None)?;
    let source = state.array_range(from, offset, size)?;
    if size > 0 {
        move_bytes(&state.device_range(to, size)?, &source);
    }
    Ok(())
}

fn array_to_array(to: u64, to_offset: u64, from: u64, from_offset: u64, size: u64) -> Answer {
    let state = lock();
    begin(&state, None)?;
    let target = state.array_range(to, to_offset, size)?;
    move_bytes(&target, &state.array_range(from, from_offset, size)?);
    Ok(())
}
