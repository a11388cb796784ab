//! Module Management: the JIT linker.
//!
//! The image that `cuLinkComplete` hands out belongs to the state. After `cuLinkDestroy` its bytes are kept unchanged
//! for a while, because the real driver still loads such an image (SUCCESS) as long as the heap block is not reused;
//! only after many more links are they freed.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use cutape_image::{Content, ImageKind, build, kind};
use cutape_registry::Kind;

use crate::answer::{
    Answer, CUresult, FILE_NOT_FOUND, INVALID_IMAGE, INVALID_SOURCE, INVALID_VALUE,
};
use crate::argument::{In, Out, Text};
use crate::crash;
use crate::dispatch::{Entry, bind};
use crate::image::{self, Code, Refusal};
use crate::jit::{Options, Use};
use crate::state::{State, lock};

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuLinkCreate", bind(create)),
    ("cuLinkAddData", bind(add_data)),
    ("cuLinkAddFile", bind(add_file)),
    ("cuLinkComplete", bind(complete)),
    ("cuLinkDestroy", bind(destroy)),
];

/// A pending or completed link.
#[derive(Debug)]
pub(crate) struct Link {
    options: Options,
    inputs: Vec<Arc<Code>>,
    /// Names of functions and variables defined so far.
    defined: HashSet<String>,
    /// The first input that the linker could not take; the link then fails with that code.
    failed: Option<CUresult>,
    image: Option<Box<[u8]>>,
    /// Of the device that it was begun for.
    capability: (u16, u16),
}

/// Images of destroyed links, and the handles of those links.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    images: VecDeque<Box<[u8]>>,
    destroyed: HashSet<u64>,
}

/// Destroyed images that are kept.
const KEPT: usize = 256;

// Numbers of CUjitInputType.
const CUBIN: u32 = 0;
const PTX: u32 = 1;
const FATBINARY: u32 = 2;
const OBJECT: u32 = 3;
const LIBRARY: u32 = 4;

impl State {
    /// The link of a handle; one that does not live crashes as in the real driver.
    fn link(&mut self, handle: u64) -> &mut Link {
        match self.links.get_mut(&handle) {
            Some(link) => link,
            None => crash::segmentation_fault(),
        }
    }
}

fn create(count: u32, names: In<u32>, values: In<u64>, link: Out<u64>) -> Answer {
    let mut state = lock();
    state.current()?;
    link.check()?;
    let options = Options::read(count, names, values, Use::Whole)?;
    let handle = state.make(Kind::Link)?;
    let object = Link {
        options,
        inputs: Vec::new(),
        defined: HashSet::new(),
        failed: None,
        image: None,
        capability: state.capability(),
    };
    state.quarantine.destroyed.remove(&handle);
    state.links.insert(handle, object);
    link.set(handle)
}

/// Reads one input of the given type.
fn read_input(bytes: &[u8], input: u32, capability: (u16, u16)) -> Result<Code, Refusal> {
    let expected = match (input, kind(bytes)) {
        (CUBIN, ImageKind::Cubin)
        | (PTX, _)
        | (FATBINARY, ImageKind::Fatbin | ImageKind::Cubin | ImageKind::Ptx) => true,
        // A fat object or archive holds containers in sections of a host file, which is not taken apart here.
        (OBJECT | LIBRARY, ImageKind::Cubin | ImageKind::Fatbin) => true,
        _ => false,
    };
    if !expected {
        // Measured for PTX given as a cubin.
        return Err(Refusal::new(
            INVALID_IMAGE,
            "the input is not of the type that it is said to be",
        ));
    }
    // The final NUL of a text may be counted or not (measured).
    let end = if input == PTX {
        bytes.iter().position(|&byte| byte == 0)
    } else {
        None
    };
    image::choose(&bytes[..end.unwrap_or(bytes.len())], capability)
}

impl Link {
    fn add(&mut self, bytes: &[u8], input: u32, name: &str) -> Answer {
        let code = match read_input(bytes, input, self.capability) {
            Ok(code) => code,
            Err(refusal) => {
                self.options
                    .complain(&format!("cutape null driver: {name}: {}\n", refusal.text));
                self.options.report();
                if refusal.code == INVALID_IMAGE {
                    // Poisons the link, while refused PTX is as if it had not been added (both measured).
                    self.failed = self.failed.or(Some(refusal.code));
                }
                return Err(refusal.code);
            }
        };
        for symbol in symbols(&code.content) {
            if self.defined.contains(symbol) {
                self.options.complain(&format!(
                    "cutape null driver: {name}: {symbol} is defined twice\n"
                ));
                self.options.report();
                self.failed = self.failed.or(Some(INVALID_SOURCE)); // measured, here and at completion
                return Err(INVALID_SOURCE);
            }
        }
        self.defined
            .extend(symbols(&code.content).map(str::to_owned));
        self.inputs.push(Arc::new(code));
        Ok(())
    }

    /// Makes the image: the union of the inputs, without code.
    fn complete(&mut self) -> Answer {
        if let Some(code) = self.failed {
            return Err(code);
        }
        let undefined = self.inputs.iter().flat_map(|code| &code.content.undefined);
        if let Some(symbol) = undefined
            .into_iter()
            .find(|symbol| !self.defined.contains(*symbol))
        {
            self.options
                .complain(&format!("cutape null driver: {symbol} is not defined\n"));
            self.options.report();
            // That it is this code is an assumption; INVALID_SOURCE is what the linker answers to a name defined twice.
            self.failed = Some(INVALID_SOURCE);
            return Err(INVALID_SOURCE);
        }
        let contents: Vec<&Content> = self.inputs.iter().map(|code| &code.content).collect();
        self.image = Some(build_image(&contents, self.capability).into_boxed_slice());
        self.options.inform(&format!(
            "cutape null driver: {} inputs linked\n",
            self.inputs.len()
        ));
        self.options.report();
        Ok(())
    }
}

/// What an input defines under a name that others can see.
fn symbols(content: &Content) -> impl Iterator<Item = &str> {
    let functions = content
        .functions
        .iter()
        .map(|function| function.name.as_str());
    functions.chain(
        content
            .globals
            .iter()
            .filter(|global| !global.external)
            .map(|global| global.name.as_str()),
    )
}

fn build_image(contents: &[&Content], (major, minor): (u16, u16)) -> Vec<u8> {
    let target = cutape_image::Target {
        major,
        minor,
        suffix: cutape_image::Suffix::None,
    };
    let functions: Vec<_> = contents
        .iter()
        .flat_map(|content| &content.functions)
        .cloned()
        .collect();
    let globals: Vec<_> = contents
        .iter()
        .flat_map(|content| &content.globals)
        .filter(|global| !global.external)
        .cloned()
        .collect();
    build::cubin(&functions, &globals, target)
}

/// Checks what the two adding calls have in common.
fn begin(
    state: &mut State,
    link: u64,
    input: u32,
    count: u32,
    names: In<u32>,
    values: In<u64>,
) -> Answer {
    let object = state.link(link);
    // Nothing is added to a completed link (measured), and NVVM is no longer taken (measured).
    if object.image.is_some() || input > LIBRARY {
        return Err(INVALID_VALUE);
    }
    let purpose = if input == PTX {
        Use::Input
    } else {
        Use::FinishedInput
    };
    Options::read(count, names, values, purpose).map(|_| ())
}

#[allow(clippy::too_many_arguments)]
fn add_data(
    link: u64,
    input: u32,
    data: u64,
    size: usize,
    name: Text,
    count: u32,
    names: In<u32>,
    values: In<u64>,
) -> Answer {
    let mut state = lock();
    begin(&mut state, link, input, count, names, values)?;
    if data == 0 || size == 0 {
        return Err(INVALID_VALUE);
    }
    let name = if name.is_null() {
        "unnamed input".to_owned()
    } else {
        name.get()?
    };
    // SAFETY: by the C prototype the program gives `size` readable bytes.
    let bytes = unsafe { std::slice::from_raw_parts(data as *const u8, size) };
    state.link(link).add(bytes, input, &name)
}

fn add_file(
    link: u64,
    input: u32,
    path: Text,
    count: u32,
    names: In<u32>,
    values: In<u64>,
) -> Answer {
    let mut state = lock();
    begin(&mut state, link, input, count, names, values)?;
    let path = path.get()?;
    let bytes = std::fs::read(&path).map_err(|_| FILE_NOT_FOUND)?;
    state.link(link).add(&bytes, input, &path)
}

fn complete(link: u64, image: Out<u64>, size: Out<usize>) -> Answer {
    let mut state = lock();
    let object = state.link(link);
    image.check()?;
    if object.image.is_none() {
        object.complete()?;
    }
    if let Some(bytes) = &object.image {
        image.set_if(bytes.as_ptr() as u64);
        size.set_if(bytes.len());
    }
    Ok(())
}

fn destroy(link: u64) -> Answer {
    let mut state = lock();
    let Some(object) = state.links.remove(&link) else {
        if state.quarantine.destroyed.contains(&link) {
            // The real driver frees the state twice: the C library aborts the process.
            eprintln!("cutape null driver: cuLinkDestroy of a destroyed link state");
            std::process::abort();
        }
        crash::segmentation_fault()
    };
    object.options.report();
    let quarantine = &mut state.quarantine;
    quarantine.destroyed.insert(link);
    quarantine.images.extend(object.image);
    while quarantine.images.len() > KEPT {
        quarantine.images.pop_front();
    }
    state.release(Kind::Link, link);
    Ok(())
}
