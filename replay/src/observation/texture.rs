//! Texture and surface objects among the parameters of a launch, and the arrays that they show.

use cutape_registry::layout::{offset_of, size_of};
use cutape_registry::{Kind, id};

use crate::api::buffer::{Buffer, word};
use crate::api::{Api, result_name};
use crate::objects::handles::Handles;
use crate::observation::job::ObservedTexture;
use crate::observation::memory::Region;
use crate::place::address::{Found, Ranges};

const RESOURCE: &str = "CUDA_RESOURCE_DESC";
const RESOURCE_TYPE: usize = offset_of(RESOURCE, "resType");
/// Of the array, the mipmapped array or the memory.
const SHOWN: usize = offset_of(RESOURCE, "res.array.hArray");
const MIPMAPPED: u32 = 1;

/// The objects whose handles equal words of parameters. A number may equal a handle, so that an
/// object may be found that the kernel does not use.
///
/// # Errors
/// What cannot be read of an object, in a phrase.
pub(crate) fn textures_of(
    (api, ranges, handles): (&Api, &Ranges, &Handles),
    parameters: &[u8],
    layout: &[(u32, u32)],
) -> Result<Vec<ObservedTexture>, String> {
    let mut textures = Vec::new();
    for at in word_offsets(parameters.len(), layout) {
        let handle = word(parameters, at);
        if handle == 0 || matches!(ranges.find(handle), Found::Live(..)) {
            continue;
        }
        for kind in [Kind::TextureObject, Kind::SurfaceObject] {
            if handles.is_taken(kind, handle) {
                let texture = describe(api, at as u32, handle, kind);
                textures.push(texture.map_err(|why| format!("{}: {why}", kind.name()))?);
            }
        }
    }
    Ok(textures)
}

/// Offsets of the words that can be handles: inside of one parameter, where the layout is known.
fn word_offsets(length: usize, layout: &[(u32, u32)]) -> Vec<usize> {
    let whole = [(0, length as u32)];
    let spans = if layout.is_empty() { &whole } else { layout };
    let words = spans.iter().flat_map(|&(offset, size)| {
        let end = (offset.saturating_add(size) as usize).min(length);
        let first = (offset as usize).next_multiple_of(8);
        (first..end).step_by(8).filter(move |at| at + 8 <= end)
    });
    words.collect()
}

fn describe(api: &Api, offset: u32, handle: u64, kind: Kind) -> Result<ObservedTexture, String> {
    let is_surface = kind == Kind::SurfaceObject;
    let read = |name: &'static str, id: u16, length: usize| {
        let bytes = Buffer::zeroed(length);
        match api.own(id, &[bytes.address(), handle]) {
            Ok(()) => Ok(bytes.bytes().to_vec()),
            Err(code) => Err(format!("{name} returned {}", result_name(code))),
        }
    };
    let length = size_of(RESOURCE);
    let resource = match is_surface {
        true => read(
            "cuSurfObjectGetResourceDesc",
            id::cuSurfObjectGetResourceDesc,
            length,
        ),
        false => read(
            "cuTexObjectGetResourceDesc",
            id::cuTexObjectGetResourceDesc,
            length,
        ),
    }?;
    let (mut sampler, mut view) = (Vec::new(), Vec::new());
    if !is_surface {
        let length = size_of("CUDA_TEXTURE_DESC");
        sampler = read(
            "cuTexObjectGetTextureDesc",
            id::cuTexObjectGetTextureDesc,
            length,
        )?;
        let length = size_of("CUDA_RESOURCE_VIEW_DESC");
        view = read(
            "cuTexObjectGetResourceViewDesc",
            id::cuTexObjectGetResourceViewDesc,
            length,
        )?;
        // Zeros if the object was created without one; given for an array they are INVALID_VALUE
        // (H100, driver 580.159.04).
        if view.iter().all(|&byte| byte == 0) {
            view.clear();
        }
    }
    let shown = word(&resource, SHOWN);
    let is_array = resource_type(&resource) <= MIPMAPPED;
    Ok(ObservedTexture {
        offset,
        handle,
        is_surface,
        resource,
        sampler,
        view,
        array: is_array.then_some(shown),
    })
}

fn resource_type(resource: &[u8]) -> u32 {
    word(resource, RESOURCE_TYPE) as u32
}

/// Addresses of the linear memory that objects show.
pub(crate) fn linear_memory(textures: &[ObservedTexture]) -> Vec<u64> {
    let linear = textures.iter().filter(|texture| texture.array.is_none());
    linear
        .map(|texture| word(&texture.resource, SHOWN))
        .collect()
}

/// The arrays that objects show, each once.
///
/// # Errors
/// Why the contents of an array cannot be extracted, in a phrase.
pub(crate) fn arrays_of(
    api: &Api,
    textures: &[ObservedTexture],
    longest: u64,
) -> Result<Vec<Region>, String> {
    let mut arrays: Vec<Region> = Vec::new();
    for texture in textures {
        let Some(handle) = texture.array else {
            continue;
        };
        if arrays.iter().any(|known| known.live == handle) {
            continue;
        }
        let is_mipmapped = resource_type(&texture.resource) == MIPMAPPED;
        let shape = api.array_shape(handle, is_mipmapped)?;
        if shape.bytes() > longest {
            return Err(format!(
                "an array has {} bytes, and --longest is {longest}",
                shape.bytes()
            ));
        }
        arrays.push(Region::array(handle, shape));
    }
    let shapes = || {
        let shapes = arrays
            .iter()
            .filter_map(|region| Some((region, region.array?)));
        shapes.partition::<Vec<_>, _>(|(_, shape)| shape.levels > 0)
    };
    let (mipmapped, single) = shapes();
    for (whole, shape) in &mipmapped {
        let is_part = |part: &(&Region, _)| api.is_level_of(part.0.live, whole.live, shape);
        if single.iter().any(is_part) {
            return Err("objects show a mipmapped array and one of its levels".into());
        }
    }
    Ok(arrays)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_lie_inside_of_a_parameter() {
        for (length, layout, expected) in [
            (20, &[][..], &[0, 8][..]),
            (16, &[(0, 8), (8, 8)], &[0, 8]),
            // Two numbers of four bytes are no handle.
            (16, &[(0, 4), (4, 4), (8, 8)], &[8]),
            // A struct of 20 bytes, and one that is not aligned.
            (32, &[(0, 20), (20, 12)], &[0, 8, 24]),
            // A layout that is longer than the parameters.
            (12, &[(0, 8), (8, 8)], &[0]),
        ] {
            assert_eq!(word_offsets(length, layout), expected, "{layout:?}");
        }
    }
}
