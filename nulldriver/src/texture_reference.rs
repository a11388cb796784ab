//! Texture Reference Management (deprecated): what is put into a reference is checked, kept and handed back. Modules have
//! none here, so the only references are the program's own, and there is no surface reference at all.

use cutape_driver::types::CUDA_ARRAY_DESCRIPTOR;
use cutape_registry::Kind;

use crate::answer::{Answer, INVALID_HANDLE, INVALID_VALUE};
use crate::argument::{In, Out};
use crate::dispatch::{Entry, bind};
use crate::state::{State, lock};
use crate::texture::{ALIGNMENT, PITCH_ALIGNMENT, element_bytes};

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuTexRefCreate", bind(create)),
    ("cuTexRefDestroy", bind(destroy)),
    ("cuTexRefSetArray", bind(set_array)),
    ("cuTexRefGetArray", bind(get_array)),
    ("cuTexRefSetMipmappedArray", bind(set_mipmapped)),
    ("cuTexRefGetMipmappedArray", bind(get_mipmapped)),
    ("=cuTexRefSetAddress_v2", bind(set_address)),
    ("=cuTexRefGetAddress_v2", bind(get_address)),
    ("=cuTexRefSetAddress2D_v2", bind(set_address_2d)),
    ("=cuTexRefSetAddress2D_v3", bind(set_address_2d)),
    ("cuTexRefSetFormat", bind(set_format)),
    ("cuTexRefGetFormat", bind(get_format)),
    ("cuTexRefSetAddressMode", bind(set_mode)),
    ("cuTexRefGetAddressMode", bind(get_mode)),
    (
        "cuTexRefSetFilterMode",
        bind(|reference: u64, mode: u32| set_word(reference, FILTER, mode, 1)),
    ),
    (
        "cuTexRefGetFilterMode",
        bind(|mode: Out<u32>, reference: u64| get_word(mode, reference, FILTER)),
    ),
    (
        "cuTexRefSetMipmapFilterMode",
        bind(|reference: u64, mode: u32| set_word(reference, MIPMAP_FILTER, mode, 1)),
    ),
    (
        "cuTexRefGetMipmapFilterMode",
        bind(|mode: Out<u32>, reference: u64| get_word(mode, reference, MIPMAP_FILTER)),
    ),
    (
        "cuTexRefSetMaxAnisotropy",
        bind(|reference: u64, most: u32| set_word(reference, ANISOTROPY, most, u32::MAX)),
    ),
    (
        "cuTexRefGetMaxAnisotropy",
        bind(|most: Out<u32>, reference: u64| get_word(most, reference, ANISOTROPY)),
    ),
    // CU_TRSF_*: read as integer, normalized coordinates, sRGB, no trilinear optimisation, seamless.
    (
        "cuTexRefSetFlags",
        bind(|reference: u64, flags: u32| set_word(reference, FLAGS, flags, 0x73)),
    ),
    (
        "cuTexRefGetFlags",
        bind(|flags: Out<u32>, reference: u64| get_word(flags, reference, FLAGS)),
    ),
    ("cuTexRefSetBorderColor", bind(set_border)),
    ("cuTexRefGetBorderColor", bind(get_border)),
    ("cuTexRefGetMipmapLevelBias", bind(get_bias)),
    ("cuTexRefGetMipmapLevelClamp", bind(get_clamp)),
    (
        "cuSurfRefSetArray",
        bind(|_reference: u64, _array: u64, _flags: u32| -> Answer {
            lock().current()?;
            Err(INVALID_HANDLE)
        }),
    ),
    (
        "cuSurfRefGetArray",
        bind(|_array: Out<u64>, _reference: u64| -> Answer {
            lock().current()?;
            Err(INVALID_HANDLE)
        }),
    ),
];

// Positions in `Reference::words`.
const FILTER: usize = 0;
const MIPMAP_FILTER: usize = 1;
const ANISOTROPY: usize = 2;
const FLAGS: usize = 3;

/// What a reference is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Nothing,
    Array(u64),
    Mipmapped(u64),
    Address(u64),
}

/// A texture reference.
#[derive(Debug)]
pub(crate) struct Reference {
    pub(crate) context: u64,
    bound: Bound,
    /// Format and number of channels.
    format: (u32, i32),
    modes: [u32; 3],
    words: [u32; 4],
    /// The bits of four floats.
    border: [u32; 4],
}

impl State {
    fn reference(&mut self, handle: u64) -> Answer<&mut Reference> {
        self.current()?;
        self.texture_references
            .get_mut(&handle)
            .ok_or(INVALID_VALUE)
    }
}

fn create(reference: Out<u64>) -> Answer {
    let mut state = lock();
    let context = state.current()?;
    reference.check()?;
    let handle = state.make(Kind::TextureReference)?;
    state.texture_references.insert(
        handle,
        Reference {
            context,
            bound: Bound::Nothing,
            format: (0x20, 1),
            modes: [1; 3],
            words: [0, 0, 1, 0],
            border: [0; 4],
        },
    );
    reference.set(handle)
}

fn destroy(reference: u64) -> Answer {
    let mut state = lock();
    state.reference(reference)?;
    state.texture_references.remove(&reference);
    state.release(Kind::TextureReference, reference);
    Ok(())
}

/// `CU_TRSA_OVERRIDE_FORMAT` is the one flag, and it must be set.
fn check_override(flags: u32) -> Answer {
    if flags == 1 {
        Ok(())
    } else {
        Err(INVALID_VALUE)
    }
}

fn set_array(reference: u64, array: u64, flags: u32) -> Answer {
    let mut state = lock();
    check_override(flags)?;
    state.array(array)?;
    state.reference(reference)?.bound = Bound::Array(array);
    Ok(())
}

fn get_array(array: Out<u64>, reference: u64) -> Answer {
    let mut state = lock();
    array.check()?;
    match state.reference(reference)?.bound {
        Bound::Array(bound) => array.set(bound),
        _ => Err(INVALID_VALUE),
    }
}

fn set_mipmapped(reference: u64, array: u64, flags: u32) -> Answer {
    let mut state = lock();
    check_override(flags)?;
    if !state.mipmapped.contains_key(&array) {
        return Err(INVALID_HANDLE);
    }
    state.reference(reference)?.bound = Bound::Mipmapped(array);
    Ok(())
}

fn get_mipmapped(array: Out<u64>, reference: u64) -> Answer {
    let mut state = lock();
    array.check()?;
    match state.reference(reference)?.bound {
        Bound::Mipmapped(bound) => array.set(bound),
        _ => Err(INVALID_VALUE),
    }
}

/// The offset tells how far below the address the next aligned one lies; without room for it, alignment is required.
fn set_address(offset: Out<u64>, reference: u64, address: u64, size: u64) -> Answer {
    let mut state = lock();
    state.reference(reference)?;
    let below = address % ALIGNMENT;
    if offset.is_null() && below != 0 {
        return Err(INVALID_VALUE);
    }
    state.device_range(address, size)?;
    state.reference(reference)?.bound = Bound::Address(address);
    offset.set_if(below);
    Ok(())
}

fn get_address(address: Out<u64>, reference: u64) -> Answer {
    let mut state = lock();
    address.check()?;
    match state.reference(reference)?.bound {
        Bound::Address(bound) => address.set(bound),
        _ => Err(INVALID_VALUE),
    }
}

fn set_address_2d(
    reference: u64,
    shape: In<CUDA_ARRAY_DESCRIPTOR>,
    address: u64,
    pitch: u64,
) -> Answer {
    let mut state = lock();
    state.reference(reference)?;
    let shape = shape.get()?;
    let row = (shape.Width as u64)
        .checked_mul(element_bytes(shape.Format.0, shape.NumChannels)?)
        .ok_or(INVALID_VALUE)?;
    let aligned = address.is_multiple_of(ALIGNMENT) && pitch.is_multiple_of(PITCH_ALIGNMENT);
    if row == 0 || shape.Height == 0 || pitch < row || !aligned {
        return Err(INVALID_VALUE);
    }
    let size = pitch
        .checked_mul(shape.Height as u64 - 1)
        .and_then(|above| above.checked_add(row))
        .ok_or(INVALID_VALUE)?;
    state.device_range(address, size)?;
    state.reference(reference)?.bound = Bound::Address(address);
    Ok(())
}

fn set_format(reference: u64, format: u32, channels: i32) -> Answer {
    let mut state = lock();
    let object = state.reference(reference)?;
    let count = u32::try_from(channels).map_err(|_| INVALID_VALUE)?;
    element_bytes(format, count)?;
    object.format = (format, channels);
    Ok(())
}

fn get_format(format: Out<u32>, channels: Out<i32>, reference: u64) -> Answer {
    let mut state = lock();
    let of = state.reference(reference)?.format;
    // Either pointer alone is enough.
    format.set_if(of.0);
    channels.set_if(of.1);
    Ok(())
}

fn dimension(number: i32) -> Answer<usize> {
    usize::try_from(number)
        .ok()
        .filter(|&number| number < 3)
        .ok_or(INVALID_VALUE)
}

fn set_mode(reference: u64, number: i32, mode: u32) -> Answer {
    let mut state = lock();
    let object = state.reference(reference)?;
    if mode > 3 {
        return Err(INVALID_VALUE);
    }
    object.modes[dimension(number)?] = mode;
    Ok(())
}

fn get_mode(mode: Out<u32>, reference: u64, number: i32) -> Answer {
    let mut state = lock();
    let object = state.reference(reference)?;
    mode.set(object.modes[dimension(number)?])
}

/// Sets a word of which only the bits of `allowed` may be set.
fn set_word(reference: u64, which: usize, value: u32, allowed: u32) -> Answer {
    let mut state = lock();
    let object = state.reference(reference)?;
    if value & !allowed != 0 {
        return Err(INVALID_VALUE);
    }
    object.words[which] = value;
    Ok(())
}

fn get_word(value: Out<u32>, reference: u64, which: usize) -> Answer {
    let mut state = lock();
    value.set(state.reference(reference)?.words[which])
}

fn set_border(reference: u64, color: In<[u32; 4]>) -> Answer {
    let mut state = lock();
    let color = color.get()?;
    state.reference(reference)?.border = color;
    Ok(())
}

fn get_border(color: Out<[u32; 4]>, reference: u64) -> Answer {
    let mut state = lock();
    color.set(state.reference(reference)?.border)
}

/// The setters take floats, which do not travel in the registers that are looked at here: NOT_SUPPORTED, so always 0.
fn get_bias(bias: Out<u32>, reference: u64) -> Answer {
    let mut state = lock();
    state.reference(reference)?;
    bias.set(0)
}

fn get_clamp(lowest: Out<u32>, highest: Out<u32>, reference: u64) -> Answer {
    let mut state = lock();
    state.reference(reference)?;
    lowest.check()?;
    highest.set(0)?;
    lowest.set(0)
}
