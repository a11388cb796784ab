//! Texture Object Management and Surface Object Management: what the program describes is checked,
//! kept and returned.

use cutape_driver::types::{CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC};

use crate::call::answer::{Answer, INVALID_VALUE, invalid_if, valid_if};
use crate::call::argument::{In, Out, OutRef};
use crate::call::entry::entries;
use crate::object::array::element_bytes;
use crate::object::device::{PITCH_ALIGNMENT, TEXTURE_ALIGNMENT};
use crate::object::texture::{FLAGS, Surface, Texture};
use crate::state::{Current, State, lock};

entries! {
    cuTexObjectCreate: create;
    cuTexObjectDestroy: destroy;
    cuTexObjectGetResourceDesc: |state: Current, result: Out<CUDA_RESOURCE_DESC>, texture: u64|
        result.set(state.textures.find(texture)?.resource);
    cuTexObjectGetTextureDesc: |state: Current, result: Out<CUDA_TEXTURE_DESC>, texture: u64|
        result.set(state.textures.find(texture)?.sampler);
    cuTexObjectGetResourceViewDesc:
        |state: Current, result: Out<CUDA_RESOURCE_VIEW_DESC>, texture: u64|
        result.set(state.textures.find(texture)?.view);
    cuSurfObjectCreate: create_surface;
    cuSurfObjectDestroy: destroy_surface;
    cuSurfObjectGetResourceDesc: |state: Current, result: Out<CUDA_RESOURCE_DESC>, surface: u64|
        result.set(state.surfaces.find(surface)?.resource);
}

// CUresourcetype.
const ARRAY: u32 = 0;
const MIPMAPPED: u32 = 1;
const LINEAR: u32 = 2;
const PITCHED: u32 = 3;

/// What the manual requires of a texture's resource. The code for a destroyed array is assumed.
fn check_resource(state: &State, resource: &CUDA_RESOURCE_DESC) -> Answer {
    invalid_if(resource.flags != 0)?;
    // SAFETY: every member of the union is made of numbers and pointers, so any bytes are a value
    // of each.
    let (array, mipmap, linear, pitched) = unsafe {
        let union = &resource.res;
        (union.array, union.mipmap, union.linear, union.pitch2D)
    };
    match resource.resType.0 {
        ARRAY => {
            let exists = state.arrays.contains_key(&(array.hArray as u64));
            valid_if(exists)
        }
        MIPMAPPED => {
            let exists = state
                .mipmapped
                .contains_key(&(mipmap.hMipmappedArray as u64));
            valid_if(exists)
        }
        LINEAR => {
            element_bytes(linear.format.0, linear.numChannels)?;
            check_linear(state, linear.devPtr, linear.sizeInBytes as u64)
        }
        PITCHED => {
            let element = element_bytes(pitched.format.0, pitched.numChannels)?;
            let pitch = pitched.pitchInBytes as u64;
            let size = pitched_size(pitched.width as u64, element, pitched.height as u64, pitch)?;
            invalid_if(!pitch.is_multiple_of(PITCH_ALIGNMENT))?;
            check_linear(state, pitched.devPtr, size)
        }
        _ => Err(INVALID_VALUE),
    }
}

/// Bytes of rows of that many elements; `INVALID_VALUE` if there are none or the pitch is too
/// small.
pub(crate) fn pitched_size(width: u64, element: u64, height: u64, pitch: u64) -> Answer<u64> {
    let row = width.checked_mul(element).ok_or(INVALID_VALUE)?;
    invalid_if(row == 0 || height == 0 || pitch < row)?;
    let above = pitch.checked_mul(height - 1);
    above
        .and_then(|above| above.checked_add(row))
        .ok_or(INVALID_VALUE)
}

fn check_linear(state: &State, address: u64, size: u64) -> Answer {
    let is_aligned = address.is_multiple_of(TEXTURE_ALIGNMENT);
    invalid_if(size == 0 || !is_aligned)?;
    state.device_range(address, size).map(|_| ())
}

fn check_sampler(sampler: &CUDA_TEXTURE_DESC) -> Answer {
    let is_valid = sampler.addressMode.iter().all(|mode| mode.0 <= 3)
        && sampler.filterMode.0 <= 1
        && sampler.mipmapFilterMode.0 <= 1
        && sampler.flags & !FLAGS == 0;
    valid_if(is_valid)
}

/// The view of a texture, zeros if there is none. Only an array can have one (cuTexObjectCreate).
/// Zeros given as a view are refused for arrays and taken for other memory: an H100 with driver
/// 580.159.04 does so.
fn checked_view(
    resource: &CUDA_RESOURCE_DESC,
    view: In<CUDA_RESOURCE_VIEW_DESC>,
) -> Answer<CUDA_RESOURCE_VIEW_DESC> {
    // SAFETY: the struct is made of numbers, of which zeros are values.
    let none: CUDA_RESOURCE_VIEW_DESC = unsafe { std::mem::zeroed() };
    if view.is_null() {
        return Ok(none);
    }
    let view = view.get()?;
    let is_array = matches!(resource.resType.0, ARRAY | MIPMAPPED);
    let is_zero = view.format.0 == 0 && view.width == 0;
    valid_if(is_array != is_zero)?;
    Ok(view)
}

fn create(
    mut state: Current,
    texture: OutRef<u64>,
    resource: In<CUDA_RESOURCE_DESC>,
    sampler: In<CUDA_TEXTURE_DESC>,
    view: In<CUDA_RESOURCE_VIEW_DESC>,
) -> Answer {
    let (resource, sampler) = (resource.get()?, sampler.get()?);
    check_resource(&state, &resource)?;
    check_sampler(&sampler)?;
    let object = Texture {
        context: state.context,
        resource,
        sampler,
        view: checked_view(&resource, view)?,
    };
    let handle = unused_number(&state);
    state.textures.insert(handle, object);
    texture.set(handle)
}

/// Texture and surface objects are numbered together from 1, and the least number that none has is
/// the next (measured: tests/gpu/failed_outputs.c).
fn unused_number(state: &State) -> u64 {
    let is_used =
        |number: &u64| state.textures.contains_key(number) || state.surfaces.contains_key(number);
    (1..).find(|number| !is_used(number)).unwrap_or_default()
}

/// Measured there as well: one that was destroyed may be destroyed again.
#[expect(clippy::unnecessary_wraps, reason = "the form of all implementations")]
fn destroy(mut state: Current, texture: u64) -> Answer {
    state.textures.remove(texture);
    Ok(())
}

fn create_surface(surface: Out<u64>, resource: In<CUDA_RESOURCE_DESC>) -> Answer {
    let mut state = lock();
    let context = state.current()?;
    surface.check()?;
    let resource = resource.get()?;
    // SAFETY: any bytes are an array's handle.
    let array = unsafe { resource.res.array.hArray } as u64;
    let array = state
        .arrays
        .get(&array)
        .filter(|array| array.is_for_surfaces());
    // The array must be created for surfaces (cuSurfObjectCreate).
    let is_valid = resource.resType.0 == ARRAY && resource.flags == 0 && array.is_some();
    valid_if(is_valid)?;
    let handle = unused_number(&state);
    state.surfaces.insert(handle, Surface { context, resource });
    surface.set(handle)
}

fn destroy_surface(mut state: Current, surface: u64) -> Answer {
    state
        .surfaces
        .remove(surface)
        .ok_or(INVALID_VALUE)
        .map(drop)
}
