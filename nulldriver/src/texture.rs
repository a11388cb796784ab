//! Texture Object Management and Surface Object Management: handles and checks; no code runs that could look through one.

use std::mem::offset_of;

use cutape_driver::types::{CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC};
use cutape_registry::Kind;

use crate::answer::{Answer, INVALID_VALUE};
use crate::argument::{In, Out};
use crate::dispatch::{Entry, bind};
use crate::state::{State, lock};

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuTexObjectCreate", bind(create)),
    ("cuTexObjectDestroy", bind(destroy)),
    ("cuTexObjectGetResourceDesc", bind(get_resource)),
    ("cuTexObjectGetTextureDesc", bind(get_texture)),
    ("cuTexObjectGetResourceViewDesc", bind(get_view)),
    ("cuSurfObjectCreate", bind(create_surface)),
    ("cuSurfObjectDestroy", bind(destroy_surface)),
    ("cuSurfObjectGetResourceDesc", bind(get_surface_resource)),
];

/// The program's structs as bytes: they are checked, kept, and handed back.
type Resource = [u8; size_of::<CUDA_RESOURCE_DESC>()];
type Sampler = [u8; size_of::<CUDA_TEXTURE_DESC>()];
type View = [u8; size_of::<CUDA_RESOURCE_VIEW_DESC>()];

// CUresourcetype.
const ARRAY: u32 = 0;
const MIPMAPPED: u32 = 1;
const LINEAR: u32 = 2;
const PITCHED: u32 = 3;

/// Where the members of all kinds of resource begin.
const MEMBERS: usize = offset_of!(CUDA_RESOURCE_DESC, res);

/// `CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT` and `_TEXTURE_PITCH_ALIGNMENT`, in bytes.
pub(crate) const ALIGNMENT: u64 = 512;
pub(crate) const PITCH_ALIGNMENT: u64 = 32;

/// `CU_TRSF_*`: read as integer, normalized coordinates, sRGB, no trilinear optimisation, seamless cube maps.
const FLAGS: u32 = 0x73;

/// A texture object.
#[derive(Debug)]
pub(crate) struct Texture {
    pub(crate) context: u64,
    resource: Resource,
    sampler: Sampler,
    view: Option<View>,
}

/// A surface object.
#[derive(Debug)]
pub(crate) struct Surface {
    pub(crate) context: u64,
    resource: Resource,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..]
        .first_chunk()
        .map_or(0, |word| u32::from_le_bytes(*word))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes[at..]
        .first_chunk()
        .map_or(0, |word| u64::from_le_bytes(*word))
}

/// Bytes of an element of that format with so many channels; the plain formats only.
pub(crate) fn element_bytes(format: u32, channels: u32) -> Answer<u64> {
    let channel = match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => return Err(INVALID_VALUE),
    };
    match channels {
        1 | 2 | 4 => Ok(channel * u64::from(channels)),
        _ => Err(INVALID_VALUE),
    }
}

impl State {
    /// What the manual asks of a texture's resource. The code for a dead array is an assumption.
    fn check_resource(&self, resource: &Resource) -> Answer {
        if word(resource, offset_of!(CUDA_RESOURCE_DESC, flags)) != 0 {
            return Err(INVALID_VALUE);
        }
        let first = long(resource, MEMBERS);
        let element = || element_bytes(word(resource, MEMBERS + 8), word(resource, MEMBERS + 12));
        match word(resource, 0) {
            ARRAY => self.array(first).map(|_| ()).map_err(|_| INVALID_VALUE),
            MIPMAPPED if self.mipmapped.contains_key(&first) => Ok(()),
            LINEAR => {
                let size = long(resource, MEMBERS + 16);
                element()?;
                self.check_linear(first, size, 0)
            }
            PITCHED => {
                let (width, height) = (long(resource, MEMBERS + 16), long(resource, MEMBERS + 24));
                let pitch = long(resource, MEMBERS + 32);
                let row = width.checked_mul(element()?).ok_or(INVALID_VALUE)?;
                if row == 0 || height == 0 || pitch < row || !pitch.is_multiple_of(PITCH_ALIGNMENT)
                {
                    return Err(INVALID_VALUE);
                }
                let above = pitch.checked_mul(height - 1).ok_or(INVALID_VALUE)?;
                self.check_linear(first, row, above)
            }
            _ => Err(INVALID_VALUE),
        }
    }

    fn check_linear(&self, address: u64, size: u64, above: u64) -> Answer {
        let size = size.checked_add(above).ok_or(INVALID_VALUE)?;
        if size == 0 || !address.is_multiple_of(ALIGNMENT) {
            return Err(INVALID_VALUE);
        }
        self.device_range(address, size).map(|_| ())
    }

    /// Ends the textures and surfaces of a context.
    pub(crate) fn remove_textures(&mut self, context: u64) {
        self.textures
            .retain(|_, texture| texture.context != context);
        self.surfaces
            .retain(|_, surface| surface.context != context);
        self.texture_references
            .retain(|_, reference| reference.context != context);
    }
}

fn check_sampler(sampler: &Sampler) -> Answer {
    let member = |at| word(sampler, at);
    let modes = offset_of!(CUDA_TEXTURE_DESC, addressMode);
    let sound = (0..3).all(|dimension| member(modes + 4 * dimension) <= 3)
        && member(offset_of!(CUDA_TEXTURE_DESC, filterMode)) <= 1
        && member(offset_of!(CUDA_TEXTURE_DESC, mipmapFilterMode)) <= 1
        && member(offset_of!(CUDA_TEXTURE_DESC, flags)) & !FLAGS == 0;
    if sound { Ok(()) } else { Err(INVALID_VALUE) }
}

fn create(
    texture: Out<u64>,
    resource: In<Resource>,
    sampler: In<Sampler>,
    view: In<View>,
) -> Answer {
    let mut state = lock();
    let context = state.current()?;
    texture.check()?;
    let (resource, sampler) = (resource.get()?, sampler.get()?);
    state.check_resource(&resource)?;
    check_sampler(&sampler)?;
    let view = if view.is_null() {
        None
    } else {
        Some(view.get()?)
    };
    // A view is of an array only (cuTexObjectCreate).
    if view.is_some() && matches!(word(&resource, 0), LINEAR | PITCHED) {
        return Err(INVALID_VALUE);
    }
    let handle = state.make(Kind::TextureObject)?;
    state.textures.insert(
        handle,
        Texture {
            context,
            resource,
            sampler,
            view,
        },
    );
    texture.set(handle)
}

fn destroy(texture: u64) -> Answer {
    let mut state = lock();
    state.current()?;
    state.textures.remove(&texture).ok_or(INVALID_VALUE)?;
    state.release(Kind::TextureObject, texture);
    Ok(())
}

fn get_resource(resource: Out<Resource>, texture: u64) -> Answer {
    let state = lock();
    state.current()?;
    resource.set(state.textures.get(&texture).ok_or(INVALID_VALUE)?.resource)
}

fn get_texture(sampler: Out<Sampler>, texture: u64) -> Answer {
    let state = lock();
    state.current()?;
    sampler.set(state.textures.get(&texture).ok_or(INVALID_VALUE)?.sampler)
}

fn get_view(view: Out<View>, texture: u64) -> Answer {
    let state = lock();
    state.current()?;
    let object = state.textures.get(&texture).ok_or(INVALID_VALUE)?;
    view.set(object.view.ok_or(INVALID_VALUE)?)
}

fn create_surface(surface: Out<u64>, resource: In<Resource>) -> Answer {
    let mut state = lock();
    let context = state.current()?;
    surface.check()?;
    let resource = resource.get()?;
    let flags = word(&resource, offset_of!(CUDA_RESOURCE_DESC, flags));
    // An array made for it (cuSurfObjectCreate).
    if word(&resource, 0) != ARRAY || flags != 0 {
        return Err(INVALID_VALUE);
    }
    let array = state
        .array(long(&resource, MEMBERS))
        .map_err(|_| INVALID_VALUE)?;
    if !array.is_for_surfaces() {
        return Err(INVALID_VALUE);
    }
    let handle = state.make(Kind::SurfaceObject)?;
    state.surfaces.insert(handle, Surface { context, resource });
    surface.set(handle)
}

fn destroy_surface(surface: u64) -> Answer {
    let mut state = lock();
    state.current()?;
    state.surfaces.remove(&surface).ok_or(INVALID_VALUE)?;
    state.release(Kind::SurfaceObject, surface);
    Ok(())
}

fn get_surface_resource(resource: Out<Resource>, surface: u64) -> Answer {
    let state = lock();
    state.current()?;
    resource.set(state.surfaces.get(&surface).ok_or(INVALID_VALUE)?.resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_where_cuda_h_has_them() {
        let resource = cutape_registry::structure("CUDA_RESOURCE_DESC").expect("known");
        for (name, offset) in [
            ("res.array.hArray", MEMBERS),
            ("res.mipmap.hMipmappedArray", MEMBERS),
            ("res.linear.format", MEMBERS + 8),
            ("res.linear.numChannels", MEMBERS + 12),
            ("res.linear.sizeInBytes", MEMBERS + 16),
            ("res.pitch2D.width", MEMBERS + 16),
            ("res.pitch2D.height", MEMBERS + 24),
            ("res.pitch2D.pitchInBytes", MEMBERS + 32),
        ] {
            let field = resource.fields.iter().find(|field| field.name == name);
            assert_eq!(
                field.map(|field| field.offset as usize),
                Some(offset),
                "{name}"
            );
        }
    }

    #[test]
    fn samplers_are_checked() {
        let flags = offset_of!(CUDA_TEXTURE_DESC, flags);
        let filter = offset_of!(CUDA_TEXTURE_DESC, filterMode);
        for (at, value, sound) in [
            (0, 3, true),
            (0, 4, false),
            (filter, 2, false),
            (flags, 2, true),
            (flags, 4, false),
        ] {
            let mut sampler = [0; size_of::<CUDA_TEXTURE_DESC>()];
            sampler[at] = value;
            assert_eq!(check_sampler(&sampler).is_ok(), sound, "{at} {value}");
        }
    }
}
