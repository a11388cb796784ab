//! From bytes to what they hold, for all kinds of images.

use crate::content::Content;
use crate::extent::{Extent, extent};
use crate::fatbin::{self, Packed, Unpacker};
use crate::kind::{ImageKind, kind, until_nul};
use crate::problem::{Place, Problem, ProblemKind};
use crate::target::{CodeKind, Target};
use crate::{cubin, ptx};

/// An image and its entries: many in a fatbin, one in a cubin or a PTX text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// What the bytes are.
    pub kind: ImageKind,
    /// In the order of the file.
    pub entries: Vec<Entry>,
}

/// One cubin, PTX text or other code in an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What kind of code it is.
    pub code: CodeKind,
    /// What it was compiled for, if it says so.
    pub target: Option<Target>,
    /// Stored compressed (LZ4 or zstd).
    pub compressed: bool,
    /// 64 or 32.
    pub address_bits: u8,
    /// In a fatbin, two numbers of the entry's header: the PTX version of PTX, the ABI of a cubin.
    pub version: Option<(u16, u16)>,
    /// The tool that made it, if it says so; see [`Content::producer`].
    pub producer: Option<String>,
    /// The name of the source file, as given to `fatbinary`.
    pub identifier: Option<String>,
    /// The assembler's options for PTX.
    pub options: Option<String>,
    /// Bytes when decompressed, padding included; `None` if they could not be decompressed.
    pub size: Option<u64>,
    /// What it holds, or why that is unknown (LTO code is not read).
    pub content: Result<Content, Problem>,
}

/// Reads the image at the start of `bytes`, and ignores what follows it.
///
/// Fails if there is no image, if a container is damaged, or if a lone cubin or PTX text cannot be
/// read. An unreadable entry of a fatbin is an error in its [`Entry::content`]. Never panics.
/// Memory and time grow with the bytes and with what they decompress to, which is bounded by their
/// length and by [`crate::MAX_DECOMPRESSED_TOTAL`].
pub fn parse(bytes: &[u8]) -> Result<Image, Problem> {
    let kind = kind(bytes);
    let unreadable = |what: &str| Err(Problem::new(ProblemKind::Unsupported, Place::Whole, what));
    let entries = match kind {
        ImageKind::Cubin => vec![lone(CodeKind::Elf, bytes.len(), cubin::read(bytes)?)],
        ImageKind::Ptx => {
            let text = until_nul(bytes);
            vec![lone(CodeKind::Ptx, text.len(), ptx::read(text)?)]
        }
        ImageKind::Fatbin => {
            let entries = fatbin::entries(bytes)?;
            let mut unpacker = Unpacker::new(&entries);
            entries
                .iter()
                .map(|packed| entry(packed, &mut unpacker))
                .collect()
        }
        ImageKind::FatbinWrapper => {
            return unreadable(
                "a fatbin wrapper holds an address; read the container that it points to",
            );
        }
        ImageKind::HostObject => return unreadable("an ELF file for the host, not for a GPU"),
        ImageKind::HostArchive => {
            return unreadable("an archive; read its members");
        }
        ImageKind::NvvmBitcode => return unreadable("bitcode, which only the linker reads"),
        ImageKind::Unknown => return Err(unknown(bytes)),
    };
    Ok(Image { kind, entries })
}

/// Calls `each` with the bytes of every entry of the image at the start of `bytes`, unpacked and
/// without padding, or why it cannot be unpacked. The entries come in the order of
/// [`Image::entries`]. An image of another kind than a fatbin is its only entry.
///
/// Fails if the container is damaged. Never panics. Memory grows with the largest entry.
pub fn unpack(
    bytes: &[u8],
    mut each: impl FnMut(usize, Result<&[u8], Problem>),
) -> Result<(), Problem> {
    if kind(bytes) != ImageKind::Fatbin {
        each(0, Ok(trimmed(bytes)));
        return Ok(());
    }
    let entries = fatbin::entries(bytes)?;
    let mut unpacker = Unpacker::new(&entries);
    for (number, packed) in entries.iter().enumerate() {
        let unpacked = packed.with_payload(&mut unpacker, |payload| {
            each(number, Ok(trimmed(payload)));
            Ok(())
        });
        if let Err(problem) = unpacked {
            each(number, Err(problem));
        }
    }
    Ok(())
}

/// The image at the start of some bytes.
fn trimmed(bytes: &[u8]) -> &[u8] {
    let length = match (kind(bytes), extent(bytes)) {
        (ImageKind::Ptx, _) => Some(until_nul(bytes).len()),
        (ImageKind::Cubin, Extent::Known(length)) => usize::try_from(length).ok(),
        _ => None,
    };
    length
        .and_then(|length| bytes.get(..length))
        .unwrap_or(bytes)
}

/// For text that is not PTX, the compiler's error with its line.
fn unknown(bytes: &[u8]) -> Problem {
    let text = until_nul(bytes);
    let printable = |b: &u8| b.is_ascii_graphic() || b.is_ascii_whitespace();
    if !text.is_empty()
        && text.iter().take(256).all(printable)
        && let Err(problem) = ptx::read(text)
    {
        return problem;
    }
    let start = bytes.get(..8).unwrap_or(bytes);
    let what = format!("neither a cubin nor a fatbin nor PTX: begins with {start:02x?}");
    Problem::new(ProblemKind::NotAnImage, Place::Byte(0), what)
}

fn lone(code: CodeKind, size: usize, content: Content) -> Entry {
    Entry {
        code,
        target: content.target,
        compressed: false,
        address_bits: content.address_bits,
        version: content.ptx_version,
        producer: content.producer.clone(),
        identifier: None,
        options: None,
        size: Some(size as u64),
        content: Ok(content),
    }
}

fn entry(packed: &Packed<'_>, unpacker: &mut Unpacker) -> Entry {
    let mut size = None;
    let content = packed.with_payload(unpacker, |payload| {
        size = Some(payload.len() as u64);
        match packed.code {
            CodeKind::Elf => cubin::read(payload),
            CodeKind::Ptx => ptx::read(until_nul(payload)),
            code => Err(Problem::new(
                ProblemKind::Unsupported,
                Place::Whole,
                format!("code of kind {code:?} is not read"),
            )),
        }
    });
    Entry {
        code: packed.code,
        target: packed.target,
        compressed: packed.compressed(),
        address_bits: packed.address_bits,
        version: Some(packed.version),
        producer: content.as_ref().ok().and_then(|c| c.producer.clone()),
        identifier: packed.identifier.clone(),
        options: packed.options.clone(),
        size,
        content,
    }
}
