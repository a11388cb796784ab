//! From the address of an image to code that runs on the device.

use std::collections::HashMap;
use std::ffi::{CStr, c_char};

use cutape_image::{
    CodeKind, Content, Extent, ImageKind, ProblemKind, extent, kind, parse, runs_on, wrapper_data,
};

use crate::call::answer::{
    CUresult, INVALID_IMAGE, INVALID_PTX, INVALID_VALUE, NO_BINARY_FOR_GPU, UNSUPPORTED_PTX_VERSION,
};
use crate::settings;

/// Why an image is refused: the code, and a line for the error log.
pub(crate) struct Refusal {
    pub(crate) code: CUresult,
    pub(crate) text: String,
}

impl Refusal {
    pub(crate) fn new(code: CUresult, text: impl Into<String>) -> Refusal {
        Refusal {
            code,
            text: text.into(),
        }
    }
}

/// The code that was chosen from an image.
pub(crate) struct Code {
    pub(crate) content: Content,
    /// It is PTX, which a driver compiles.
    pub(crate) from_ptx: bool,
    /// Of the device that it was chosen for.
    pub(crate) capability: (u16, u16),
    /// Positions in `content.functions` of the kernels, by name.
    pub(crate) kernels: HashMap<String, usize>,
    /// Positions of the kernels in the order of the image.
    pub(crate) order: Vec<usize>,
}

impl Code {
    fn new(content: Content, from_ptx: bool, capability: (u16, u16)) -> Code {
        let order: Vec<usize> = (0..content.functions.len())
            .filter(|&at| content.functions[at].is_entry)
            .collect();
        let kernels = order
            .iter()
            .map(|&at| (content.functions[at].name.clone(), at))
            .collect();
        Code {
            content,
            from_ptx,
            capability,
            kernels,
            order,
        }
    }
}

/// Bytes of a fatbin wrapper.
const WRAPPER: u64 = 24;
/// The longest image, in bytes.
const MAX_SIZE: u64 = 4 << 30;

/// The bytes of the image at an address; of a wrapper, those of its container.
///
/// # Safety
/// The address must be that of an image, as `cuModuleLoadData` requires; the bytes must not change
/// while the slice is used.
unsafe fn bytes_at<'a>(mut address: u64) -> Result<&'a [u8], Refusal> {
    if address == 0 {
        return Err(Refusal::new(INVALID_VALUE, "no image"));
    }
    let mut size = 4;
    let mut followed = false;
    let unknown = || Refusal::new(INVALID_IMAGE, "neither ELF nor fatbin nor PTX");
    loop {
        // SAFETY: the caller guarantees an image, which is as long as the headers read so far
        // require.
        let prefix = unsafe { bytes_of(address, size) };
        let is_binary = [
            &b"\x7fELF"[..],
            &[0x50, 0xed, 0x55, 0xba],
            &[0xb1, 0x43, 0x62, 0x46],
        ]
        .contains(&&prefix[..4]);
        match extent(prefix) {
            Extent::NeedBytes(bytes) | Extent::Known(bytes) if bytes > MAX_SIZE => {
                return Err(Refusal::new(
                    INVALID_IMAGE,
                    "the headers promise too many bytes",
                ));
            }
            Extent::NeedBytes(bytes) if is_binary && bytes > size => size = bytes,
            // A text must not be read beyond its NUL.
            Extent::NeedBytes(_) if !is_binary => {
                // SAFETY: what is no binary image must be a text that ends with a NUL
                // (cuModuleLoadData).
                let text = unsafe { text_at(address) };
                return match kind(text) {
                    ImageKind::Ptx => Ok(text),
                    _ => Err(unknown()),
                };
            }
            Extent::Known(WRAPPER) if kind(prefix) == ImageKind::FatbinWrapper && !followed => {
                // SAFETY: a wrapper has 24 bytes.
                let whole = unsafe { bytes_of(address, WRAPPER) };
                address = wrapper_data(whole).map_or(0, |wrapper| wrapper.data);
                if address == 0 {
                    return Err(Refusal::new(INVALID_IMAGE, "the wrapper has no container"));
                }
                size = 4;
                followed = true;
            }
            // SAFETY: the image's headers claim that length.
            Extent::Known(bytes) => return Ok(unsafe { bytes_of(address, bytes) }),
            // SAFETY: a text ends with a NUL (cuModuleLoadData).
            Extent::Unbounded => return Ok(unsafe { text_at(address) }),
            Extent::NeedBytes(_) | Extent::Unrecognised => return Err(unknown()),
        }
    }
}

/// # Safety
/// That many bytes are readable there and do not change while the slice is used.
unsafe fn bytes_of<'a>(address: u64, size: u64) -> &'a [u8] {
    // SAFETY: the caller guarantees it.
    unsafe { std::slice::from_raw_parts(address as *const u8, size as usize) }
}

/// # Safety
/// A NUL-terminated string is there and does not change while the slice is used.
unsafe fn text_at<'a>(address: u64) -> &'a [u8] {
    // SAFETY: the caller guarantees it.
    unsafe { CStr::from_ptr(address as *const c_char) }.to_bytes()
}

/// Chooses code from the image at an address of the program.
pub(crate) fn load_from(address: u64, capability: (u16, u16)) -> Result<Code, Refusal> {
    // SAFETY: by the C prototype the program gives the address of an image; a wild one faults, as
    // in the real driver.
    let bytes = unsafe { bytes_at(address) }?;
    choose(bytes, capability)
}

/// Chooses what runs on a device of that compute capability: machine code of the nearest
/// architecture, else PTX of the nearest.
pub(crate) fn choose(bytes: &[u8], capability: (u16, u16)) -> Result<Code, Refusal> {
    let image = parse(bytes).map_err(|problem| {
        let code = match (kind(bytes), problem.kind) {
            (ImageKind::Ptx, _) | (_, ProblemKind::Syntax) => INVALID_PTX,
            _ => INVALID_IMAGE,
        };
        Refusal::new(code, problem.to_string())
    })?;
    let mut best = None;
    for entry in image.entries {
        let is_code = matches!(entry.code, CodeKind::Elf | CodeKind::Ptx);
        // A text without a target is chosen, so that its own error is reported.
        let fits = entry.target.map_or(entry.content.is_err(), |target| {
            runs_on(target, entry.code, capability)
        });
        let rank = (
            entry.code == CodeKind::Elf,
            entry.target.map(|target| target.number()),
        );
        if is_code && fits && best.as_ref().is_none_or(|(held, _)| rank > *held) {
            best = Some((rank, entry));
        }
    }
    let Some((_, entry)) = best else {
        let device = capability.0 * 10 + capability.1;
        return Err(Refusal::new(
            NO_BINARY_FOR_GPU,
            format!("no code for sm_{device} in the image"),
        ));
    };
    let from_ptx = entry.code == CodeKind::Ptx;
    let code = if from_ptx { INVALID_PTX } else { INVALID_IMAGE };
    let content = (entry.content).map_err(|problem| Refusal::new(code, problem.to_string()))?;
    let newest = cutape_image::newest_ptx(settings::get().version);
    if from_ptx
        && let Some(version) = content.ptx_version
        && version > newest
    {
        let text = format!(
            "PTX version {}.{} is newer than {}.{}",
            version.0, version.1, newest.0, newest.1
        );
        return Err(Refusal::new(UNSUPPORTED_PTX_VERSION, text));
    }
    if content.address_bits == 32 {
        // Measured for 32-bit PTX given to the linker.
        return Err(Refusal::new(code, "32-bit code"));
    }
    Ok(Code::new(content, from_ptx, capability))
}
