//! Pending and completed links.
//!
//! The image that `cuLinkComplete` returns belongs to the link state. After `cuLinkDestroy` its
//! bytes stay, but for a word near their end, until many more links are destroyed: the real driver
//! still loads such an image (SUCCESS) as long as the heap block is not reused.

use std::collections::{HashSet, VecDeque};

use cutape_image::{Content, Function, Global, ImageKind, Suffix, Target, build, kind};

use crate::call::answer::{Answer, CUresult, INVALID_IMAGE, INVALID_SOURCE};
use crate::object::code::{self, Code, Refusal};
use crate::object::jit_options::Options;

// CUjitInputType.
const CUBIN: u32 = 0;
pub(crate) const PTX: u32 = 1;
const FATBINARY: u32 = 2;
const OBJECT: u32 = 3;
pub(crate) const LIBRARY: u32 = 4;

/// A pending or completed link.
pub(crate) struct Link {
    pub(crate) options: Options,
    inputs: Vec<Code>,
    /// Names of functions and variables defined so far.
    defined: HashSet<String>,
    /// Why an input was refused; completion then fails with the same code.
    failed: Option<CUresult>,
    pub(crate) image: Option<Box<[u8]>>,
    /// Of the device that it was created for.
    capability: (u16, u16),
}

impl Link {
    pub(crate) fn new(options: Options, capability: (u16, u16)) -> Link {
        Link {
            options,
            inputs: Vec::new(),
            defined: HashSet::new(),
            failed: None,
            image: None,
            capability,
        }
    }

    /// Adds an input of that `CUjitInputType`.
    pub(crate) fn add(&mut self, bytes: &[u8], input: u32, name: &str) -> Answer {
        let code = match read_input(bytes, input, self.capability) {
            Ok(code) => code,
            Err(refusal) => {
                if refusal.code == INVALID_IMAGE {
                    // A damaged image makes the link fail; refused PTX does not (both measured).
                    self.failed = self.failed.or(Some(refusal.code));
                }
                return self.refuse(refusal.code, &format!("{name}: {}", refusal.text));
            }
        };
        if let Some(symbol) = symbols(&code.content).find(|&name| self.defined.contains(name)) {
            let text = format!("{name}: {symbol} is defined twice");
            self.failed = self.failed.or(Some(INVALID_SOURCE)); // measured, here and at completion
            return self.refuse(INVALID_SOURCE, &text);
        }
        self.defined
            .extend(symbols(&code.content).map(str::to_owned));
        self.inputs.push(code);
        Ok(())
    }

    /// Makes the image: the union of the inputs, without code.
    pub(crate) fn complete(&mut self) -> Answer {
        if let Some(code) = self.failed {
            return Err(code);
        }
        let mut undefined = self.inputs.iter().flat_map(|code| &code.content.undefined);
        if let Some(symbol) = undefined.find(|symbol| !self.defined.contains(*symbol)) {
            let text = format!("{symbol} is not defined");
            // The code is assumed; the linker answers it to a name that is defined twice.
            self.failed = Some(INVALID_SOURCE);
            return self.refuse(INVALID_SOURCE, &text);
        }
        self.image = Some(self.build().into_boxed_slice());
        let count = self.inputs.len();
        self.options
            .log_info(&format!("cutape null driver: {count} inputs linked\n"));
        self.options.write_back();
        Ok(())
    }

    fn refuse(&mut self, code: CUresult, text: &str) -> Answer {
        self.options
            .log_error(&format!("cutape null driver: {text}\n"));
        self.options.write_back();
        Err(code)
    }

    fn build(&self) -> Vec<u8> {
        let (major, minor) = self.capability;
        let target = Target {
            major,
            minor,
            suffix: Suffix::None,
        };
        let contents = || self.inputs.iter().map(|code| &code.content);
        let functions: Vec<Function> = contents()
            .flat_map(|content| content.functions.iter().cloned())
            .collect();
        let globals: Vec<Global> = contents().flat_map(defined_globals).cloned().collect();
        build::cubin(&functions, &globals, target)
    }
}

/// Reads one input of the given type.
fn read_input(bytes: &[u8], input: u32, capability: (u16, u16)) -> Result<Code, Refusal> {
    let is_expected = match (input, kind(bytes)) {
        (CUBIN, ImageKind::Cubin)
        | (PTX, _)
        | (FATBINARY, ImageKind::Fatbin | ImageKind::Cubin | ImageKind::Ptx) => true,
        // A fat object or archive holds containers in sections of a host file, which is not parsed
        // here.
        (OBJECT | LIBRARY, ImageKind::Cubin | ImageKind::Fatbin) => true,
        _ => false,
    };
    if !is_expected {
        // Measured for PTX given as a cubin.
        let text = "the input is not of the given type";
        return Err(Refusal::new(INVALID_IMAGE, text));
    }
    // The final NUL of a text may be counted or not (measured).
    let end = bytes.iter().position(|&byte| byte == 0 && input == PTX);
    code::choose(&bytes[..end.unwrap_or(bytes.len())], capability)
}

/// What an input defines under a name that other inputs see.
fn symbols(content: &Content) -> impl Iterator<Item = &str> {
    let functions = content.functions.iter().map(|function| &function.name);
    let globals = defined_globals(content).map(|global| &global.name);
    functions.chain(globals).map(String::as_str)
}

fn defined_globals(content: &Content) -> impl Iterator<Item = &Global> {
    content.globals.iter().filter(|global| !global.external)
}

/// Images of destroyed links, and the handles of those links.
#[derive(Default)]
pub(crate) struct Quarantine {
    images: VecDeque<Box<[u8]>>,
    pub(crate) destroyed: HashSet<u64>,
}

impl Quarantine {
    /// Keeps what is left of a destroyed link.
    pub(crate) fn add(&mut self, handle: u64, image: Option<Box<[u8]>>) {
        const MAX_IMAGES: usize = 256;
        self.destroyed.insert(handle);
        self.images.extend(image.map(freed));
        while self.images.len() > MAX_IMAGES {
            self.images.pop_front();
        }
    }
}

/// The bytes as the heap's free leaves them: the size of the block in its last word. On driver
/// 580.159.04 (H200, 2026-11-22) 2 bytes of 5,408 changed there, and the image still loaded.
fn freed(mut image: Box<[u8]>) -> Box<[u8]> {
    const HEADER: usize = 16;
    let size = image.len().next_multiple_of(16) + HEADER;
    let end = image.len() - image.len() % 8;
    if let Some(word) = image[..end].last_chunk_mut() {
        *word = size.to_le_bytes();
    }
    image
}
