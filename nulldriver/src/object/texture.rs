//! Texture and surface objects, and texture references. No code runs that could read through one.

use cutape_driver::types::{CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC};

/// `CU_TRSF_*`: read as integer, normalized coordinates, sRGB, no trilinear optimisation, seamless
/// cube maps.
pub(crate) const FLAGS: u32 = 0x73;

/// A texture object.
pub(crate) struct Texture {
    pub(crate) context: u64,
    pub(crate) resource: CUDA_RESOURCE_DESC,
    pub(crate) sampler: CUDA_TEXTURE_DESC,
    /// Zeros if it was created without one.
    pub(crate) view: CUDA_RESOURCE_VIEW_DESC,
}

/// A surface object.
pub(crate) struct Surface {
    pub(crate) context: u64,
    pub(crate) resource: CUDA_RESOURCE_DESC,
}

/// What a texture reference may be bound to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    Array,
    Mipmapped,
    Address,
}

/// A texture reference.
pub(crate) struct TextureReference {
    pub(crate) context: u64,
    /// With the handle or the address.
    pub(crate) binding: Option<(Bound, u64)>,
    /// Format and number of channels.
    pub(crate) format: (u32, i32),
    pub(crate) address_modes: [u32; 3],
    pub(crate) filter: u32,
    pub(crate) mipmap_filter: u32,
    pub(crate) anisotropy: u32,
    pub(crate) flags: u32,
    /// The bits of four floats.
    pub(crate) border: [u32; 4],
}
