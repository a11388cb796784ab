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
    /// None of these, or too few bytes to say.
    Unknown,
}

/// Which kind of image `prefix` begins. A text is PTX if its first word, after blanks and comments, is `.version`
/// (PTX ISA, "PTX Module Directives: .version"). An ELF file that is cut before its machine number is unknown.
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
        TextStart::At(at) if starts_version(&prefix[at..]) => ImageKind::Ptx,
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

/// Where the first word of a text stands.
pub(crate) enum TextStart {
    /// At this offset.
    At(usize),
    /// Nothing but blanks and comments up to the end of what is there.
    CutOff,
    /// Nothing but blanks and comments up to a NUL.
    Blank,
}

/// Skips blanks and both kinds of comments.
pub(crate) fn text_start(text: &[u8]) -> TextStart {
    let mut at = 0;
    loop {
        match text.get(at..) {
            None | Some([] | [b'/']) => return TextStart::CutOff,
            Some([0, ..]) => return TextStart::Blank,
            Some([b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c, ..]) => at += 1,
            Some([b'/', b'/', rest @ ..]) => {
                match rest.iter().position(|&b| b == b'\n' || b == 0) {
                    Some(end) => at += 2 + end,
                    None => return TextStart::CutOff,
                }
            }
            Some([b'/', b'*', rest @ ..]) => {
                let end = rest.iter().position(|&b| b == 0).unwrap_or(rest.len());
                match rest[..end].windows(2).position(|two| two == b"*/") {
                    Some(close) => at += 4 + close,
                    None if end < rest.len() => return TextStart::Blank,
                    None => return TextStart::CutOff,
                }
            }
            Some(_) => return TextStart::At(at),
        }
    }
}
