//! How long an image is, from its headers alone: `cuModuleLoadData` takes an address without a
//! length.

use crate::elf::{ElfError, Header, u16_at, u32_at, u64_at};
use crate::kind::{FATBIN_MAGIC, TextStart, WRAPPER_MAGIC, text_start};

/// How many bytes an image takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// This many bytes from its start; may be more than the prefix.
    Known(u64),
    /// At least this many bytes from the start are needed (always more than there were).
    NeedBytes(u64),
    /// Text, which ends at its first NUL.
    Unbounded,
    /// Nothing with a known length.
    Unrecognised,
}

/// The wrapper that `nvcc` and `cudart` pass instead of a container (`__fatBinC_Wrapper_t`, 24
/// bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrapperHeader {
    /// 1, or 2 where `second` points to an array of prelinked containers.
    pub version: u32,
    /// Address of the container in the process that the bytes came from.
    pub data: u64,
    /// Address of a file name (version 1) or of the prelinked containers (version 2); often 0.
    pub second: u64,
}

/// Bytes of a fatbin container's header.
const CONTAINER_HEADER: u64 = 16;
/// A comment longer than this is taken for text before its first word is seen.
const LONG_COMMENT: usize = 64 << 10;

/// How many bytes the image at the start of `prefix` takes, by its headers alone.
///
/// A reader that can fetch more bytes begins with a few, and repeats while the answer is
/// [`Extent::NeedBytes`]. A wrapper's extent is its own 24 bytes; follow it with [`wrapper_data`].
/// Text whose first word is a directive other than `.version` is unbounded, too: the driver refuses
/// it, but a recorder keeps it. Archives and bitcode have no length. A damaged header may claim any
/// length.
pub fn extent(prefix: &[u8]) -> Extent {
    // No two magics share their first byte with a text.
    let magics = [
        *b"\x7fELF",
        FATBIN_MAGIC.to_le_bytes(),
        WRAPPER_MAGIC.to_le_bytes(),
    ];
    if prefix.len() < 4 && magics.iter().any(|magic| magic.starts_with(prefix)) {
        return Extent::NeedBytes(24);
    }
    if prefix.starts_with(b"\x7fELF") {
        return match Header::read(prefix).and_then(|header| header.file_end(prefix)) {
            Ok(end) => Extent::Known(end),
            Err(ElfError::Short(bytes)) => Extent::NeedBytes(bytes),
            Err(ElfError::Bad) => Extent::Unrecognised,
        };
    }
    match u32_at(prefix, 0) {
        Some(FATBIN_MAGIC) => return container(prefix).map_or_else(|e| e, Extent::Known),
        Some(WRAPPER_MAGIC) => return Extent::Known(24),
        _ => {}
    }
    match text_start(prefix) {
        TextStart::At(text) => match text {
            [b'.', letter, ..] if letter.is_ascii_alphabetic() => Extent::Unbounded,
            [b'.'] => Extent::NeedBytes(prefix.len() as u64 + 64),
            _ => Extent::Unrecognised,
        },
        TextStart::Blank => Extent::Unbounded,
        TextStart::CutOff if prefix.len() > LONG_COMMENT => Extent::Unbounded,
        TextStart::CutOff => Extent::NeedBytes((prefix.len() as u64 * 2).max(256)),
    }
}

/// Length of the container at the start of `prefix`.
fn container(prefix: &[u8]) -> Result<u64, Extent> {
    let need = Extent::NeedBytes(CONTAINER_HEADER);
    let header = u64::from(u16_at(prefix, 6).ok_or(need)?);
    let body = u64_at(prefix, 8).ok_or(need)?;
    if header < CONTAINER_HEADER {
        return Err(Extent::Unrecognised);
    }
    header.checked_add(body).ok_or(Extent::Unrecognised)
}

/// The wrapper at the start of `prefix`, if all its 24 bytes are there.
pub fn wrapper_data(prefix: &[u8]) -> Option<WrapperHeader> {
    if u32_at(prefix, 0)? != WRAPPER_MAGIC {
        return None;
    }
    Some(WrapperHeader {
        version: u32_at(prefix, 4)?,
        data: u64_at(prefix, 8)?,
        second: u64_at(prefix, 16)?,
    })
}
