//! Texture Reference Management (deprecated): what is set is checked, kept and returned. Modules
//! have no references here, so all references are the program's own; surface references do not
//! exist.

use cutape_driver::types::CUDA_ARRAY_DESCRIPTOR;

use crate::call::answer::{Answer, INVALID_HANDLE, INVALID_VALUE, invalid_if, valid_if};
use crate::call::argument::{In, Out, OutRef};
use crate::call::entry::entries;
use crate::object::array::element_bytes;
use crate::object::device::{PITCH_ALIGNMENT, TEXTURE_ALIGNMENT};
use crate::object::texture::{Bound, FLAGS, TextureReference};
use crate::section::texture::object::pitched_size;
use crate::state::{Current, State, lock};

entries! {
    cuTexRefCreate: create;
    cuTexRefDestroy: destroy;
    cuTexRefSetArray: set_array;
    cuTexRefGetArray: |state: Current, result: OutRef<u64>, reference: u64|
        get_bound(&state, *result, reference, Bound::Array);
    cuTexRefSetMipmappedArray: set_mipmapped;
    cuTexRefGetMipmappedArray: |state: Current, result: OutRef<u64>, reference: u64|
        get_bound(&state, *result, reference, Bound::Mipmapped);
    [symbol] cuTexRefSetAddress_v2: set_address;
    [symbol] cuTexRefGetAddress_v2: |state: Current, result: OutRef<u64>, reference: u64|
        get_bound(&state, *result, reference, Bound::Address);
    [symbol] cuTexRefSetAddress2D_v2: set_address_2d;
    [symbol] cuTexRefSetAddress2D_v3: set_address_2d;
    cuTexRefSetFormat: set_format;
    cuTexRefGetFormat: get_format;
    cuTexRefSetAddressMode: set_mode;
    cuTexRefGetAddressMode: get_mode;
    cuTexRefSetFilterMode: |reference: u64, mode: u32|
        set(reference, mode <= 1, |object| object.filter = mode);
    cuTexRefGetFilterMode: |state: Current, mode: Out<u32>, reference: u64|
        mode.set(state.texture_references.find(reference)?.filter);
    cuTexRefSetMipmapFilterMode: |reference: u64, mode: u32|
        set(reference, mode <= 1, |object| object.mipmap_filter = mode);
    cuTexRefGetMipmapFilterMode: |state: Current, mode: Out<u32>, reference: u64|
        mode.set(state.texture_references.find(reference)?.mipmap_filter);
    cuTexRefSetMaxAnisotropy: |reference: u64, most: u32|
        set(reference, true, |object| object.anisotropy = most);
    cuTexRefGetMaxAnisotropy: |state: Current, most: Out<u32>, reference: u64|
        most.set(state.texture_references.find(reference)?.anisotropy);
    cuTexRefSetFlags: |reference: u64, flags: u32|
        set(reference, flags & !FLAGS == 0, |object| object.flags = flags);
    cuTexRefGetFlags: |state: Current, flags: Out<u32>, reference: u64|
        flags.set(state.texture_references.find(reference)?.flags);
    cuTexRefSetBorderColor: set_border;
    cuTexRefGetBorderColor: |state: Current, color: Out<[u32; 4]>, reference: u64|
        color.set(state.texture_references.find(reference)?.border);
    // Setters that take floats are NOT_SUPPORTED (a float is passed in a vector register, which is
    // not read), so these values are always 0.
    cuTexRefGetMipmapLevelBias: |state: Current, bias: Out<u32>, reference: u64|
        bias.set(state.texture_references.find(reference).map(|_| 0)?);
    cuTexRefGetMipmapLevelClamp: get_clamp;
    cuSurfRefSetArray: || lock().current().and(Err(INVALID_HANDLE));
    cuSurfRefGetArray: || lock().current().and(Err(INVALID_HANDLE));
}

fn create(mut state: Current, reference: OutRef<u64>) -> Answer {
    let object = TextureReference {
        context: state.context,
        binding: None,
        format: (0x20, 1),
        address_modes: [1; 3],
        filter: 0,
        mipmap_filter: 0,
        anisotropy: 1,
        flags: 0,
        border: [0; 4],
    };
    reference.set(state.texture_references.add(object)?)
}

fn destroy(mut state: Current, reference: u64) -> Answer {
    state
        .texture_references
        .remove(reference)
        .ok_or(INVALID_VALUE)
        .map(drop)
}

/// `CU_TRSA_OVERRIDE_FORMAT` is the one flag, and it is required.
fn check_override(flags: u32) -> Answer {
    valid_if(flags == 1)
}

fn set_array(mut state: Current, reference: u64, array: u64, flags: u32) -> Answer {
    check_override(flags)?;
    state.arrays.find(array)?;
    state.texture_references.find_mut(reference)?.binding = Some((Bound::Array, array));
    Ok(())
}

fn set_mipmapped(mut state: Current, reference: u64, array: u64, flags: u32) -> Answer {
    check_override(flags)?;
    state.mipmapped.find(array)?;
    state.texture_references.find_mut(reference)?.binding = Some((Bound::Mipmapped, array));
    Ok(())
}

/// Returns what a reference is bound to, if it is of the kind asked for.
fn get_bound(state: &State, result: Out<u64>, reference: u64, wanted: Bound) -> Answer {
    match state.texture_references.find(reference)?.binding {
        Some((kind, bound)) if kind == wanted => result.set(bound),
        _ => Err(INVALID_VALUE),
    }
}

/// The offset is the distance of the address from the next lower aligned one; without an output for
/// it, the address must be aligned.
fn set_address(
    mut state: Current,
    offset: Out<u64>,
    reference: u64,
    address: u64,
    size: u64,
) -> Answer {
    state.texture_references.find(reference)?;
    let below = address % TEXTURE_ALIGNMENT;
    invalid_if(offset.is_null() && below != 0)?;
    state.device_range(address, size)?;
    state.texture_references.find_mut(reference)?.binding = Some((Bound::Address, address));
    offset.set_if(below);
    Ok(())
}

fn set_address_2d(
    mut state: Current,
    reference: u64,
    shape: In<CUDA_ARRAY_DESCRIPTOR>,
    address: u64,
    pitch: u64,
) -> Answer {
    state.texture_references.find(reference)?;
    let shape = shape.get()?;
    let element = element_bytes(shape.Format.0, shape.NumChannels)?;
    let (width, height) = (shape.Width as u64, shape.Height as u64);
    let size = pitched_size(width, element, height, pitch)?;
    let is_aligned =
        address.is_multiple_of(TEXTURE_ALIGNMENT) && pitch.is_multiple_of(PITCH_ALIGNMENT);
    valid_if(is_aligned)?;
    state.device_range(address, size)?;
    state.texture_references.find_mut(reference)?.binding = Some((Bound::Address, address));
    Ok(())
}

fn set_format(mut state: Current, reference: u64, format: u32, channels: i32) -> Answer {
    let object = state.texture_references.find_mut(reference)?;
    let count = u32::try_from(channels).map_err(|_| INVALID_VALUE)?;
    element_bytes(format, count)?;
    object.format = (format, channels);
    Ok(())
}

fn get_format(state: Current, format: Out<u32>, channels: Out<i32>, reference: u64) -> Answer {
    let of = state.texture_references.find(reference)?.format;
    // Either pointer alone is enough.
    format.set_if(of.0);
    channels.set_if(of.1);
    Ok(())
}

fn set_mode(mut state: Current, reference: u64, dimension: i32, mode: u32) -> Answer {
    let object = state.texture_references.find_mut(reference)?;
    invalid_if(mode > 3)?;
    *mode_of(object, dimension)? = mode;
    Ok(())
}

fn get_mode(mut state: Current, mode: Out<u32>, reference: u64, dimension: i32) -> Answer {
    mode.set(*mode_of(
        state.texture_references.find_mut(reference)?,
        dimension,
    )?)
}

/// The address mode of one of the three dimensions.
fn mode_of(object: &mut TextureReference, dimension: i32) -> Answer<&mut u32> {
    let dimension = usize::try_from(dimension).map_err(|_| INVALID_VALUE)?;
    object.address_modes.get_mut(dimension).ok_or(INVALID_VALUE)
}

/// Sets a member if the value is valid.
fn set(reference: u64, is_valid: bool, set: impl FnOnce(&mut TextureReference)) -> Answer {
    let mut state = lock();
    state.current()?;
    let object = state.texture_references.find_mut(reference)?;
    valid_if(is_valid)?;
    set(object);
    Ok(())
}

fn set_border(mut state: Current, reference: u64, color: In<[u32; 4]>) -> Answer {
    let color = color.get()?;
    state.texture_references.find_mut(reference)?.border = color;
    Ok(())
}

fn get_clamp(state: Current, lowest: Out<u32>, highest: Out<u32>, reference: u64) -> Answer {
    state.texture_references.find(reference)?;
    lowest.check()?;
    highest.set(0)?;
    lowest.set(0)
}
