//! From the address of an image to code that this device can take.

use std::collections::HashMap;

use cutape_image::{
    CodeKind, Content, Extent, ImageKind, ProblemKind, extent, kind, parse, runs_on, wrapper_data,
};

use crate::answer::{
    CUresult, INVALID_IMAGE, INVALID_PTX, INVALID_VALUE, NO_BINARY_FOR_GPU, UNSUPPORTED_PTX_VERSION,
};
use crate::settings;

/// Why an image is refused: the code, and a line for the error log.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// What was chosen from an image.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) content: Content,
    /// It had to be compiled.
    pub(crate) from_ptx: bool,
    /// The compute capability of the device that it was chosen for.
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

/// Bytes that are looked at first.
const FIRST: u64 = 24;
/// No image is longer: 4 GiB.
const LONGEST: u64 = 4 << 30;

/// The bytes of the image that begins there, a wrapper followed to its container.
///
/// # Safety
/// The address must be that of an image, as `cuModuleLoadData` asks of its caller; the bytes must not change while the
/// slice is used.
unsafe fn bytes_at<'a>(mut address: u64) -> Result<&'a [u8], Refusal> {
    if address == 0 {
        return Err(Refusal::new(INVALID_VALUE, "no image"));
    }
    let mut looked_at = 4;
    let mut followed = false;
    loop {
        // SAFETY: promised by the caller as far as the headers read so far say.
        let prefix =
            unsafe { std::slice::from_raw_parts(address as *const u8, looked_at as usize) };
        let is_binary = [
            &b"\x7fELF"[..],
            &[0x50, 0xed, 0x55, 0xba],
            &[0xb1, 0x43, 0x62, 0x46],
        ]
        .contains(&&prefix[..4]);
        match extent(prefix) {
            Extent::NeedBytes(bytes) | Extent::Known(bytes) if bytes > LONGEST => {
                return Err(Refusal::new(
                    INVALID_IMAGE,
                    "the headers promise too many bytes",
                ));
            }
            Extent::NeedBytes(bytes) if is_binary && bytes > looked_at => looked_at = bytes,
            // More of a text must not be read than there is before its NUL.
            Extent::NeedBytes(_) if !is_binary => {
                // SAFETY: what is no binary image must be a text that ends with a NUL (cuModuleLoadData).
                let text = unsafe { std::ffi::CStr::from_ptr(address as *const std::ffi::c_char) }
                    .to_bytes();
                return match kind(text) {
                    ImageKind::Ptx => Ok(text),
                    _ => Err(Refusal::new(
                        INVALID_IMAGE,
                        "neither ELF nor fatbin nor PTX",
                    )),
                };
            }
            Extent::Known(FIRST) if kind(prefix) == ImageKind::FatbinWrapper && !followed => {
                // SAFETY: a wrapper has 24 bytes.
                let whole =
                    unsafe { std::slice::from_raw_parts(address as *const u8, FIRST as usize) };
                address = wrapper_data(whole).map_or(0, |wrapper| wrapper.data);
                if address == 0 {
                    return Err(Refusal::new(INVALID_IMAGE, "the wrapper has no container"));
                }
                looked_at = 4;
                followed = true;
            }
            Extent::Known(bytes) => {
                // SAFETY: the image says that it is so long.
                return Ok(unsafe {
                    std::slice::from_raw_parts(address as *const u8, bytes as usize)
                });
            }
            Extent::Unbounded => {
                // SAFETY: a text ends with a NUL (cuModuleLoadData).
                return Ok(
                    unsafe { std::ffi::CStr::from_ptr(address as *const std::ffi::c_char) }
                        .to_bytes(),
                );
            }
            Extent::NeedBytes(_) | Extent::Unrecognised => {
                return Err(Refusal::new(
                    INVALID_IMAGE,
                    "neither ELF nor fatbin nor PTX",
                ));
            }
        }
    }
}

/// Reads and chooses from the image at an address of the program.
pub(crate) fn load_from(address: u64, capability: (u16, u16)) -> Result<Code, Refusal> {
    // SAFETY: the program vouches for the pointer by the C prototype; a wild one faults, as in the real driver.
    let bytes = unsafe { bytes_at(address) }?;
    choose(bytes, capability)
}

/// From which driver version on which PTX version is taken (PTX ISA, release history).
const PTX_VERSIONS: &[(i32, (u16, u16))] = &[
    (11_000, (7, 0)),
    (11_010, (7, 1)),
    (11_020, (7, 2)),
    (11_030, (7, 3)),
    (11_040, (7, 4)),
    (11_050, (7, 5)),
    (11_060, (7, 6)),
    (11_070, (7, 7)),
    (11_080, (7, 8)),
    (12_000, (8, 0)),
    (12_010, (8, 1)),
    (12_020, (8, 2)),
    (12_030, (8, 3)),
    (12_040, (8, 4)),
    (12_050, (8, 5)),
    (12_070, (8, 6)),
    (12_080, (8, 7)),
    (12_090, (8, 8)),
    (13_000, (9, 0)),
];

/// The newest PTX version that a driver of a CUDA version takes.
fn newest_ptx(driver: i32) -> (u16, u16) {
    PTX_VERSIONS
        .iter()
        .rev()
        .find(|entry| entry.0 <= driver)
        .map_or((7, 0), |entry| entry.1)
}

/// Chooses what runs on a device of that compute capability: machine code of the nearest architecture, else PTX of the
/// nearest.
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
        // A text that does not even say its target is reported for what is wrong with it.
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
    let content = entry.content.map_err(|problem| {
        Refusal::new(
            if from_ptx { INVALID_PTX } else { INVALID_IMAGE },
            problem.to_string(),
        )
    })?;
    let newest = newest_ptx(settings::get().version);
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
        return Err(Refusal::new(
            if from_ptx { INVALID_PTX } else { INVALID_IMAGE },
            "32-bit code",
        ));
    }
    Ok(Code::new(content, from_ptx, capability))
}
