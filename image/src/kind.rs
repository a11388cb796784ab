//! Which kind of image some bytes begin.

use crate::elf::{EM_CUDA, u16_at, u32_at};

/// First word of a fatbin container.
pub(crate) const FATBIN_MAGIC: u32 = 0xBA55_ED50;
/// First word of the wrapper that points to a container.
pub(crate) const WRAPPER_MAGIC: u32 = 0x4662_43B1;
/// First word of NVIDIA's code for link-time optimisation.
const LTO_MAGIC: u32 = 0x7F4E_43ED;

/// What an image is, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImageKind {
    /// An ELF file of machine code for a GPU.
    Cubin,
    /// A container of several images.
    Fatbin,
    /// The 24 bytes that point to a container; see [`crate::wrapper_data`].
    FatbinWrapper,
    /// PTX text.
    Ptx,
    /// An ELF file for the host (an input of the linker: `CU_JIT_INPUT_OBJECT`).
    HostObject,
    /// An `ar` archive (`CU_JIT_INPUT_LIBRARY`).
    HostArchive,
    /// LLVM bitcode or NVIDIA's LTO code (`CU_JIT_INPUT_NVVM`).
    NvvmBitcode,
    /// None of these, or too few bytes.
    Unknown,
}

/// Which kind of image `prefix` begins. A text is PTX if its first word, after blanks and comments,
/// is `.version` (PTX ISA, "PTX Module Directives: .version"). An ELF file that is cut before its
/// machine number is unknown.
pub fn kind(prefix: &[u8]) -> ImageKind {
    if prefix.starts_with(b"\x7fELF") {
        return match u16_at(prefix, 18) {
            Some(EM_CUDA) => ImageKind::Cubin,
            Some(_) => ImageKind::HostObject,
            None => ImageKind::Unknown,
        };
    }
    if prefix.starts_with(b"!<arch>\n") {
        return ImageKind::HostArchive;
    }
    match u32_at(prefix, 0) {
        Some(FATBIN_MAGIC) => return ImageKind::Fatbin,
        Some(WRAPPER_MAGIC) => return ImageKind::FatbinWrapper,
        // LLVM bitcode, bare and wrapped.
        Some(LTO_MAGIC | 0xDEC0_4342 | 0x0B17_C0DE) => return ImageKind::NvvmBitcode,
        _ => {}
    }
    match text_start(prefix) {
        TextStart::At(text) if starts_version(text) => ImageKind::Ptx,
        _ => ImageKind::Unknown,
    }
}

/// Whether `text` begins with the word `.version`.
fn starts_version(text: &[u8]) -> bool {
    match text.strip_prefix(b".version") {
        Some([next, ..]) => !next.is_ascii_alphanumeric() && *next != b'_',
        Some([]) => true,
        None => false,
    }
}

/// Where the first word of a text begins.
pub(crate) enum TextStart<'a> {
    /// Here.
    At(&'a [u8]),
    /// Only blanks and comments up to the end of the bytes.
    CutOff,
    /// Only blanks and comments up to a NUL.
    Blank,
}

/// Skips blanks and both kinds of comments.
pub(crate) fn text_start(mut text: &[u8]) -> TextStart<'_> {
    loop {
        text = match text {
            [] | [b'/'] => return TextStart::CutOff,
            [0, ..] => return TextStart::Blank,
            [b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c, rest @ ..] => rest,
            [b'/', b'/', rest @ ..] => {
                let end = rest.iter().position(|&b| b == b'\n' || b == 0);
                let after = end.and_then(|end| rest.get(end..));
                let Some(after) = after else {
                    return TextStart::CutOff;
                };
                after
            }
            [b'/', b'*', rest @ ..] => {
                let comment = until_nul(rest);
                let close = comment.windows(2).position(|two| two == b"*/");
                match close.and_then(|close| rest.get(close + 2..)) {
                    Some(after) => after,
                    None if comment.len() < rest.len() => return TextStart::Blank,
                    None => return TextStart::CutOff,
                }
            }
            _ => return TextStart::At(text),
        }
    }
}

/// The bytes up to the first NUL.
pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&b| b == 0).next().unwrap_or_default()
}
